"""Frozen evaluation: what an agent with this knowledge achieves. Nothing is learned and nothing is credited.

Recall searches exactly at a snapshot and leaves out what was learned from the task itself. An evaluation that is
repeated with the same name goes on where it stopped: episodes that were stored are not run again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from evolve.episode.arms import AA, MAIN, NO_MEMORY
from evolve.episode.injection import Shown, choose_core, recall_for, sought
from evolve.episode.journalled_replies import about
from evolve.episode.metrics import Metrics, passed, summarize
from evolve.episode.rollout import Attempt, rollout
from evolve.episode.search import Search, search_for
from evolve.loop.state import RunContext
from evolve.parallel import all_of
from evolve.progress import Evaluated, Notice
from evolve.seeds import id_for, seed_for
from memory.records import EvalRun, Event, Frozen, Record, Snapshot, Task, Trajectory
from memory.runlist import BEGUN
from playbooks.core import core_records

ZERO_INJECTIONS = "memory is on and nothing was injected: the knowledge is empty, or recall found none of it"


class EvalReport(Frozen):
    """One arm of one split."""

    id: str
    split: str
    arm: str
    snapshot_id: str | None
    metrics: Metrics
    passed: dict[str, bool | None]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exam:
    """What is evaluated: one arm, on these tasks, with the knowledge of this snapshot."""

    split: str
    tasks: tuple[Task, ...]
    snapshot: Snapshot | None
    """None = without memory."""
    arm: str = MAIN
    label: str = ""
    """Tells evaluations of one run apart that agree in everything else."""

    @property
    def address(self) -> str | None:
        """Return `<snapshot id>@<position>`: this very freeze, usage counts included."""
        return f"{self.snapshot.id}@{self.snapshot.position}" if self.snapshot else None


async def evaluate(context: RunContext, exam: Exam) -> EvalReport:
    """Run what is missing of an exam, store it, and report. Raises what `rollout` raises."""
    eval_id = id_for("ev", context.stream.run_id, exam.split, exam.arm, exam.address, context.stream.seed, exam.label)
    begin_evaluation(context, eval_id)
    core: tuple[Record[Any], ...] = ()
    if exam.snapshot is not None:
        view = context.store.view(exam.snapshot.namespace, exam.address)
        core = core_records(choose_core(context.config, view, context.policy, 0), view)
    limit = asyncio.Semaphore(context.config.run.concurrency)
    trajectories: list[Trajectory] = []
    async for group in _groups(context, exam.tasks):
        trajectories += await all_of(_episode(context, exam, eval_id, task, core, limit) for task in group)
    report = EvalReport(
        id=eval_id,
        split=exam.split,
        arm=exam.arm,
        snapshot_id=exam.address,
        metrics=summarize(exam.tasks, trajectories),
        passed=passed(exam.tasks, trajectories),
        warnings=_warnings(exam, trajectories),
    )
    _store(context, report)
    return report


def begin_evaluation(context: RunContext, eval_id: str) -> None:
    """Journal which run the episodes of an evaluation belong to, once."""
    if not context.store.events(type=BEGUN, subject=eval_id, limit=1):
        context.store.append(Event(type=BEGUN, run_id=context.stream.run_id, subject=eval_id))


async def evaluate_arms(
    context: RunContext, split: str, tasks: Sequence[Task], snapshot: Snapshot
) -> tuple[EvalReport, ...]:
    """Evaluate a split with memory, without it (on the stream's control tasks), and a second time if A/A is on."""
    exams: list[Exam] = []
    if context.config.playbook.enabled:
        exams.append(Exam(split, tuple(tasks), snapshot))
        control = tuple(task for task in tasks if task.id in context.stream.control)
        if control:
            exams.append(Exam(split, control, None, NO_MEMORY))
    else:
        exams.append(Exam(split, tuple(tasks), None, NO_MEMORY))
    if context.config.controls.aa:
        exams.append(Exam(split, tuple(tasks), exams[0].snapshot, AA))
    return tuple([await evaluate(context, exam) for exam in exams])


async def _groups(context: RunContext, tasks: tuple[Task, ...]) -> AsyncGenerator[tuple[Task, ...]]:
    """Yield all tasks at once; where several evaluations take turns, as many as are run at the same time."""
    if context.turn is None:
        yield tasks
        return
    size = context.config.run.concurrency
    for start in range(0, len(tasks), size):
        await context.turn()
        yield tasks[start : start + size]


async def _episode(
    context: RunContext, exam: Exam, eval_id: str, task: Task, core: Sequence[Record[Any]], limit: asyncio.Semaphore
) -> Trajectory:
    episode_id = id_for("tr", eval_id, task.id)
    stored = context.store.trajectory(episode_id)
    if stored is not None:
        context.tally.add(stored)
        return stored
    async with limit:
        shown: Shown = Shown()
        search: Search | None = None
        if exam.snapshot is not None:
            search = search_for(context.store, context.config, task, context.policy.profile, snapshot_id=exam.address)
            own = [record for record in core if task.id not in record.provenance.task_ids]
            wanted = sought(task, context.environment)
            shown = recall_for(context.store, context.config, wanted, own, context.policy, snapshot_id=exam.address)
        attempt = Attempt(
            id=episode_id,
            task=task,
            seed=seed_for(context.stream.seed, exam.split, task.id, exam.arm == AA),
            core=shown.core,
            recalled=shown.recalled,
            injected=shown.injected,
            skills=shown.skills,
            exemplars=shown.exemplars,
            run_id=eval_id,
            arm=exam.arm,
            snapshot_id=exam.address,
            search=search,
        )
        with about(task.id):
            trajectory = await rollout(context.environment, context.policy, attempt, context.acting)
    context.store.add_trajectory(trajectory)
    context.tally.add(trajectory)
    context.observers.notify(context.tally.event(trajectory).model_copy(update={"run_id": context.stream.run_id}))
    return trajectory


def _warnings(exam: Exam, trajectories: Sequence[Trajectory]) -> tuple[str, ...]:
    found: list[str] = []
    if exam.snapshot is not None and not any(t.injected for t in trajectories):
        found.append(ZERO_INJECTIONS)
    missing = sum(t.outcome is None for t in trajectories)
    if missing:
        found.append(f"{missing} of {len(trajectories)} episodes were not graded; they count as failures")
    return tuple(found)


def _store(context: RunContext, report: EvalReport) -> None:
    context.store.add_eval(
        EvalRun(
            id=report.id,
            snapshot_id=report.snapshot_id,
            policy=context.policy.name,
            policy_version=context.policy.version,
            seed=context.stream.seed,
            config_hash=context.config.digest,
            split=report.split,
            passed=report.passed,
            usage=report.metrics.usage,
        )
    )
    run_id = context.stream.run_id
    if not context.store.events(type="evaluation", subject=report.id, limit=1):
        data = report.model_dump(mode="json")
        context.store.append(Event(type="evaluation", run_id=run_id, subject=report.id, data=data))
    for warning in report.warnings:
        context.observers.notify(Notice(run_id=run_id, text=f"{report.split} ({report.arm}): {warning}"))
    context.observers.notify(
        Evaluated(
            run_id=run_id,
            split=report.split,
            arm=report.arm,
            snapshot_id=report.snapshot_id,
            tasks=len(report.passed),
            tgc=report.metrics.tgc,
            sgc=report.metrics.sgc,
            coverage=report.metrics.coverage,
        )
    )
