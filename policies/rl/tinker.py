"""A LoRA that a service trains by Tinker's API: no model is computed here, and none has to fit.

An update takes two requests. The first returns the log-probabilities of all rows under the weights as they are; our own
loss of them is computed here, with its gradient by each log-probability; the second carries that gradient back as the
weights of a cross-entropy (the client's `forward_backward_custom`), and AdamW makes the step there. So every loss,
aggregation and correction of ours trains, and no row is cut by what the service knows of losses.

    here       losses, corrections, the schedule of the learning rate, figures
    there      the base, the adapter (its scale is the service's), AdamW and its moments, checkpoints
    refused    what a service does not take: all weights, 8-bit moments, dtype, pack_tokens, gradient checkpointing,
               reference_kl, and a temperature other than 1, since it tells log-probabilities at 1

The key is in TINKER_API_KEY, the address in TINKER_BASE_URL, as the client of Tinker reads them; others serve the same
API (SkyRL's `skyrl.tinker.api`). A client from 0.20 to 0.38: the older one gets an adapter as an archive, the newer one
file by file.
"""

from __future__ import annotations

import itertools
import json
import logging
import shutil
import tarfile
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import torch
from torch import Tensor

from memory.errors import BadInput
from policies.errors import PolicyRefused, PolicyUnavailable
from policies.generations.adapters import CONFIG, NAME, WEIGHTS
from policies.generations.tensors import shapes
from policies.generations.tinker_engine import answering, client_package, made, refer
from policies.rl.batch import Batch, scored_places
from policies.rl.optimising import OptimiserOptions, require_same
from policies.rl.protocols import OffPolicyCorrection, PolicyLoss
from policies.rl.ratios import effective_share
from policies.rl.rows import TrainRow
from policies.rl.trained_model import schedule_of
from policies.rl.trainer import ABOUT, Trainer, stopped

STATE = "tinker_state"
"""Key of `training.json`: where the service keeps the weights of an adapter, from which a training can go on."""
log = logging.getLogger(__name__)

SUMMED = ("surrogate_loss:sum", "loss:sum", "total_loss:sum")
"""Under which name a service tells the loss of an update's second request: newer clients, Tinker, SkyRL."""
KEPT_S, RESUMABLE_S = 14 * 24 * 3600, 180 * 24 * 3600
"""Seconds that the service keeps what rollouts sample from, and checkpoints. What is published is kept for good."""
FAREWELL_S = 10.0
"""Seconds that the end of a session may take."""


