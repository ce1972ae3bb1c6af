"""Tests by betting, which may be looked at and stopped at any time.

A bettor starts with wealth 1 against "it does not help", with bets that are fair or worse while that is true. Ville's
inequality: the chance that the wealth *ever* reaches 1/alpha is at most alpha, however often somebody looks, and
whenever somebody stops. Ramdas, Gruenwald, Vovk and Shafer (2023), "Game-theoretic statistics and safe anytime-valid
inference" (arXiv 2210.01948). Wealth is a product of exact steps, so a test can be repeated to the last bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pydantic import Field

from memory.records import Frozen

EFFECTS = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Differences of the success rate bet on, side by side with equal stakes: nobody knows the effect beforehand."""
STAKES = (0.1, 0.25, 0.5, 0.9)
SOME = 0.3
"""Share of the kinds of tasks in which an item is expected to matter, where it does not matter in all alike."""
_RICH = 1e100
_BOLDEST = 0.9
"""Share of the wealth that one task may cost at most."""


class Exposure(Frozen):
    """One task for which an item under test would have been shown, and whether chance hid it."""

    task_id: str
    hidden: bool
    probability: float = Field(gt=0, lt=1)
    """Chance with which it was hidden, fixed before the task was done."""
    passed: bool | None
    """None = missing = failure, shown or hidden alike."""
    stratum: str = ""
    """Kind of task, known before it was done: success is compared with what is usual there."""


def wealth(exposures: Sequence[Exposure], *, harm: bool = False) -> list[float]:
    """Return the wealth after each exposure of the bet that showing the item helps (or harms), in order of time.

    With chance p of being hidden, pass y, and m the rate expected for this task from the tasks before it alone, a bet
    on a difference d multiplies the wealth by

        1 + p (1 - p) d / (m (1 - m)) * (y - m) * (shown / (1 - p) - hidden / p)

    the inverse-propensity-weighted difference, centred at m. Its expectation is at most 1 whenever showing the item
    does not raise the chance of success of the task at hand, whatever m is and however tasks differ; it is also the
    likelihood ratio of "m + p d if shown, m - (1 - p) d if hidden" to "m", so no bet on d grows faster when that is
    true (two-sample e-values: Turner, Ly and Gruenwald, arXiv 2106.02693). `EFFECTS` are averaged.

    Half of the wealth is bet on a difference that all kinds of tasks share. The other half is bet on one in some kinds
    (a rule about mails, where most tasks send none): each kind has wealth W of its own, and what they make together is
    the product of 1 - SOME + SOME W over the kinds. Of these factors each task moves one, so the product is fair too.
    """
    even = [1 / len(EFFECTS)] * len(EFFECTS)
    shared, some, kinds = even, 1.0, dict[str, list[float]]()
    seen: Counter[str] = Counter()
    passes: Counter[str] = Counter()
    found: list[float] = []
    for exposure in exposures:
        passed, stratum = exposure.passed is True, exposure.stratum
        overall = (passes.total() + 1) / (seen.total() + 2)
        expected = (passes[stratum] + 2 * overall) / (seen[stratum] + 2)
        factors = [_factor(exposure, expected, -effect if harm else effect) for effect in EFFECTS]
        before = kinds.get(stratum, even)
        after = kinds[stratum] = _moved(before, factors)
        some = min(some * _part(after) / _part(before), _RICH)
        shared = _moved(shared, factors)
        found.append((sum(shared) + some) / 2)
        seen[stratum] += 1
        passes[stratum] += passed
    return found


def _moved(stakes: Sequence[float], factors: Sequence[float]) -> list[float]:
    return [min(stake * factor, _RICH) for stake, factor in zip(stakes, factors, strict=True)]


def _part(stakes: Sequence[float]) -> float:
    """Return the factor of one kind of task in the product over all."""
    return 1 - SOME + SOME * sum(stakes)


def _factor(exposure: Exposure, expected: float, effect: float) -> float:
    """Return what one bet makes of a unit of wealth; the effect is cut to what the rate leaves room for."""
    p, passed = exposure.probability, exposure.passed is True
    up, down = (p, 1 - p) if effect > 0 else (1 - p, p)
    size = min(abs(effect), _BOLDEST * min((1 - expected) / up, expected / down))
    moved = (size if effect > 0 else -size) * (-(1 - p) if exposure.hidden else p)
    return 1 + (moved / expected if passed else -moved / (1 - expected))


def first_reached(wealths: Sequence[float], bound: float) -> int | None:
    """Return after how many steps the wealth first was at least `bound`; None if never."""
    return next((at for at, each in enumerate(wealths, 1) if each >= bound), None)


def mean_bound(values: Sequence[float], alpha: float) -> float:
    """Return a lower bound of the mean of independent values in [-1, 1], which exceeds it with chance alpha at most.

    The least mean that is not refused by betting `STAKES` on a larger one (Waudby-Smith and Ramdas 2024, "Estimating
    means of bounded random variables by betting", arXiv 2010.09686; constant bets, so that order does not matter).
    Exact for any number of values and any distribution: where all values are equal it stays below them.
    """

    def refused(mean: float) -> bool:
        """Tell whether bets against `mean`, on the scale [0, 1], reach 1/alpha; a larger mean is harder to refuse."""
        stakes = [1 / len(STAKES)] * len(STAKES)
        for value in values:
            excess = (value + 1) / (2 * mean) - 1
            stakes = [min(each * (1 + bet * excess), _RICH) for each, bet in zip(stakes, STAKES, strict=True)]
        return sum(stakes) >= 1 / alpha

    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if refused(middle) else (low, middle)
    return 2 * low - 1
