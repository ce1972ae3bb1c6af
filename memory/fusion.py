"""Fusion of rankings into one answer: reciprocal rank fusion, diversity, token budget. Pure functions on numbers.

Nothing here knows records, text or where a ranking came from. Arrays have one entry for each candidate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from memory.protocols import Vector

Scores = NDArray[np.float64]

RRF_CONSTANT = 60
"""Cormack, Clarke and Buettcher (SIGIR 2009): damps the lead of the very first ranks."""


def ranks(scores: Scores) -> Scores:
    """Return the rank of each candidate, 1 = highest score; equal scores share the better rank, NaN stays NaN."""
    present = ~np.isnan(scores)
    placed = np.full(len(scores), np.nan)
    best_first = np.sort(-scores[present])
    placed[present] = np.searchsorted(best_first, -scores[present], side="left") + 1.0
    return placed


def reciprocal_ranks(sides: Iterable[tuple[Scores, float]]) -> Scores:
    """Fuse several scorings: `sum over sides of weight / (60 + rank)`; where a side has NaN it adds nothing.

    `sides` are (scores, weight) pairs. Only order counts, so scores of different scale need no calibration.
    """
    placed = [(ranks(scores), weight) for scores, weight in sides]
    return np.sum([np.where(np.isnan(at), 0.0, weight / (RRF_CONSTANT + at)) for at, weight in placed], axis=0)


def diversify(relevance: Scores, vectors: Vector, *, k: int, trade: float) -> list[int]:
    """Return up to `k` positions by maximal marginal relevance (Carbonell and Goldstein, SIGIR 1998).

    Each step takes `argmax trade * relevance - (1 - trade) * max cosine to what was taken`, with relevance scaled to
    [0, 1] over the candidates; ties go to the earlier position. `relevance` is `(n,)`, `vectors` `(n, dim)` of unit
    length, `trade` in [0, 1].
    """
    n = len(relevance)
    if n == 0 or k <= 0:
        return []
    if trade == 1.0:  # the matrix of cosines would not be read
        return [int(at) for at in np.argsort(-relevance, kind="stable")[:k]]
    low, high = float(relevance.min()), float(relevance.max())
    gain = trade * ((relevance - low) / (high - low) if high > low else np.ones(n))
    cost = (1.0 - trade) * np.round((vectors @ vectors.T).astype(np.float64), 6)
    nearest = np.zeros(n)
    taken: list[int] = []
    for _ in range(min(k, n)):
        pick = int(np.argmax(gain - nearest))
        taken.append(pick)
        gain[pick] = -np.inf
        np.maximum(nearest, cost[pick], out=nearest)
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
