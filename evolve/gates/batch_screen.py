"""Gate `batch_screen`: the batch's own tasks, run again with and without the change. Cheap, and only a first screen.

The tasks are those that the change was written from, so passing says little about others: that is for `held_out`. Both
arms are run afresh, with a seed that no earlier run had. Comparing with the runs that the change was written from would
credit it with their bad luck: failures are what lessons are written from, and luck does not repeat (arXiv 2606.08755
has this flaw). The rule is that of Mistake Notebook Learning (arXiv 2512.11485), with a floor for each cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field

from evolve.gates.base import MeasuringGate
from evolve.statistics.decision import Decision, Evaluate
from evolve.statistics.paired import pair
from memory.records import DeltaOp, Frozen, Status, Task, Trajectory


class Trial(Frozen):
    """What was observed."""

    cohort: tuple[str, ...]
    base: dict[str, bool | None]
    candidate: dict[str, bool | None]
    clusters: dict[str, str] = Field(default_factory=dict)
    """Task id -> cluster; a task without one belongs to the cluster ''."""


def decide(trial: Trial) -> Decision:
    """Accept iff more tasks are gained than lost, and in no cluster fewer.

    Alone it lets about a third of useless changes through at 16 tasks when 5 % flip either way, and never more than
    half. Raises `BadInput` for an empty cohort or a repeated task.
    """
    found = pair(trial.cohort, trial.base, trial.candidate)
    balance: dict[str, int] = {trial.clusters.get(task, ""): 0 for task in trial.cohort}
    for tasks, weight in ((found.gained, 1), (found.lost, -1)):
        for task in tasks:
            balance[trial.clusters.get(task, "")] += weight
    worse = [f"{name!r} {change:+d}" for name, change in balance.items() if change < 0]
    counts = f"gained {len(found.gained)} and lost {len(found.lost)} of {found.n} tasks of the batch"
    accepted = len(found.gained) > len(found.lost) and not worse
    return Decision(
        accepted=accepted,
        reason=f"{counts}; worse in {', '.join(worse)}" if worse else counts,
        status=Status.PROVISIONAL if accepted else Status.REJECTED,
        evidence={
            "trial": trial.model_dump(mode="json"),
            "rules": {},
            "statistics": {**found.statistics, "clusters": balance},
        },
    )


def replay(evidence: Mapping[str, Any]) -> Decision:
    """Decide again from what a decision recorded."""
    return decide(Trial.model_validate(evidence["trial"]))


def family(task: Task) -> str:
    """Return the family that a task names in its public facts, else an empty text: one cluster for all."""
    return str(task.metadata.get("family", ""))


class BatchScreen(MeasuringGate):
    """Runs the batch's tasks twice, all ops together against none of them."""

    name = "batch_screen"

    def __init__(self, evaluate: Evaluate, seed: int, *, cluster_of: Callable[[Task], str] = family) -> None:
        super().__init__(evaluate, seed)
        self._cluster_of = cluster_of

    async def _measure(self, changed: Sequence[DeltaOp], trajectories: Sequence[Trajectory], seed: int) -> Decision:
        tasks = tuple({trajectory.task.id: trajectory.task for trajectory in trajectories}.values())
        trial = Trial(
            cohort=tuple(task.id for task in tasks),
            base=dict(await self._evaluate(None, tasks, seed)),
            candidate=dict(await self._evaluate(changed, tasks, seed)),
            clusters={task.id: self._cluster_of(task) for task in tasks},
        )
        return decide(trial)
