"""Request to an engine and its completion: token ids in, token ids out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np


def _never(tokens: Sequence[int]) -> bool:
    return False


@dataclass(frozen=True)
class Request:
    """One prompt. `stop` sees all completion tokens after each new one and ends the row when it says True."""

    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    ends: frozenset[int] = frozenset()
    stop: Callable[[Sequence[int]], bool] = _never


@dataclass
class Completion:
    """What was generated so far for one request; `tokens` includes the end token, where one came;
    `cached` counts prompt tokens that were not computed again, `version` names the weights."""

    request: Request
    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    finish_reason: str = ""
    cached: int = 0
    version: str = ""

    def __post_init__(self) -> None:
        self.noise = np.random.default_rng(self.request.seed)

    def add(self, token: int, logprob: float) -> None:
        """Append one token and decide whether the row is finished."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if token in self.request.ends or self.request.stop(self.tokens):
            self.finish_reason = "stop"
        elif len(self.tokens) >= self.request.max_tokens:
            self.finish_reason = "length"


class Engine(Protocol):
    """Runs a batch of requests to their ends; called from one thread only."""

    context: int

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Return one completion per request, in order."""
        ...

    def make_room(self) -> None:
        """Drop what takes memory that an update of the weights may need; called before one."""
        ...

    def renew(self) -> None:
        """Drop what was computed with the weights as they were; called after they changed."""
        ...

    def forget(self) -> None:
        """Drop what is only kept to answer faster; called when no request comes any more."""
        ...
