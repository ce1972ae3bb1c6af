"""Figures of a set of episodes. Missing counts as failure everywhere: a rate is over the tasks that were asked for.

TGC (task goal completion) is the share of tasks solved; SGC (scenario goal completion) the share of scenarios whose
tasks were all solved, as AppWorld reports them. Intervals are over tasks and treat them as independent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist
from typing import Literal

from pydantic import Field

from memory.records import Frozen, StopReason, Task, Trajectory, Usage


class Interval(Frozen):
    """A 95 % confidence interval of a rate, both ends in [0, 1]."""

    low: float
    high: float


class Metrics(Frozen):
    """What a set of episodes amounts to. Rates in [0, 1], means per episode that was run."""

    tasks: int
    graded: int
    solved: int
    scenarios: int
    tgc: float
    sgc: float
    coverage: float
    """Graded tasks over all tasks."""
    interval: Interval
    """Wilson interval of `tgc`."""
    reward: float | None = None
    """Mean reward over the tasks, missing ones as 0; None in journals that were written before it was kept."""
    stops: dict[StopReason, int] = Field(default_factory=dict)
    """Why the episodes ended -> how many."""
    shortened: int = 0
    """Observations that the agent read cut short, and earlier ones that were left out of a long conversation."""
    steps: float
    steps_per_solved: float | None
    tokens: float
    tokens_per_solved: float | None
    seconds: float
    """Mean wall time of an episode."""
    injected: float
    """Mean number of records shown."""
    usage: Usage


def interval(successes: int, total: int, method: Literal["wilson", "exact"] = "wilson") -> Interval:
    """Return the two-sided 95 % interval of a rate: Wilson's score (1927), or Clopper and Pearson's exact one (1934).

    Without trials it is [0, 1].
    """
    if not total:
        return Interval(low=0.0, high=1.0)
    if method == "exact":
        from scipy.special import betaincinv

        failures = total - successes
        low = float(betaincinv(successes, failures + 1, 0.025)) if successes else 0.0
        high = float(betaincinv(successes + 1, failures, 0.975)) if failures else 1.0
        return Interval(low=low, high=high)
    z = NormalDist().inv_cdf(0.975)
    rate, shrink = successes / total, 1 + z * z / total
    center = (rate + z * z / (2 * total)) / shrink
    half = z * sqrt(rate * (1 - rate) / total + (z / (2 * total)) ** 2) / shrink
    return Interval(low=max(center - half, 0.0), high=min(center + half, 1.0))


def passed(tasks: Sequence[Task], trajectories: Sequence[Trajectory]) -> dict[str, bool | None]:
    """Return task id -> success, None = missing (never run, or not graded)."""
    outcomes = {t.task.id: t.outcome for t in trajectories}
    return {task.id: outcome.success if (outcome := outcomes.get(task.id)) else None for task in tasks}


def summarize(tasks: Sequence[Task], trajectories: Sequence[Trajectory]) -> Metrics:
    """Return the figures of one arm: at most one trajectory per task."""
    marks = passed(tasks, trajectories)
    scenarios: dict[str, list[bool]] = {}
    for task in tasks:
        scenarios.setdefault(task.scenario or task.id, []).append(marks[task.id] is True)
    solved = sum(mark is True for mark in marks.values())
    whole = sum(all(group) for group in scenarios.values())
    usage = sum((t.usage for t in trajectories), Usage())
    steps = sum(len(t.steps) for t in trajectories)
    tokens = usage.prompt_tokens + usage.completion_tokens
    graded = sum(mark is not None for mark in marks.values())
    return Metrics(
        tasks=len(tasks),
        graded=graded,
        solved=solved,
        scenarios=len(scenarios),
        tgc=_ratio(solved, len(tasks)),
        sgc=_ratio(whole, len(scenarios)),
        coverage=_ratio(graded, len(tasks)),
        interval=interval(solved, len(tasks)),
        reward=_ratio(sum(t.outcome.reward for t in trajectories if t.outcome), len(tasks)),
        stops=dict(Counter(t.stop for t in trajectories)),
        shortened=sum(t.forgotten + sum(step.omitted > 0 for step in t.steps) for t in trajectories),
        steps=_ratio(steps, len(trajectories)),
        steps_per_solved=steps / solved if solved else None,
        tokens=_ratio(tokens, len(trajectories)),
        tokens_per_solved=tokens / solved if solved else None,
        seconds=_ratio(sum(t.seconds for t in trajectories), len(trajectories)),
        injected=_ratio(sum(len(t.injected) for t in trajectories), len(trajectories)),
        usage=usage,
    )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
