"""What a service with Tinker's API does, in this process: the client's types and errors are Tinker's, the rest is torch
and peft by themselves, so that it is a second opinion of what our trainer computes."""

from __future__ import annotations

import copy
import functools
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import peft
import tinker
import torch
from transformers import AutoModelForCausalLM

NAME = "Tiny/Tiny-0B"


def done(value: Any) -> Future[Any]:
    """Return a future that is done."""
    future: Future[Any] = Future()
    future.set_result(value)
    return future


class Service:
    """A `tinker.ServiceClient` that trains one base; `kept` is what it keeps, by address."""

    def __init__(self, base: Path, folder: Path, url: str, *, newer: bool = True) -> None:
        self.base, self.folder, self.url, self.newer = base, folder, url, newer
        self.kept: dict[str, Any] = {}
        self.asked: list[str] = []
        self.gone = self.divides = False

    def __call__(self) -> Service:
        return self

    def create_lora_training_client(self, base_model: str, rank: int, seed: int, train_unembed: bool) -> Any:
        self.answers("create")
        if base_model != NAME:
            raise tinker.NotFoundError(
                f"no model {base_model}",
                response=httpx.Response(404, request=httpx.Request("POST", self.url)),
                body=None,
            )
        assert not train_unembed
        torch.manual_seed(seed)
        plain = AutoModelForCausalLM.from_pretrained(self.base)
        config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
        return self._client(peft.get_peft_model(plain, config), None)

    def create_training_client_from_state(self, path: str) -> Any:
        self.answers("weights")
        return self._client(copy.deepcopy(self.kept[path][0]), None)

    def create_training_client_from_state_with_optimizer(self, path: str) -> Any:
        self.answers("weights and moments")
        return self._client(*copy.deepcopy(self.kept[path]))

    def _client(self, model: Any, moments: Any) -> Any:
        client = (Newer if self.newer else Older)(self, model, moments)
        return done(client) if self.newer else client

    def create_sampling_client(self, model_path: str | None = None, base_model: str | None = None) -> Any:
        self.answers("sampler")
        model = self.kept[model_path][0] if model_path else AutoModelForCausalLM.from_pretrained(self.base)
        return done(Sampler(self, model)) if self.newer else Sampler(self, model)

    def create_rest_client(self) -> Any:
        def addresses(path: str) -> Future[Any]:
            place = self.kept[path]
            urls = {file.name: f"{self.url}/{place}/{file.name}" for file in (self.folder / place).iterdir()}
            return done(SimpleNamespace(urls=urls))

        def address(run: str, checkpoint: str) -> Future[Any]:
            return done(SimpleNamespace(url=f"{self.url}/{self.kept[f'tinker://{run}/{checkpoint}']}.tar.gz"))

        return SimpleNamespace(get_external_weights_urls=addresses, get_checkpoint_archive_url=address)

    def close(self, status: str) -> Future[Any]:
        self.answers(f"close: {status}")
        return done(None)

    def answers(self, what: str) -> None:
        self.asked.append(what)
        if self.gone:
            raise tinker.APIConnectionError(request=httpx.Request("POST", self.url))


