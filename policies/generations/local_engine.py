"""The engine in this process, transformers and peft in fp32: the reference that servers are compared with.

Right rather than fast: one request after the other, the adapter added in every forward pass. Needs the extras `pocket`
and `rl`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from policies.errors import PolicyRefused, PolicyUnavailable
from policies.generations.engine import Sampled
from policies.generations.errors import AdapterRefused, UnknownGeneration
from policies.protocols import SamplingParams

if TYPE_CHECKING:
    from policies.local.adapted import AdaptedModel

T = TypeVar("T")


class LocalEngine:
    """A model's directory in this process, on a device (None: a GPU where there is one). `threads`: CPU threads.

    With `merged` every version is a copy of the weights with its adapter merged into it, as `LocalPolicy` acts with it.
    """

    def __init__(
        self, model: Path, threads: int | None = None, *, merged: bool = False, device: str | None = None
    ) -> None:
        """Load the base. Raises `PolicyUnavailable` or `PolicyRefused` where a package or the model is missing."""
        from policies.local.adapted import AdaptedModel, MergedModel
        from policies.local.batcher import set_threads
        from policies.local.loading import load_encoder

        self._encoder = load_encoder(str(model))
        self._model: AdaptedModel | None = (MergedModel if merged else AdaptedModel)(str(model), device)
        self._paths: dict[str, Path] = {}
        self._worker = ThreadPoolExecutor(1, "local-engine", set_threads, (threads,))

    async def load(self, version: str, path: Path) -> None:
        """Add an adapter; everywhere is here."""
        known = self._paths.get(version)
        if known == path.resolve():
            return
        if known is not None:
            raise AdapterRefused(f"{version} was loaded from {str(known)!r}, got {str(path)!r}; give it another name")
        try:
            await self._do(lambda model: model.load(version, str(path)))
        except (PolicyRefused, OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
            raise AdapterRefused(f"peft cannot load {version} from {str(path)!r} ({first}); train it again") from error
        self._paths[version] = path.resolve()

    async def unload(self, version: str) -> None:
        """Remove an adapter."""
        self._require(version)
        del self._paths[version]
        await self._do(lambda model: model.unload(version))

    async def loaded(self) -> frozenset[str]:
        """Return the adapters by name."""
        return frozenset(self._paths)

    async def context(self) -> int:
        """Return the model's context."""
        return await self._do(lambda model: model.context)

    async def logprobs(
        self, prompt: Sequence[int], completion: Sequence[int], version: str | None
    ) -> tuple[float, ...]:
        """Score given tokens in one forward pass."""
        self._require(version)
        return tuple(await self._do(lambda model: model.logprobs(prompt, completion, version)))

    async def sample(self, prompt: Sequence[int], params: SamplingParams, version: str | None) -> Sampled:
        """Sample as `LocalPolicy` does, without its caches."""
        from policies.local.request import Request

        self._require(version)
        request = Request(
            prompt=tuple(prompt),
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            top_p=params.top_p,
            seed=params.seed,
            ends=self._encoder.ends,
            **({"stop": self._encoder.stopper(params.stop)} if params.stop else {}),
        )
        (done,) = await self._do(lambda model: model.generate([request], version))
        return Sampled(tuple(done.tokens), tuple(done.logprobs), done.finish_reason)

    async def aclose(self) -> None:
        """End the thread and let the weights go."""
        self._model = None
        self._paths.clear()
        self._worker.shutdown()

    def _require(self, version: str | None) -> None:
        if version is not None and version not in self._paths:
            raise UnknownGeneration(f"{version} is not loaded; there are {sorted(self._paths)}")

    async def _do(self, work: Callable[[AdaptedModel], T]) -> T:
        model: Any = self._model
        if model is None:
            raise PolicyUnavailable("this LocalEngine was closed; make a new one")
        return await asyncio.get_running_loop().run_in_executor(self._worker, work, model)

    def __repr__(self) -> str:
        return f"LocalEngine(loaded={sorted(self._paths)})"
