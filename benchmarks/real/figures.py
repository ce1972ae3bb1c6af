"""Figures of lives: rates, and paired differences with their intervals, as rows of a claim."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.claim import Row, Target
from evolve.statistics.paired import interval, pair

Passed = dict[str, bool | None]
"""Task -> whether it passed; None where it was not graded."""
Scores = Mapping[str, float]
"""Task -> reward in [0, 1]."""
RESAMPLES = 10_000


def rate(passed: Mapping[str, bool | None]) -> float:
    """Return the % of tasks that passed; what was not graded failed."""
    return 100 * sum(map(bool, passed.values())) / len(passed)


def mean(scores: Scores) -> float:
    """Return the mean reward in %."""
    return 100 * sum(scores.values()) / len(scores)


def difference(text: str, base: Passed, candidate: Passed, target: Target | None = None, seed: int = 0) -> Row:
    """Return the paired difference of two arms, in points, with its 95 % interval (Tango score)."""
    found = pair(sorted(base), base, candidate)
    low, high = interval(len(found.gained), len(found.lost), found.n)
    return Row(text, 100 * found.delta, target, n=found.n, ci=(100 * low, 100 * high), seed=seed)


def above(text: str, base: Passed, candidate: Passed, bound: float, seed: int = 0) -> Row:
    """Return the lower end of the interval of a difference, which has to be above a bound."""
    ci = difference(text, base, candidate).ci
    assert ci is not None
    return Row(text, ci[0], more_than(bound), n=len(base), seed=seed)


def gain(text: str, base: Scores, candidate: Scores, seed: int = 0) -> Row:
    """Return the mean paired difference of two arms' rewards, in points, with a 95 % bootstrap interval over tasks.

    It has no target: the lower end gets a row of its own. Raises `KeyError` for a task that one arm lacks.
    """
    steps = 100 * np.array([candidate[task] - base[task] for task in sorted(base)])
    draws = np.random.default_rng(seed).integers(len(steps), size=(RESAMPLES, len(steps)))
    low, high = np.percentile(steps[draws].mean(axis=1), [2.5, 97.5])
    return Row(text, float(steps.mean()), n=len(steps), ci=(float(low), float(high)), seed=seed)


def more_than(bound: float) -> Target:
    """Return the target `measured > bound`."""
    return Target(f"> {bound:g}", lambda measured: measured > bound)
