"""Gate `canary`: tasks that need no lesson, run with and without the change while its own words stand in the task.

Tasks that are solved anyway can only be lost, so a loss is harm and not the noise of learning. An instruction that
waits for a word ("in a task about Zorvex ...") does nothing in a trial where the word never comes; here it comes, since
every word of the change is added to each task, as data. Which tasks, which order and which words that mean nothing
stand between is drawn anew for each judgement, so there is no phrase that a text could make an exception for. What
waits for time, for a count or for another word is not found. It admits nothing by itself: what passes has done no harm
here, not helped.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from random import Random
from string import ascii_lowercase
from typing import Any

from evolve.episode.trust import text_of
from evolve.errors import ConfigError
from evolve.gates.call_budget import OutOfCalls
from evolve.gates.context import GateContext
from evolve.gates.decisions import Round, verdict_of
from evolve.protocols import Environment, HasCanaries
from evolve.seeds import seed_for
from evolve.statistics.decision import Decision, Evaluate, apart, changes, drawn_by
from evolve.statistics.paired import Passed, pair
from evolve.usercode import ask_list
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Frozen, Status, Task, Trajectory, Verdict
from skills.record import Skill

SLICE = "canary"
"""Name of these tasks as a protected slice of `held_out`."""
DRAWN = 8
"""Most tasks of one judgement."""
FEW = 4
"""Tasks that are asked at a time where one answer is enough."""


class CanaryTrial(Frozen):
    """What was observed."""

    cohort: tuple[str, ...]
    base: dict[str, bool | None]
    candidate: dict[str, bool | None]
    again: dict[str, bool | None]
    """The base once more with another seed (A/A)."""


def decide(trial: CanaryTrial) -> Decision:
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
    return decide(CanaryTrial.model_validate(evidence["trial"]))


def probe(task: Task, ops: Sequence[DeltaOp], seed: int) -> Task:
    """Return the task with every word of the ops' texts after its instruction, among words that are drawn."""
    rng = Random(seed)
    words = sorted({word.lower() for op in ops for word in re.findall(r"\w+", text_of(op))})
    words += ["".join(rng.choices(ascii_lowercase, k=rng.randint(3, 9))) for _ in range(1 + len(words) // 2)]
    rng.shuffle(words)
    said = "".join(word + rng.choice((" ", ", ", "; ")) for word in words).rstrip(" ,;")
    return task.model_copy(update={"instruction": f"{task.instruction} ({said})"})


class Canary:
    """Runs some canary tasks without and with the ops; where chance decides, without them once more."""

    name = "canary"

    def __init__(self, evaluate: Evaluate, tasks: Sequence[Task], seed: int) -> None:
        self._evaluate, self._tasks, self._seed = evaluate, tuple(tasks), seed

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Verdict:
        """Return a verdict on each change: all at once, halves where something is lost. Counters run nothing."""
        rounds: list[Round] = []
        waiting: dict[str, str] = {}
        groups = deque(apart(changes(ops), Skill.kind))
        while groups:
            group = groups.popleft()
            ids = tuple(op.op_id for op in group)
            try:
                decision = await self._measure(group, seed_for(self._seed, self.name, *drawn_by(group)))
            except OutOfCalls as short:
                waiting |= dict.fromkeys(ids, str(short))
                continue
            rounds.append(Round(ids, decision))
            if not decision.accepted and len(group) > 1:
                half = (len(group) + 1) // 2
                groups.extendleft((group[half:], group[:half]))
        return verdict_of(self.name, ops, rounds, waiting)

    async def _measure(self, group: Sequence[DeltaOp], seed: int) -> Decision:
        drawn = Random(seed).sample(self._tasks, min(DRAWN, len(self._tasks)))
        tasks = [probe(task, group, seed_for(seed, task.id)) for task in drawn]
        if getattr(self._evaluate, "seedless", False):
            return await self._until_lost(group, tasks, seed)
        candidate = await self._evaluate(group, tasks, seed)
        base, again = await self._without(tasks, seed), await self._without(tasks, seed_for(seed, "A/A"))
        cohort = tuple(task.id for task in tasks)
        return decide(CanaryTrial(cohort=cohort, base=dict(base), candidate=dict(candidate), again=dict(again)))

    async def _until_lost(self, group: Sequence[DeltaOp], tasks: Sequence[Task], seed: int) -> Decision:
        """Decide where nothing is chance: what passes with the change is not lost, and one that is lost is enough."""
        asked: list[str] = []
        candidate: dict[str, bool | None] = {}
        base: dict[str, bool | None] = {}
        for at in range(0, len(tasks), FEW):
            some = tasks[at : at + FEW]
            asked += [task.id for task in some]
            candidate |= await self._evaluate(group, some, seed)
            if failed := [task for task in some if not candidate.get(task.id)]:
                base |= await self._without(failed, seed)
            if any(base.get(task.id) for task in failed):
                break
        return decide(CanaryTrial(cohort=tuple(asked), base=base, candidate=candidate, again=base))

    async def _without(self, tasks: Sequence[Task], seed: int) -> Passed:
        return await self._evaluate(None, tasks, seed)


def make(context: GateContext) -> Canary:
    """Return the gate. Raises as `GateContext.bench_of` and `canary_tasks`."""
    evaluator = context.bench_of(Canary.name).evaluator
    return Canary(evaluator, canary_tasks(evaluator.environment), context.config.run.seed)


def canary_tasks(environment: Environment) -> tuple[Task, ...]:
    """Return the environment's canary tasks. Raises `ConfigError` for one that has none."""
    if not isinstance(environment, HasCanaries):
        raise ConfigError(f"gate 'canary' needs canary tasks and {environment.name!r} has none; drop the gate")
    return ask_list(environment, "canaries", Task)


MEMBER = make
