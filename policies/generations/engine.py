"""The contract of what computes: one base model with adapters that come and go by version, token ids in and out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from policies.protocols import SamplingParams


@dataclass(frozen=True)
class Sampled:
    """A completion: ids (the token that ended it included) and the natural-log probability of each when sampled."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    cached: int = 0
    """Prompt tokens that were not computed again."""


class AdapterEngine(Protocol):
    """A version is loaded once under its own name, never replaced. `None` means the base model without an adapter.

    Every method that takes a version raises `UnknownGeneration` when it is not loaded, and `PolicyUnavailable` when the
    engine cannot be reached.
    """

    async def load(self, version: str, path: Path) -> None:
        """Make an adapter's directory answer to `version`, on all servers that can be reached, or on none.

        Loaded already from there: nothing is done.

        Raises `AdapterRefused` when the engine cannot take it, or serves another directory under that name.
        """
        ...

    async def unload(self, version: str) -> None:
        """Forget a version everywhere; requests that are running end as they began."""
        ...

    async def loaded(self) -> frozenset[str]:
        """Return the versions that can be asked for."""
        ...

    async def context(self) -> int:
        """Return how many tokens prompt and completion may have together."""
        ...

    async def sample(self, prompt: Sequence[int], params: SamplingParams, version: str | None) -> Sampled:
        """Return one completion, ended by the model's own end tokens, a stop string or `max_tokens`.

        The ids of what ended it are included. Tools and schemas are not looked at.
        """
        ...

    async def aclose(self) -> None:
        """Release connections, threads and memory; closing twice is allowed."""
        ...


class ScoringEngine(AdapterEngine, Protocol):
    """An engine that can also score given ids.

    vLLM is none: with LoRA on, its CPU build (0.32) ends when `prompt_logprobs` are computed in a batch with other
    requests, and `logprob_token_ids` replaces what the others in the batch asked for.
    """

    async def logprobs(
        self, prompt: Sequence[int], completion: Sequence[int], version: str | None
    ) -> tuple[float, ...]:
        """Return the natural-log probability of each completion token after what precedes it, at temperature 1."""
        ...
