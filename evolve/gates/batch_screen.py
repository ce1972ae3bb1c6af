"""Gate `batch_screen`: the batch's own tasks, run again with and without the change. Cheap, and only a first screen.

The tasks are those that the change was written from, so passing says little about others: that is for `held_out`. Both
arms are run afresh, with a seed that no earlier run had. Comparing with the runs that the change was written from would
credit it with their bad luck: failures are what lessons are written from, and luck does not repeat (arXiv 2606.08755
has this flaw). Where no seed matters there is no luck either, and the first run is the base.

Every op is judged by the tasks it was written from, each run with the ops written from it and no other: a wrong lesson
of one task neither sinks nor poisons those of another. Where several ops help a task together, each is left out in
turn, unless the run was perfect: one without which the task comes as far was not what helped. The rule is
that of Mistake Notebook Learning (arXiv 2512.11485), with a floor for each cluster; where success is the same,
`evolve.statistics.partial_progress` decides, so that one of two missing rules is seen to help.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from evolve.gates.call_budget import OutOfCalls
from evolve.gates.context import GateContext
from evolve.gates.decisions import Round, verdict_of
from evolve.seeds import seed_for
from evolve.statistics.decision import Decision, Evaluate, apart, changes, drawn_by
from evolve.statistics.paired import Passed, pair
from evolve.statistics.partial_progress import Marks, compared, further, reaches
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Frozen, Op, Status, Task, Trajectory, Verdict
from skills.record import Skill


class ScreenTrial(Frozen):
    """What was observed."""

    cohort: tuple[str, ...]
    base: dict[str, bool | None]
    candidate: dict[str, bool | None]
    reach: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """Task id -> how far it came in the base and in the candidate; without it success alone counts."""
    clusters: dict[str, str] = Field(default_factory=dict)
    """Task id -> cluster; a task without one belongs to the cluster ''."""
    idle: tuple[str, ...] = ()
    """Tasks that came as far without this change, beside the others that were written from them: they do not speak for
    it."""
    missed: tuple[str, ...] = ()
    """Tasks that came further with it and, were other changes shown beside it, less far when it alone was left out."""


def decide(trial: ScreenTrial) -> Decision:
    """Accept iff more tasks come further than less far, in no cluster fewer, and no fewer tasks pass.

    Alone it lets about a third of useless changes through at 16 tasks when 5 % flip either way, and never more than
    half. Raises `BadInput` for an empty cohort or a repeated task.
    """
    found = pair(trial.cohort, trial.base, trial.candidate)
    further_in, behind = further(trial.cohort, trial.base, trial.candidate, trial.reach)
    ahead = tuple(task for task in further_in if task not in trial.idle)
    balance: dict[str, int] = {trial.clusters.get(task, ""): 0 for task in trial.cohort}
    for tasks, weight in ((ahead, 1), (behind, -1)):
        for task in tasks:
            balance[trial.clusters.get(task, "")] += weight
    worse = [f"{name!r} {change:+d}" for name, change in balance.items() if change < 0]
    counts = f"gained {len(found.gained)} and lost {len(found.lost)} of {found.n} tasks of the batch"
    if trial.reach:
        counts += f", further in {len(ahead)} and less far in {len(behind)}"
    if trial.idle:
        counts += f", without it as far in {len(trial.idle)}"
    accepted = len(ahead) > len(behind) and len(found.gained) >= len(found.lost) and not worse
    return Decision(
        accepted=accepted,
        reason=f"{counts}; worse in {', '.join(worse)}" if worse else counts,
        status=Status.PROVISIONAL if accepted else Status.REJECTED,
        evidence={
            "trial": trial.model_dump(mode="json"),
            "rules": {},
            "statistics": {
                **found.statistics,
                "ahead": len(ahead),
                "behind": len(behind),
                "clusters": balance,
            },
        },
    )


def replay(evidence: Mapping[str, Any]) -> Decision:
    """Decide again from what a decision recorded."""
    return decide(ScreenTrial.model_validate(evidence["trial"]))


def family(task: Task) -> str:
    """Return the family that a task names in its public facts, else an empty text: one cluster for all."""
    return str(task.metadata.get("family", ""))


class BatchScreen:
    """Runs each task of the batch with and without what was written from it."""

    name = "batch_screen"

    def __init__(self, evaluate: Evaluate, seed: int) -> None:
        self._evaluate, self._seed = evaluate, seed

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Verdict:
        """Return a verdict on each change, skills by themselves; those whose runs cannot be afforded wait, and skills
        while a text does.

        Counters run nothing. What was written from no task (an import that is restored) passes: nothing can run again.
        """
        tasks = {trajectory.task.id: trajectory.task for trajectory in trajectories}
        changed = [op for op in changes(ops) if _origin(op, tasks)]
        rounds: list[Round] = []
        waiting: dict[str, str] = {}
        for group in apart(changed, Skill.kind):
            origins = {op.op_id: _origin(op, tasks) for op in group}
            if waiting:
                waiting |= dict.fromkeys(origins, "waits: texts come first, and calls are short")
                continue
            seed = seed_for(self._seed, self.name, *drawn_by(group))
            try:
                rounds += self._rounds(tasks, origins, await self._arms(group, tasks, origins, seed))
            except OutOfCalls as short:
                waiting |= dict.fromkeys(origins, str(short))
        return verdict_of(self.name, ops, rounds, waiting)

    async def _arms(
        self, changed: Sequence[DeltaOp], tasks: Mapping[str, Task], origins: Mapping[str, tuple[str, ...]], seed: int
    ) -> _Arms:
        """Return both arms: in the candidate each task is shown the ops that were written from it."""
        asked = [task for task in tasks if any(task in origin for origin in origins.values())]
        base = _marks(await self._evaluate(None, [tasks[key] for key in asked], seed))
        groups: dict[tuple[str, ...], list[str]] = {}
        for key in asked:
            groups.setdefault(tuple(op for op, origin in origins.items() if key in origin), []).append(key)
        arms = _Arms(base, Marks({}), {}, {})
        for group, members in groups.items():
            shown = [op for op in changed if op.op_id in group]
            marks = _marks(await self._evaluate(shown, [tasks[key] for key in members], seed))
            arms.candidate.take(marks)
            for key in members:
                if compared(key, base, marks) <= 0 or (len(shown) > 1 and _perfect(key, marks)):
                    continue
                arms.idle[key] = await self._idle(shown, tasks[key], marks, seed)
                arms.missed[key] = tuple(op for op in group if op not in arms.idle[key])
        return arms

    async def _idle(self, shown: Sequence[DeltaOp], task: Task, marks: Marks, seed: int) -> tuple[str, ...]:
        """Return the ops without which the task comes as far: one after the other is left out, what is missed stays."""
        kept, idle = list(shown), list[str]()
        for op in reversed(shown):
            rest = [other for other in kept if other is not op]
            if rest and compared(task.id, marks, _marks(await self._evaluate(rest, [task], seed))) >= 0:
                kept = rest
                idle.append(op.op_id)
        return tuple(idle)

    def _rounds(self, tasks: Mapping[str, Task], origins: Mapping[str, tuple[str, ...]], arms: _Arms) -> list[Round]:
        """Return a decision for each set of tasks that ops were written from, and helped in alike."""
        reached = reaches(arms.base, arms.candidate)
        alike: dict[tuple[tuple[str, ...], ...], list[str]] = {}
        for op_id, origin in origins.items():
            idle, missed = (
                tuple(key for key in origin if op_id in found.get(key, ())) for found in (arms.idle, arms.missed)
            )
            alike.setdefault((origin, idle, missed), []).append(op_id)
        rounds: list[Round] = []
        for (cohort, idle, missed), op_ids in alike.items():
            trial = ScreenTrial(
                cohort=cohort,
                base={key: arms.base.get(key) for key in cohort},
                candidate={key: arms.candidate.get(key) for key in cohort},
                reach={key: reached[key] for key in cohort if key in reached},
                clusters={key: family(tasks[key]) for key in cohort},
                idle=idle,
                missed=missed,
            )
            rounds.append(Round(tuple(op_ids), decide(trial)))
        return rounds


@dataclass(frozen=True)
class _Arms:
    """What was run: both arms, and of some tasks the ops that it can do without."""

    base: Marks
    candidate: Marks
    idle: dict[str, tuple[str, ...]]
    missed: dict[str, tuple[str, ...]]
    """For each task the ops that were seen, each by itself, to help it."""


def _perfect(task: str, marks: Marks) -> bool:
    """Tell whether all checks passed and no action failed: then no op that is wrong about this task was shown."""
    return marks.get(task) is True and marks.reach.get(task, 0.0) >= 1.0


def _marks(passed: Passed) -> Marks:
    return passed if isinstance(passed, Marks) else Marks(passed)


def _origin(op: DeltaOp, tasks: Mapping[str, Task]) -> tuple[str, ...]:
    """Return the tasks an op was written from; a new text that names none could be about all of them."""
    named = tuple(key for key in tasks if key in op.provenance.task_ids)
    return named if named or op.op is Op.RESTORE else tuple(tasks)


def make(context: GateContext) -> BatchScreen:
    """Return the gate. Raises as `GateContext.bench_of`."""
    return BatchScreen(context.bench_of(BatchScreen.name).evaluator, context.config.run.seed)


MEMBER = make
