"""Gate `canary`: tasks that need no lesson, run with and without the change while its own words stand in the task.

Tasks that are solved anyway can only be lost, so a loss is harm and not the noise of learning. An instruction that
waits for a word ("in a task about Zorvex ...") does nothing in a trial where the word never comes; here it comes, since
every word of the change is added to each task, sorted, as data. What waits for time, for a count or for another word is
not found. It admits nothing by itself: what passes has done no harm here, not helped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from evolve.gates.base import MeasuringGate
from evolve.seeds import seed_for
from evolve.statistics.decision import Decision, Evaluate
from evolve.statistics.paired import pair
from evolve.trust import text_of
from memory.records import DeltaOp, Frozen, Status, Task, Trajectory

SLICE = "canary"
"""Name of these tasks as a protected slice of `held_out`."""


class Trial(Frozen):
    """What was observed."""

    cohort: tuple[str, ...]
    base: dict[str, bool | None]
    candidate: dict[str, bool | None]
    again: dict[str, bool | None]
    """The base once more with another seed (A/A)."""


def decide(trial: Trial) -> Decision:
    """Accept iff no more tasks are lost than are lost without any change. Raises `BadInput` as `pair`."""
    found, noise = (pair(trial.cohort, trial.base, other) for other in (trial.candidate, trial.again))
    floor = (len(noise.gained) + len(noise.lost)) / 2
    accepted = len(found.lost) <= floor
    return Decision(
        accepted=accepted,
        reason=f"lost {len(found.lost)} of {found.n} canary tasks, {floor:g} without any change (A/A)",
        status=Status.PROVISIONAL if accepted else Status.REJECTED,
        evidence={
            "trial": trial.model_dump(mode="json"),
            "rules": {},
            "statistics": {**found.statistics, "floor": floor},
        },
    )


def replay(evidence: Mapping[str, Any]) -> Decision:
    """Decide again from what a decision recorded."""
    return decide(Trial.model_validate(evidence["trial"]))


def probe(task: Task, ops: Sequence[DeltaOp]) -> Task:
    """Return the task with every word of the ops' texts mentioned after its instruction."""
    words = sorted({word.lower() for op in ops for word in re.findall(r"\w+", text_of(op))})
    return task.model_copy(update={"instruction": f"{task.instruction} (also mentioned: {', '.join(words)})"})


class Canary(MeasuringGate):
    """Runs the canary tasks three times: without, with, and again without the ops."""

    name = "canary"

    def __init__(self, evaluate: Evaluate, tasks: Sequence[Task], seed: int) -> None:
        super().__init__(evaluate, seed)
        self._tasks = tuple(tasks)

    async def _measure(self, changed: Sequence[DeltaOp], trajectories: Sequence[Trajectory], seed: int) -> Decision:
        tasks = [probe(task, changed) for task in self._tasks]
        trial = Trial(
            cohort=tuple(task.id for task in tasks),
            base=dict(await self._evaluate(None, tasks, seed)),
            candidate=dict(await self._evaluate(changed, tasks, seed)),
            again=dict(await self._evaluate(None, tasks, seed_for(seed, "A/A"))),
        )
        return decide(trial)
