"""Two arms on the same tasks: flips, exact McNemar tests and an interval for the difference.

The cohort is what the caller enrolled, whole. A missing mark counts as failure in every rate. A missing mark of the
base is never evidence for the candidate: a task counts as gained only if the base was graded and failed, else an
outage while the base ran would let anything pass. A decision is computed from + - * / and the square root alone,
so that it can be repeated to the last bit on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import comb, exp, lgamma, log, sqrt
from typing import Any

from memory.errors import BadInput
from memory.records import Frozen

Passed = Mapping[str, bool | None]
"""Task id -> pass, fail, or None = missing; an id that is not there is missing too."""
_Z = 1.959963984540054
"""97.5 % point of the normal distribution."""


class Paired(Frozen):
    """How a candidate did beside a base, over a whole cohort."""

    n: int
    gained: tuple[str, ...]
    """Fail to pass (F2P), in the cohort's order."""
    lost: tuple[str, ...]
    """Pass to fail (P2F): passed in the base, failed or missing in the candidate."""
    unproven: tuple[str, ...]
    """Passed in the candidate, missing in the base: counted neither way."""
    base_coverage: float
    """Share of the cohort that was graded in the base."""
    candidate_coverage: float

    @property
    def delta(self) -> float:
        """Return the paired difference of the rates, in [-1, 1]."""
        return (len(self.gained) - len(self.lost)) / self.n

    @property
    def statistics(self) -> dict[str, Any]:
        """Return counts, difference, interval and both p-values, as plain JSON."""
        won, lost = len(self.gained), len(self.lost)
        return {
            **self.model_dump(mode="json"),
            "delta": self.delta,
            "interval": list(interval(won, lost, self.n)),
            "interval_method": "Tango score, 95 %",
            "p_better": p_better(won, lost),
            "p_different": p_different(won, lost),
        }


def pair(cohort: Sequence[str], base: Passed, candidate: Passed) -> Paired:
    """Compare two arms over every task of `cohort`. Raises `BadInput` for an empty cohort or a repeated task."""
    if not cohort or len(set(cohort)) < len(cohort):
        raise BadInput(f"got a cohort of {len(cohort)} tasks, {len(set(cohort))} different; name each task once")
    steps = {task: step(base.get(task), candidate.get(task)) for task in cohort}
    return Paired(
        n=len(cohort),
        gained=tuple(task for task in cohort if steps[task] > 0),
        lost=tuple(task for task in cohort if steps[task] < 0),
        unproven=tuple(task for task in cohort if base.get(task) is None and candidate.get(task)),
        base_coverage=sum(base.get(task) is not None for task in cohort) / len(cohort),
        candidate_coverage=sum(candidate.get(task) is not None for task in cohort) / len(cohort),
    )


def step(base: bool | None, candidate: bool | None) -> int:
    """Return +1 for a task gained, -1 for one lost, 0 for no change and for a base that is missing."""
    if base is None:
        return 0
    return int(candidate is True) - int(base)


def p_better(gained: int, lost: int) -> float:
    """Return the one-sided exact McNemar p-value of "the candidate is better": P(Bin(gained + lost, 1/2) >= gained).

    McNemar (1947), exact form. It is 1.0 without flips, and valid at any number of tasks and any level of noise.
    """
    flipped = gained + lost
    return sum(comb(flipped, won) for won in range(gained, flipped + 1)) / 2**flipped


def p_different(gained: int, lost: int) -> float:
    """Return the two-sided exact McNemar p-value: twice the smaller tail, at most 1."""
    return min(1.0, 2 * p_better(max(gained, lost), min(gained, lost)))


def minimum_wins(flipped: int, level: float = 0.05) -> int | None:
    """Return how many of `flipped` tasks must be gained for `p_better <= level`; None where not even all would do."""
    tail, won = 0, flipped + 1
    while won and (tail + comb(flipped, won - 1)) / 2**flipped <= level:
        won -= 1
        tail += comb(flipped, won)
    return won if won <= flipped else None


def power(n: int, level: float, loss: float, gain: float = 0.0) -> float:
    """Return the chance that `p_better(lost, gained) <= level` over `n` tasks of which a share `gain` is gained and
    `gain + loss` lost: that a drop of the rate by `loss` is seen. Exact, for independent tasks.

    Raises `BadInput` for shares that no tasks can have.
    """
    flips = loss + 2 * gain
    if not (n >= 1 and loss > 0 and gain >= 0 and flips <= 1):
        raise BadInput(f"got {n} tasks, loss {loss}, gain {gain}; expected tasks, a loss, and loss + 2 gain <= 1")
    seen = 0.0
    for flipped in range(1, n + 1):
        happens = _binomial(n, flipped, flips)
        least = minimum_wins(flipped, level) if happens > 1e-9 else None
        if least is not None:
            share = (loss + gain) / flips
            seen += happens * sum(_binomial(flipped, lost, share) for lost in range(least, flipped + 1))
    return seen


def _binomial(n: int, k: int, p: float) -> float:
    """Return P(Bin(n, p) = k), for any n."""
    if p in (0, 1):
        return float(k == n * p)
    return exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(p) + (n - k) * log(1 - p))


def interval(gained: float, lost: float, n: float, z: float = _Z) -> tuple[float, float]:
    """Return the interval of the difference of two paired rates, `(gained - lost) / n`, in [-1, 1]; 95 % by default.

    `z` is the point of the normal distribution that leaves half of the error above it. Counts may be means
    over repeats.

    Score interval of Tango (1998), "Equivalence test and confidence interval for the difference in proportions for the
    paired-sample design", Statistics in Medicine 17: all differences that its score test does not refuse. Approximate:
    its coverage is near 95 % on average also for small n, not guaranteed at each point.
    """

    def score(delta: float) -> float:
        """Falls with delta. The rate of losses is the most likely one given delta (Tango, equation 11)."""
        linear = (2 * n - gained + lost) * delta - gained - lost
        constant = -lost * delta * (1 - delta)
        losses = (sqrt(max(linear * linear - 8 * n * constant, 0.0)) - linear) / (4 * n)
        variance = n * (2 * losses + delta * (1 - delta))
        distance = gained - lost - n * delta
        return distance / sqrt(variance) if variance > 0 else distance * float("inf") if distance else 0.0

    return _falls_below(score, z), _falls_below(score, -z)


def _falls_below(score: Callable[[float], float], level: float) -> float:
    """Return where in [-1, 1] a falling function reaches `level`, by bisection."""
    low, high = -1.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if score(middle) > level else (low, middle)
    return (low + high) / 2