class Older:
    """A `TrainingClient` of tinker 0.20: an adapter leaves it as an archive."""

    def __init__(self, service: Service, model: Any, moments: Any) -> None:
        self._service, self._model, self._seen = service, model, set[str]()
        self._optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad])
        if moments:
            self._optimizer.load_state_dict(moments)

    def _logprobs(self, datum: Any) -> torch.Tensor:
        ids = torch.tensor([datum.model_input.to_ints()])
        targets = torch.tensor(datum.loss_fn_inputs["target_tokens"].data)
        logits = self._model(input_ids=ids).logits[0].float()
        return torch.log_softmax(logits, -1).gather(-1, targets[:, None])[:, 0]

    def forward(self, data: Sequence[Any], loss: str) -> Future[Any]:
        self._service.answers("forward")
        assert loss == "cross_entropy"
        with torch.no_grad():
            found = [self._logprobs(datum) for datum in data]
        told = [{"logprobs": tinker.TensorData.from_torch(each)} for each in found]
        return done(SimpleNamespace(loss_fn_outputs=told))

    def forward_backward_custom(self, data: Sequence[Any], loss: Callable[..., Any]) -> Future[Any]:
        self._service.answers("forward_backward")
        found = [self._logprobs(datum) for datum in data]
        leaves = [each.detach().requires_grad_() for each in found]
        total, _ = loss(data, leaves)
        total.backward()
        sum((each * leaf.grad).sum() for each, leaf in zip(found, leaves, strict=True)).backward()  # type: ignore[union-attr]
        summed = sum(float((leaf.detach() * leaf.grad).sum()) for leaf in leaves)  # type: ignore[operator]
        return done(SimpleNamespace(metrics={} if self._service.divides else {"loss:sum": summed}))

    def optim_step(self, adam: Any) -> Future[Any]:
        self._service.answers("optim_step")
        own = self._optimizer.param_groups[0]
        own |= {"lr": adam.learning_rate, "betas": (adam.beta1, adam.beta2), "eps": adam.eps}
        own["weight_decay"] = adam.weight_decay
        norm = torch.nn.utils.clip_grad_norm_(own["params"], adam.grad_clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return done(SimpleNamespace(metrics={"service/grad_norm": float(norm)}))

    def _address(self, name: str) -> str:
        assert name not in self._seen, "a name is given once in a training run"
        self._seen.add(name)
        return f"tinker://run-{len(self._service.kept)}/{name}"

    def _keep(self, name: str) -> Future[Any]:
        path = self._address(name)
        self._service.kept[path] = copy.deepcopy((self._model, self._optimizer.state_dict()))
        return done(SimpleNamespace(path=path))

    def save_state(self, name: str, ttl_seconds: int | None = None) -> Future[Any]:
        self._service.answers("save_state")
        return self._keep(name)

    def save_weights_for_sampler(self, name: str, ttl_seconds: int | None = None) -> Future[Any]:
        self._service.answers("save_weights_for_sampler")
        kept = self._keep(name)
        if not self._service.newer:
            place = self._written()
            with tarfile.open(self._service.folder / f"{place}.tar.gz", "w:gz") as packed:
                packed.add(self._service.folder / place, arcname=".")
            path = kept.result().path
            if name.startswith("e"):
                self._service.kept[path] = place
        return kept

    def _written(self) -> str:
        place = f"adapter-{len(self._service.kept)}"
        self._model.save_pretrained(self._service.folder / place)
        (self._service.folder / place / "notes.txt").write_text("nothing that an adapter needs")
        return place


class Newer(Older):
    """A `TrainingClient` of tinker 0.38: an adapter leaves it file by file."""

    def forward_backward_custom(self, data: Sequence[Any], loss: Callable[..., Any]) -> Future[Any]:
        told = super().forward_backward_custom(data, loss).result()
        told.metrics["surrogate_loss:sum"] = told.metrics.pop("loss:sum")
        return done(told)

    def save_weights_external(self, name: str, ttl_seconds: int | None = None) -> Future[Any]:
        self._service.answers("save_weights_external")
        path = self._address(name)
        self._service.kept[path] = self._written()
        return done(SimpleNamespace(path=path))


class Sampler:
    """A `SamplingClient`."""

    def __init__(self, service: Service, model: Any) -> None:
        self._service, self._model = service, model

    def sample(self, prompt: Any, count: int, params: Any) -> Future[Any]:
        self._service.answers("sample")
        assert count == 1
        ids, logprobs = list(prompt.to_ints()), list[float]()
        start = len(ids)
        with torch.no_grad():
            while len(logprobs) < params.max_tokens and (not logprobs or ids[-1] not in params.stop):
                logits = self._model(input_ids=torch.tensor([ids])).logits[0, -1].float()
                ids.append(int(torch.softmax(logits / params.temperature, -1).multinomial(1)))
                logprobs.append(float(torch.log_softmax(logits, -1)[ids[-1]]))
        why = "stop" if ids[-1] in params.stop else "length"
        one = tinker.SampledSequence(
            stop_reason=why, sequence_id="1", _tokens_list=ids[start:], _logprobs_list=logprobs
        )
        return done(SimpleNamespace(sequences=[one]))


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder, without a line for each."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving(base: Path, folder: Path, *, newer: bool = True) -> Iterator[Service]:
    """Give a service for a base, whose files are answered on loopback."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Service(base, folder, f"http://127.0.0.1:{server.server_port}", newer=newer)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
