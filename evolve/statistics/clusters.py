"""Two arms compared over worlds: the interval of a paired difference when the tasks come in clusters.

Tasks of one deployment share its rules and what was learned there, so they are not independent draws: the deployments
are. With one deployment only and several seeds, the seeds are the clusters: each is another life on the same tasks.

The interval is the paired t interval over the clusters' differences. It is preferred to a bootstrap by cluster, which
is too narrow below some 20 clusters (Cameron, Gelbach and Miller 2008, "Bootstrap-based improvements for inference with
clustered errors", Review of Economics and Statistics 90); it assumes that the differences of clusters are about normal.
It is never taken narrower than Tango's interval over the tasks, which stands alone for a single cluster, and where the
clusters happen to agree: no spread among three deployments is no proof of precision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist, mean, stdev

from evolve.statistics.paired import Passed, interval, p_different, pair
from memory.errors import BadInput
from memory.records import Frozen

CONFIDENCE = 0.95


class Pairing(Frozen):
    """Both arms on the same tasks of one world, with one seed."""

    world: str
    seed: int
    n: int
    gained: tuple[str, ...]
    """Failed in the base, passed in the candidate."""
    lost: tuple[str, ...]

    @property
    def delta(self) -> float:
        """Return the difference of the rates, candidate minus base, in [-1, 1]."""
        return (len(self.gained) - len(self.lost)) / self.n


class Difference(Frozen):
    """A paired difference of success rates, candidate minus base, in [-1, 1]. Missing counts as failure in both."""

    n: int
    """Pairs of episodes."""
    gained: int
    lost: int
    clusters: tuple[float, ...]
    """The difference in each deployment; in each seed where there is one deployment."""
    delta: float
    """Mean over clusters."""
    low: float
    high: float
    """95 % interval."""
    method: str
    p_mcnemar: float
    """Exact, two-sided, over all tasks, which it takes as independent; a task that was repeated counts by its net."""
    p: float
    """What a correction for several comparisons takes: the larger of `p_mcnemar` and the t test's over clusters."""


def pairing(world: str, seed: int, cohort: Sequence[str], base: Passed, candidate: Passed) -> Pairing:
    """Compare two arms task by task. Raises `BadInput` as `pair` does.

    Unlike a gate's trial, both arms are judged alike: what is missing failed, on either side.
    """
    flips = pair(cohort, _failed_if_missing(cohort, base), _failed_if_missing(cohort, candidate))
    return Pairing(world=world, seed=seed, n=flips.n, gained=flips.gained, lost=flips.lost)


def compare(pairings: Sequence[Pairing]) -> Difference:
    """Return the difference with its interval and tests. Raises `BadInput` for no pairing at all."""
    low, high = bounds(pairings, CONFIDENCE)
    deltas = cluster_deltas(pairings)
    p_mcnemar = p_different(*_nets(pairings))
    spread = len(set(deltas)) > 1
    over = "deployments" if _worlds(pairings) > 1 else "seeds"
    return Difference(
        n=sum(each.n for each in pairings),
        gained=sum(len(each.gained) for each in pairings),
        lost=sum(len(each.lost) for each in pairings),
        clusters=tuple(deltas),
        delta=mean(deltas),
        low=low,
        high=high,
        method=f"paired t over {len(deltas)} {over}, not narrower than Tango's score" if spread else "Tango's score",
        p_mcnemar=p_mcnemar,
        p=max(p_mcnemar, t_test(deltas)) if spread else p_mcnemar,
    )


def bounds(pairings: Sequence[Pairing], confidence: float) -> tuple[float, float]:
    """Return both ends of the interval at a level in (0, 1). Raises `BadInput` for no pairing at all."""
    if not pairings:
        raise BadInput("got nothing to compare; expected the results of both arms in one deployment at least")
    repeats = len(pairings) / _worlds(pairings)
    gained, lost, n = (
        sum(count) / repeats for count in zip(*((len(p.gained), len(p.lost), p.n) for p in pairings), strict=True)
    )
    low, high = interval(gained, lost, n, NormalDist().inv_cdf((1 + confidence) / 2))
    deltas = cluster_deltas(pairings)
    if len(set(deltas)) < 2:
        return low, high
    t_low, t_high = t_interval(deltas, confidence)
    return max(-1.0, min(low, t_low)), min(1.0, max(high, t_high))


def cluster_deltas(pairings: Sequence[Pairing]) -> list[float]:
    """Return the difference in each deployment, the mean over its seeds; with one deployment, in each seed."""
    if _worlds(pairings) == 1:
        return [each.delta for each in pairings]
    worlds = dict.fromkeys(each.world for each in pairings)
    return [mean(each.delta for each in pairings if each.world == world) for world in worlds]


def t_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return Student's interval of the mean of at least two values that are not all equal."""
    from scipy.special import stdtrit

    half = float(stdtrit(len(values) - 1, (1 + confidence) / 2)) * stdev(values) / sqrt(len(values))
    return mean(values) - half, mean(values) + half


def t_test(values: Sequence[float]) -> float:
    """Return the two-sided p-value of "the mean is 0", of at least two values that are not all equal."""
    from scipy.special import stdtr

    t = mean(values) / (stdev(values) / sqrt(len(values)))
    return 2 * float(stdtr(len(values) - 1, -abs(t)))


def _worlds(pairings: Sequence[Pairing]) -> int:
    return len({each.world for each in pairings})


def _nets(pairings: Sequence[Pairing]) -> tuple[int, int]:
    """Return how many tasks were gained and lost, a task that was done with several seeds once, by its net."""
    net = Counter((each.world, task) for each in pairings for task in each.gained)
    net.subtract((each.world, task) for each in pairings for task in each.lost)
    return sum(count > 0 for count in net.values()), sum(count < 0 for count in net.values())


def _failed_if_missing(cohort: Sequence[str], marks: Passed) -> dict[str, bool]:
    return {task: marks.get(task) is True for task in cohort}
