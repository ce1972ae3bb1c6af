"""How rankings become one answer: reciprocal rank fusion, diversity, token budget. Pure functions on numbers.

Nothing here knows records, text or where a ranking came from.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from memory.protocols import Vector

K = TypeVar("K", bound=Hashable)

RRF_CONSTANT = 60
"""Cormack, Clarke and Buettcher (SIGIR 2009): damps the lead of the very first ranks."""


def ranks(scores: Mapping[K, float]) -> dict[K, int]:
    """Return the rank of each key, 1 = highest score; equal scores share the better rank."""
    best_first = sorted(scores.values(), reverse=True)
    first: dict[float, int] = {}
    for position, score in enumerate(best_first, start=1):
        first.setdefault(score, position)
    return {key: first[score] for key, score in scores.items()}


def reciprocal_ranks(sides: Iterable[tuple[Mapping[K, float], float]]) -> dict[K, float]:
    """Fuse several scorings: `sum over sides of weight / (60 + rank)`; a side that misses a key adds nothing.

    `sides` are (scores, weight) pairs. Only order counts, so scores of different scale need no calibration.
    """
    fused: dict[K, float] = {}
    for scores, weight in sides:
        for key, rank in ranks(scores).items():
            fused[key] = fused.get(key, 0.0) + weight / (RRF_CONSTANT + rank)
    return fused


def diversify(relevance: NDArray[np.float64], vectors: Vector, *, k: int, trade: float) -> list[int]:
    """Return up to `k` positions by maximal marginal relevance (Carbonell and Goldstein, SIGIR 1998).

    Each step takes `argmax trade * relevance - (1 - trade) * max cosine to what was taken`, with relevance scaled to
    [0, 1] over the candidates; ties go to the earlier position. `relevance` is `(n,)`, `vectors` `(n, dim)` of unit
    length, `trade` in [0, 1].
    """
    n = len(relevance)
    if n == 0 or k <= 0:
        return []
    low, high = float(relevance.min()), float(relevance.max())
    scaled = (relevance - low) / (high - low) if high > low else np.ones(n)
    nearest = np.zeros(n)
    free = np.ones(n, dtype=bool)
    taken: list[int] = []
    for _ in range(min(k, n)):
        value = np.where(free, trade * scaled - (1.0 - trade) * nearest, -np.inf)
        pick = int(np.argmax(np.round(value, 9)))
        taken.append(pick)
        free[pick] = False
        nearest = np.maximum(nearest, vectors @ vectors[pick])
    return taken


def within_budget(tokens: Sequence[int], budget: int | None) -> list[int]:
    """Return the positions kept, in order, so that their tokens never exceed `budget` (None = no limit).

    What does not fit is skipped and smaller items behind it may still enter.
    """
    kept: list[int] = []
    left = budget
    for position, cost in enumerate(tokens):
        if left is None:
            kept.append(position)
        elif cost <= left:
            kept.append(position)
            left -= cost
    return kept
