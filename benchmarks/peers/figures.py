"""Comparison of peers: who is better by how much, at what cost. Paired by task; seeds are averaged first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.claim import Row, Target, at_least, at_most
from benchmarks.peers.ring import Result
from evolve.statistics.paired import interval, p_different, pair
from memory.records import Frozen

Passed = Mapping[str, bool]


class Difference(Frozen):
    """A candidate beside a base on the same tasks."""

    points: float
    low: float
    """Lower end of the 95 % interval (Tango score), in points."""
    high: float
    p: float
    """Two-sided exact McNemar; over several seeds, of the mean flips, rounded."""
    n: int


def difference(base: Sequence[Passed], candidate: Sequence[Passed]) -> Difference:
    """Compare two arms, one entry a seed. Flips are averaged over seeds: a task counts once, however often asked."""
    pairs = [pair(sorted(one), one, other) for one, other in zip(base, candidate, strict=True)]
    gained = sum(len(each.gained) for each in pairs) / len(pairs)
    lost = sum(len(each.lost) for each in pairs) / len(pairs)
    n = pairs[0].n
    low, high = interval(gained, lost, n)
    return Difference(
        points=100 * (gained - lost) / n,
        low=100 * low,
        high=100 * high,
        p=p_different(round(gained), round(lost)),
        n=n,
    )


def rate(passed: Sequence[Passed]) -> float:
    """Return the % of tasks that passed, over all seeds."""
    marks = [mark for each in passed for mark in each.values()]
    return 100 * sum(marks) / len(marks)


def mean(results: Sequence[Result], what: str, phase: str = "adapt") -> float:
    """Return a figure of `Calls`, averaged over seeds; what failed was a call too."""
    counted = [getattr(result, phase) for result in results]
    if what == "calls":
        return sum(each.calls + each.failed for each in counted) / len(counted)
    return sum(getattr(each, what) for each in counted) / len(counted)


Arms = Mapping[str, Sequence[Result]]
"""Arm -> its result for each seed."""


def arm_rows(arms: Arms, n: int) -> list[Row]:
    """Return what each arm solved and used. Nothing here has a target."""
    rows: list[Row] = []
    for name, results in arms.items():
        commit = results[0].commit or None
        solved = rate([each.passed for each in results])
        rows.append(Row(f"{name}: held-out tasks solved, %", solved, n=n, commit=commit))
        if all(each.generous for each in results):
            text = f"{name}: the same, the last number of a reply without code taken, %"
            rows.append(Row(text, rate([each.generous for each in results]), n=n, commit=commit))
        for what, text, phase in (
            ("calls", "calls to adapt", "adapt"),
            ("prompt_tokens", "prompt tokens to adapt", "adapt"),
            ("completion_tokens", "tokens written to adapt", "adapt"),
            ("wall_s", "seconds to adapt", "adapt"),
            ("calls", "calls to answer", "answer"),
            ("prompt_tokens", "prompt tokens to answer", "answer"),
        ):
            rows.append(Row(f"{name}: {text}", mean(results, what, phase), commit=commit))
        rows.append(Row(f"{name}: kept", sum(each.learned for each in results) / len(results), commit=commit))
        if errors := sum(each.errors for each in results):
            rows.append(Row(f"{name}: held-out tasks where it raised an error", errors / len(results), n=n))
    return rows


def compared(text: str, base: Sequence[Passed], candidate: Sequence[Passed], target: Target | None = None) -> list[Row]:
    """Return a difference with its interval, the lower end (which a target is about), and its p-value."""
    found = difference(base, candidate)
    return [
        Row(f"{text}, points", found.points, n=found.n, ci=(found.low, found.high)),
        Row(f"{text}: lower end of the interval", found.low, target, n=found.n),
        Row(f"{text}: exact McNemar p", found.p, n=found.n),
    ]


def cost_row(arms: Arms, ours: str, peers: Sequence[str]) -> Row:
    """Return our calls above those of the cheapest peer that learns: one that kept something in every seed.

    Where none kept anything, above those of the cheapest of all, and without a target: to learn nothing takes no call.
    """
    if not peers:
        return Row(f"calls to adapt: {ours} minus the cheapest peer (none ran)", None, at_most(0))
    learning = [name for name in peers if all(result.learned for result in arms[name])]
    cheapest = min(learning or peers, key=lambda name: mean(arms[name], "calls"))
    which = "peer that learns" if learning else "peer, of which none learned anything"
    text = f"calls to adapt: {ours} minus the cheapest {which} ({cheapest})"
    return Row(text, mean(arms[ours], "calls") - mean(arms[cheapest], "calls"), at_most(0) if learning else None)


def time_rows(arms: Arms, ours: str, peers: Sequence[str], target: float = 3) -> list[Row]:
    """Return how often our time to adapt goes into each peer's. The target holds against peers that were sequential:
    never two requests at once at the server. The others stand beside. Not compared are times of two kinds of machine,
    and of an arm that shared the server with another."""
    rows: list[Row] = []
    own = mean(arms[ours], "wall_s")
    for name in peers:
        sequential = max(result.adapt.most_at_once for result in arms[name]) == 1
        kind = "sequential" if sequential else f"{mean(arms[name], 'most_at_once'):.0f} at once"
        both = (*arms[name], *arms[ours])
        same = len({result.machine for result in both}) == 1
        alone = not any(result.adapt.shared for result in both)
        ratio = mean(arms[name], "wall_s") / own if own and same and alone else None
        text = f"time to adapt: {name} ({kind}) over {ours}"
        text += " (measured on another machine)" * (not same) + " (the server was shared)" * (not alone)
        rows.append(Row(text, ratio, at_least(target) if sequential else None))
    return rows
