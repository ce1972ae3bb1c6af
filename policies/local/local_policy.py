"""`LocalPolicy`: a Hugging Face causal language model in this process, behind the `Policy` protocol."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from memory.records import Usage
from policies.encoding import ChatEncoder
from policies.errors import PolicyRefused
from policies.local.batcher import Batcher
from policies.local.llama import LlamaEngine, is_plain_llama
from policies.local.loading import end_tokens, load_model, load_tokenizer, weights_hash
from policies.local.request import Completion, Engine, Request
from policies.local.transformers_engine import TransformersEngine
from policies.protocols import Message, Profile, Reply, SamplingParams

MAX_BATCH, GPU_BATCH = 128, 256
"""Requests that are computed at a time, at most: on a CPU, on a GPU."""
POCKET = Path(__file__).parent.parent / "pocket" / "weights"


class Merging(Protocol):
    """A trainer, as far as a policy follows it."""

    def merged(self) -> Iterable[tuple[str, Any]]:
        """Give the weights of the whole model as they are now, by name, the adapter added in."""
        ...


class LocalPolicy:
    """Computes in fp32, on a GPU where there is one. Concurrent calls run as one batch; neither greedy nor seeded
    output depends on what else is in it. No native tool calls, no schema-constrained decoding.

    `path`: a directory or hub name; `adapter`: a PEFT adapter, merged on loading; `threads`: CPU threads to use.
    Raises `PolicyRefused` where the model cannot be loaded.
    """

    supports_schema = False
    in_process = True
    """A call costs nothing but time."""

    def __init__(
        self,
        path: str | Path,
        adapter: str | Path | None = None,
        threads: int | None = None,
        *,
        name: str | None = None,
        profile: Profile = "full",
        max_batch: int | None = None,
    ) -> None:
        self.tokenizer = load_tokenizer(str(path))
        self._model = self._loaded(str(path), None if adapter is None else str(adapter))
        self.name: str = name or Path(path).name
        self.generation: str | None = None
        """What its adapter is called in a registry of generations, where it comes from one."""
        self.profile: Profile = profile
        self.encoder = ChatEncoder(self.tokenizer, end_tokens(self._model.generation_config, self.tokenizer))
        self._live = _Live(_engine(self._model), self._named())
        most = max_batch or (GPU_BATCH if self._model.device.type == "cuda" else MAX_BATCH)
        self._batcher = Batcher(self._run, most, threads)

    @classmethod
    def pocket(
        cls, adapter: str | Path | None = None, threads: int | None = None, *, max_batch: int | None = None
    ) -> LocalPolicy:
        """Return the pocket model whose weights come with the package. Raises `PolicyRefused` where they are absent."""
        if not (POCKET / "model.safetensors").exists():
            raise PolicyRefused("the weights of the pocket model are not installed; train them with `make pocket`")
        return cls(POCKET, adapter, threads, name="pocket", profile="compact", max_batch=max_batch)

    @property
    def engine(self) -> Engine:
        """What computes now."""
        return self._live.engine

    @property
    def version(self) -> str:
        """Hash of the weights that answer now; a reply names those that answered it."""
        return self._live.version

    async def make_room(self) -> None:
        """Leave to an update of the weights the memory that answering faster takes, once the running batch is done."""
        await self._batcher.between(self.engine.make_room)

    async def sync_weights(self, trainer: Merging) -> None:
        """Answer with a trainer's weights from the next batch on; one that is running ends as it began.

        They are merged into this policy's own, one matrix after the other. Raises `PolicyRefused` for those of another
        model.
        """

        def follow() -> None:
            self._take(trainer.merged())
            self.engine.renew()
            self._live = _Live(self.engine, self._named())

        await self._batcher.between(follow)

    def _loaded(self, path: str, adapter: str | None) -> Any:
        """Return the model to compute with."""
        return load_model(path, adapter)

    @torch.no_grad()
    def _take(self, weights: Iterable[tuple[str, Any]]) -> None:
        own = self._model.state_dict()
        for name, value in weights:
            if name not in own or own[name].shape != value.shape:
                raise PolicyRefused(f"these are no weights of {self.name!r}: got {name} of {tuple(value.shape)}")
            own[name].copy_(value)

    def _named(self) -> str:
        """Return the version."""
        return weights_hash(self._model.state_dict().items())

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        """Return one completion. Raises `PolicyRefused` for native tools and for prompts that leave no room."""
        if params.tools:
            raise PolicyRefused(f"{self.name!r} in process has no native tool calls; describe the tools in the prompt")
        prompt = self.encode(messages)
        room = self.engine.context - len(prompt)
        if room < 1:
            raise PolicyRefused(
                f"the prompt has {len(prompt)} tokens, {self.name!r} takes {self.engine.context}; shorten it"
            )
        request = Request(
            prompt=prompt,
            max_tokens=min(params.max_tokens, room),
            temperature=params.temperature,
            top_p=params.top_p,
            seed=params.seed,
            ends=self.encoder.ends,
            **({"stop": self.encoder.stopper(params.stop)} if params.stop else {}),
        )
        return self._reply(await self._batcher.submit(request), params.stop)

    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Return the prompt's token ids, as `ChatEncoder.encode`."""
        return self.encoder.encode(messages)

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text on its own."""
        return len(self.encoder.tokens(text))

    async def aclose(self) -> None:
        """Finish the running batch, end the worker thread, and drop what was cached (up to 1 GiB)."""
        await self._batcher.close()
        self.engine.forget()

    def _run(self, requests: Sequence[Request]) -> list[Completion]:
        live = self._live
        completions = live.engine.generate(requests)
        for completion in completions:
            completion.version = live.version
        return completions

    def _reply(self, completion: Completion, stops: tuple[str, ...]) -> Reply:
        prompt = completion.request.prompt
        return Reply(
            text=self.encoder.said(completion.tokens, stops),
            finish_reason=completion.finish_reason,
            prompt_token_ids=prompt,
            token_ids=tuple(completion.tokens),
            logprobs=tuple(completion.logprobs),
            usage=Usage(
                prompt_tokens=len(prompt),
                completion_tokens=len(completion.tokens),
                cached_tokens=completion.cached,
                calls=1,
            ),
            policy_version=completion.version,
        )


class SharedPolicy(LocalPolicy):
    """A `LocalPolicy` that computes with the model of a trainer itself, between its steps: there is one copy of it.

    `trainer` is a `policies.rl.trainer.Trainer` that no other process shares; its version names what it trains alone.
    It computes in the trainer's dtype: in bfloat16 what is said may depend on what else is in the batch.
    """

    def __init__(self, trainer: Any, *, profile: Profile = "full") -> None:
        self._trainer = trainer
        super().__init__(trainer.path, profile=profile)

    def _loaded(self, path: str, adapter: str | None) -> Any:
        return self._trainer.acting

    def _take(self, weights: Iterable[tuple[str, Any]]) -> None:
        """Leave the weights, which are the trainer's already; a step left the model ready for a gradient."""
        self._model.eval()

    def _named(self) -> str:
        return weights_hash((name, value) for name, value in self._model.named_parameters() if value.requires_grad)


class _Live(NamedTuple):
    """What answers, and its name: replaced together."""

    engine: Engine
    version: str


def _engine(model: Any) -> Engine:
    if is_plain_llama(model.config):
        return LlamaEngine(model)
    kind = model.config.model_type
    print(f"local policy: {kind!r} runs through transformers (the fast decoder is for plain Llama)", file=sys.stderr)
    return TransformersEngine(model)