class TinkerTrainer(Trainer):
    """A `Trainer` whose model is at a service; there is no `model` here, and `merged` and `acting` are refused.

    Raises `PolicyRefused` for settings that a service does not take, for a `start` that it does not keep and for no
    key, `PolicyUnavailable` where its client is missing; later, where the service is gone.
    """

    def __init__(
        self,
        model: str | Path,
        loss: PolicyLoss,
        settings: OptimiserOptions,
        *,
        start: Path | None = None,
        correction: OffPolicyCorrection | None = None,
    ) -> None:
        _require_taken(settings)
        self.path, self.loss, self.settings, self.correction = str(model), loss, settings, correction
        self._state = None if start is None else _kept_state(start)
        self._tinker = client_package()
        with answering("cannot be reached"):
            self._service = self._tinker.ServiceClient()
        self._client: Any = None
        rate = torch.zeros(1, requires_grad=True)  # carries the learning rate: what is trained is not here
        self.optimizer = torch.optim.SGD([rate], lr=settings.learning_rate)
        self.schedule = schedule_of(self.optimizer, settings)
        self.updates = 0
        self._recomputed = 0
        self._names = itertools.count()
        self._sampled: tuple[int, str] = (-1, "")
        """Of which update the weights for sampling are, and where."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End the session, where the client can; the service keeps what has an address."""
        how = "success" if error is None else "errored" if isinstance(error, Exception) else "interrupted"
        try:
            if hasattr(self._service, "close"):
                self._service.close(how).result(timeout=FAREWELL_S)
        except Exception as gone:
            log.warning("the session at the Tinker service was not ended (%s); it ends by itself", gone)

    @property
    def device(self) -> Any:
        """The processor: what comes from the service is computed there."""
        return "cpu"

    @property
    def service(self) -> Any:
        """The client's `ServiceClient`, for who samples."""
        return self._service

    @property
    def acting(self) -> Any:
        """Refuse: the model is not here."""
        raise PolicyRefused("a model that a service trains cannot compute here; rollouts ask the service for it")

    def merged(self) -> Iterator[tuple[str, Tensor]]:
        """Refuse: the model is not here."""
        raise PolicyRefused("a model that a service trains is not merged here; `save` writes its adapter")

    def _begin(self) -> None:
        """Nothing: the service is asked when something is to be computed."""

    def _training(self) -> Any:
        """Return the client of this training, begun anew or where another one ended."""
        if self._client is None:
            with answering(f"does not train {self.settings.hosted_model!r}"):
                if self._state is None:
                    self._client = made(
                        self._service.create_lora_training_client(
                            base_model=self.settings.hosted_model,
                            rank=self.settings.rank,
                            seed=self.settings.seed,
                            train_unembed=False,
                        )
                    )
                else:
                    self._client = made(self._service.create_training_client_from_state(self._state))
        return self._client

    def _computed(self, rows: Sequence[TrainRow]) -> int:
        return sum(len(row.prompt_ids) + len(row.completion_ids) for row in rows)

    @torch.no_grad()
    def logprobs(self, rows: Sequence[TrainRow], batch: Batch) -> Tensor:
        """Return the log-probabilities of the trained tokens under the weights as they are [b, t]."""
        with answering("does not compute log-probabilities"):
            told = self._training().forward(self._data(rows), "cross_entropy").result()
        found = [torch.tensor(each["logprobs"].data) for each in told.loss_fn_outputs]
        return _placed(found, rows, batch)

    def _update(
        self, rows: Sequence[TrainRow], batch: Batch, chosen: Sequence[int], old: Tensor | None
    ) -> dict[str, float]:
        part, own = batch.part(chosen), [rows[at] for at in chosen]
        before = None if old is None else old[list(chosen)]
        weights, told = self._weights(part, before)
        scored: list[Tensor] = []

        def loss_of(_: Any, logprobs: Sequence[Tensor]) -> tuple[Tensor, dict[str, float]]:
            scored.extend(logprobs)
            logp = _placed(logprobs, own, part)
            total, figures = self._loss(logp, part, before, weights)
            if not total.isfinite():
                raise stopped(float(total.detach()), self.updates + 1)
            told.update(figures | {"entropy": -float(logp.detach()[part.mask].mean())})
            return total, {}

        client, adam = self._training(), self._adam(told["learning_rate"])
        with answering("does not make this update"):
            there: dict[str, float] = client.forward_backward_custom(self._data(own), loss_of).result().metrics
            _require_sum(there, torch.cat([each.detach() * each.grad for each in scored if each.grad is not None]))
            metrics: dict[str, float] = client.optim_step(adam).result().metrics or {}
        self.optimizer.step()
        self.schedule.step()
        self.updates += 1
        ess = effective_share(told["ratio_mean"], told.pop("ratio_square"))
        norms = [value for name, value in metrics.items() if name.endswith("grad_norm")]
        return told | {"ess": ess} | ({"gradient_norm": norms[0]} if norms else {})

    def _adam(self, rate: float) -> Any:
        return self._tinker.types.AdamParams(
            learning_rate=rate,
            beta1=0.9,
            beta2=0.999,
            eps=1e-8,
            weight_decay=0.0,
            grad_clip_norm=self.settings.max_grad_norm,
        )

    def _data(self, rows: Sequence[TrainRow]) -> list[Any]:
        types = self._tinker.types
        every = [[*row.prompt_ids, *row.completion_ids] for row in rows]
        return [
            types.Datum(
                model_input=types.ModelInput.from_ints(tokens[:-1]),
                loss_fn_inputs={"target_tokens": tokens[1:], "weights": [0.0] * (len(tokens) - 1)},
            )
            for tokens in every
        ]

    def save_for_sampling(self, directory: Path) -> str:
        """Write where the service keeps the weights as they are for sampling, and return a name of their own."""
        if self._sampled[0] != self.updates:
            name = self._name("s")
            with answering("does not keep weights for sampling"):
                path = self._training().save_weights_for_sampler(name, ttl_seconds=KEPT_S).result().path
            self._sampled = (self.updates, path)
        return refer(directory, self._sampled[1])

    def save(self, directory: Path) -> None:
        """Write the adapter into a new directory, all or nothing: as the service made it, and where it is kept there.

        Raises `PolicyRefused` for a directory that exists and for files that make no adapter.
        """
        if directory.exists():
            raise PolicyRefused(f"{directory} exists; a policy that was written is never written over, name another")
        new = directory.with_name(f".{directory.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        client = self._training()
        with answering("does not hand out the adapter"):
            self._download(client, new)
        config = json.loads((new / CONFIG).read_text())
        adapted = {found["module"].rpartition(".")[2] for found in map(NAME.fullmatch, shapes(new / WEIGHTS)) if found}
        own = {"base_model_name_or_path": self.path, "target_modules": sorted(adapted), "task_type": "CAUSAL_LM"}
        (new / CONFIG).write_text(json.dumps(config | own, indent=2))
        with answering("does not keep what is published"):
            state = client.save_state(self._name("a")).result().path
        about = self.settings.model_dump() | {"updates": self.updates, STATE: state}
        (new / ABOUT).write_text(json.dumps(about, indent=2))
        new.replace(directory)

    def _download(self, client: Any, into: Path) -> None:
        """Write configuration and weights of the adapter into a folder."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # newer clients warn of it
            rest = self._service.create_rest_client()
        if hasattr(client, "save_weights_external"):
            path = client.save_weights_external(self._name("e"), ttl_seconds=KEPT_S).result().path
            urls: Mapping[str, str] = rest.get_external_weights_urls(path).result().urls
            for name in (CONFIG, WEIGHTS):
                if name not in urls:
                    raise PolicyRefused(f"the service hands out {sorted(urls)}; expected {CONFIG} and {WEIGHTS}")
                _fetch(urls[name], into / name)
            return
        path = client.save_weights_for_sampler(self._name("e"), ttl_seconds=KEPT_S).result().path
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder) / "archive.tar"
            run, _, checkpoint = path.removeprefix("tinker://").partition("/")
            _fetch(rest.get_checkpoint_archive_url(run, checkpoint).result().url, archive)
            _unpack(archive, into)

    def checkpoint(self, path: Path, progress: Mapping[str, Any] | None = None) -> None:
        """Have the service keep weights and moments, and write where; `progress` comes back from `resume`."""
        with answering("does not keep a checkpoint"):
            state = self._training().save_state(self._name("c"), ttl_seconds=RESUMABLE_S).result().path
        known = {"state": state, "updates": self.updates, "settings": self.settings.model_dump()}
        known |= {"learning_rate": self.optimizer.param_groups[0]["lr"], "sampled": self._sampled}
        new = path.with_name(f"{path.name}.new")
        new.write_text(json.dumps(known | {"progress": dict(progress or {})}))
        new.replace(path)

    def resume(self, path: Path) -> dict[str, Any]:
        """Go on from a checkpoint and return its `progress`.

        Raises `PolicyRefused` where the settings are others, or the service keeps it no more.
        """
        known = json.loads(path.read_text())
        require_same(path, known["settings"], self.settings)
        with answering(f"does not go on from {known['state']}"):
            self._client = made(self._service.create_training_client_from_state_with_optimizer(known["state"]))
        self.updates = self.schedule.last_epoch = int(known["updates"])
        self.optimizer.param_groups[0]["lr"] = known["learning_rate"]
        update, address = known["sampled"]
        self._sampled = (int(update), str(address))
        return known["progress"]

    def _name(self, kind: str) -> str:
        """Return a name that nothing of this training run has yet."""
        return f"{kind}{next(self._names)}-u{self.updates}"


def _require_taken(settings: OptimiserOptions) -> None:
    """Raise `PolicyRefused` for settings that a service does not take."""
    expected = {
        "dtype": None,
        "pack_tokens": None,
        "gradient_checkpointing": False,
        "reference_kl": False,
        "temperature": 1.0,
    }
    for key, free in expected.items():
        if (got := getattr(settings, key)) != free:
            raise PolicyRefused(
                f'train.backend = "tinker" got train.{key} = {got!r}, which a service decides itself; expected {free!r}'
                ', or train.backend = "torch"'
            )
    if not settings.hosted_model:
        raise PolicyRefused(
            'train.backend = "tinker" needs train.tinker.base_model: the name under which the service knows the model '
            "of policy.model, as 'Qwen/Qwen3-8B'"
        )


def _require_sum(told: Mapping[str, float], losses: Tensor) -> None:
    """Raise `PolicyRefused` unless a service told the sum of the weighted token losses [n], to 1 % of their size.

    SkyRL's JAX backend (0.3) divides the loss of a row by the sum of its weights and tells none: with weights of both
    signs that is another gradient.
    """
    expected, size = float(losses.double().sum()), float(losses.double().abs().sum())  # signs differ: sums cancel
    found = next((told[name] for name in SUMMED if name in told), None)
    if found is None or abs(found - expected) > 1e-2 * size + 1e-6:
        raise PolicyRefused(
            f"the service told the loss {found} ({', '.join(sorted(told)) or 'no metrics'}), expected {expected:.6g}, "
            "the sum over tokens of -weight x log p; it does not add up a cross-entropy as Tinker does, so that its "
            "gradient is another one: nothing was updated; use a service that sums (SkyRL: another backend than jax)"
        )


def _kept_state(start: Path) -> str:
    """Return where a service keeps an adapter. Raises `PolicyRefused` for one that none does."""
    known = json.loads((start / ABOUT).read_text()) if (start / ABOUT).exists() else {}
    if STATE not in known:
        raise PolicyRefused(
            f"{start} is live and was not trained by a service; Tinker's API takes no adapter: go on from it with "
            'train.backend = "torch", or roll back to the base (`evolve policy rollback`)'
        )
    return known[STATE]


def _placed(found: Sequence[Tensor], rows: Sequence[TrainRow], batch: Batch) -> Tensor:
    """Return the log-probabilities of whole rows as a batch has them [b, t]: those of its scored tokens."""
    world = batch.world is not None
    own = [each[_scored(row, world=world)] for each, row in zip(found, rows, strict=True)]
    zero = torch.zeros_like(batch.rollout_logp)
    return zero.masked_scatter(batch.scored, torch.cat(own).to(zero.dtype))


def _scored(row: TrainRow, *, world: bool) -> list[int]:
    """Return which of a row's log-probabilities are of scored tokens: the first is that of its second token."""
    first = len(row.prompt_ids) - 1
    if first < 0:
        raise BadInput(f"the row of {row.trajectory_id!r} has no prompt; a service scores what follows a token")
    return [first + at for at in scored_places(row, world=world)]


def _fetch(url: str, into: Path) -> None:
    """Write what an address answers into a file."""
    with httpx.stream("GET", url, follow_redirects=True, timeout=600.0) as answer, into.open("wb") as file:
        if not answer.is_success:
            raise PolicyUnavailable(f"the service hands out no {into.name} (HTTP {answer.status_code}); try again")
        for piece in answer.iter_bytes():
            file.write(piece)


def _unpack(archive: Path, into: Path) -> None:
    """Write configuration and weights of an archive into a folder, and nothing else of it."""
    with tarfile.open(archive) as packed:
        for member in packed:
            if member.isfile() and Path(member.name).name in (CONFIG, WEIGHTS):
                source = packed.extractfile(member)
                assert source is not None
                with source, (into / Path(member.name).name).open("wb") as file:
                    shutil.copyfileobj(source, file)
    if missing := [name for name in (CONFIG, WEIGHTS) if not (into / name).exists()]:
        raise PolicyRefused(f"the service's archive has no {' and no '.join(missing)}; expected a PEFT adapter")
