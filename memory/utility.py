"""Utility of a record: Laplace's estimate over evidence whose weight halves with the tasks done since.

    w = 2^(-age / half_life)    s = sum of w * helpful    h = sum of w * harmful    utility = (s + 1) / (s + h + 2)

which is EvolveR's score (arXiv 2510.16079) and the mean of Beta(s + 1, h + 1); the bounds are one-sided quantiles of
that distribution. Without decay (half_life None) the utility is that of the raw counters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from memory.base import Frozen
from memory.evidence import Evidence
from memory.knowledge import Record

CONFIDENCE = 0.95
"""Of each bound, one-sided."""
HORIZON = 10
"""Half-lives after which a mark weighs less than a thousandth and is left out."""


class Measured(Frozen):
    """Marginal utility in points of success, from runs with and without a record: the only causal figure."""

    mean: float
    lower: float
    upper: float


class Utility(Frozen):
    """Decayed counts of a record, and what follows from them."""

    helpful: float = 0.0
    harmful: float = 0.0

    @property
    def weight(self) -> float:
        """How much evidence there is, in marks of today."""
        return self.helpful + self.harmful

    @property
    def mean(self) -> float:
        """The utility, in (0, 1): 0.5 = nothing is known."""
        return (self.helpful + 1) / (self.weight + 2)

    @property
    def lower(self) -> float:
        """Bound above which the true utility lies with 95 % confidence."""
        return _quantile(self.helpful, self.harmful, 1 - CONFIDENCE)

    @property
    def upper(self) -> float:
        """Bound below which the true utility lies with 95 % confidence."""
        return _quantile(self.helpful, self.harmful, CONFIDENCE)


def utility(evidence: Evidence, half_life: float | None) -> Utility:
    """Return the utility that follows from marks; `half_life` in tasks, None = nothing fades."""

    def weight(age: int) -> float:
        return 1.0 if half_life is None else 2.0 ** (-age / half_life)

    return Utility(
        helpful=sum(weight(mark.age) * mark.counts.helpful for mark in evidence.marks),
        harmful=sum(weight(mark.age) * mark.counts.harmful for mark in evidence.marks),
    )


@dataclass(frozen=True)
class Case:
    """A record with what is known of its worth."""

    record: Record[Any]
    evidence: Evidence
    utility: Utility
    measured: Measured | None = None
    """What a gate measured, where one did."""


@lru_cache(maxsize=4096)
def _quantile(helpful: float, harmful: float, share: float) -> float:
    from scipy.special import betaincinv

    return float(betaincinv(helpful + 1, harmful + 1, share))
