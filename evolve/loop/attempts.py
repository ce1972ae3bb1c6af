"""Several attempts at each task, frozen: pass@k with and without notes, best-of-n, and retry with an avoid list.

Both arms draw the same number of independent samples under the same seeds, so pass@k is the unbiased estimate of both
(arXiv 2107.03374). Which attempt to answer with, and whether to try again, is decided without the grade: by the policy
(`run.judge = "policy"`), else by whether the last step met an error. With `run.judge = "agreement"` one is chosen that
answered as most of them did. Every attempt is an episode of the journal; one that is stored is not run again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from evolve.config.model import Config
from evolve.episode.agreement import AGREEMENT, answers, commonest
from evolve.episode.injection import Shown, choose_core, recall_for, sought
from evolve.episode.journalled_replies import about
from evolve.episode.rollout import Attempt, rollout
from evolve.episode.search import search_for
from evolve.loop.evaluate import begin_evaluation
from evolve.loop.state import RunContext
from evolve.parallel import all_of
from evolve.progress import Notice
from evolve.seeds import id_for, seed_for
from memory.kinds import known_kinds
from memory.records import Event, Frozen, Injection, Record, Snapshot, StopReason, Task, Trajectory
from playbooks.core import core_records
from playbooks.kinds.note import Note
from playbooks.notebook.failure_judge import Finding, by_policy
from playbooks.notebook.retry import PassReport, avoid_text, best_of, compare_pass

ATTEMPTS = "attempts"
"""Event: what the attempts at one split came to."""
WITHOUT, WITH, RETRY = "without_notes", "with_notes", "retry"


class AttemptsReport(Frozen):
    """Attempts at the tasks of one split. Shares are over all tasks; what was not graded failed."""

    id: str
    split: str
    snapshot_id: str
    attempts: int
    """Samples of each arm, and most attempts of a retry."""
    passes: PassReport
    best_without: float
    """Share solved by the best of the samples without notes, chosen without the grade."""
    best_with_notes: float
    retry: float
    """Share solved by retrying with the avoid list, likewise."""
    retries: float
    """Mean attempts that a retry took."""
    notes: float
    """Mean notes shown in the arm that has them."""
    passed: dict[str, dict[str, bool]] = Field(default_factory=dict)
    """Arm -> task id -> whether the attempt to answer with solved it. Reports of earlier versions lack it."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Tried:
    """One task's attempts by arm, and the index of the one to answer with."""

    episodes: dict[str, tuple[Trajectory, ...]]
    chosen: dict[str, int]

    def solved(self, arm: str) -> bool:
        return self.episodes[arm][self.chosen[arm]].success

    def marks(self, arm: str) -> list[bool | None]:
        return [None if t.outcome is None else t.outcome.success for t in self.episodes[arm]]


async def evaluate_attempts(
    context: RunContext, split: str, tasks: Sequence[Task], snapshot: Snapshot
) -> AttemptsReport:
    """Make what is missing of the attempts, journal what they came to, and return it. Raises what `rollout` raises."""
    address = f"{snapshot.id}@{snapshot.position}"
    eval_id = id_for("at", context.stream.run_id, split, address, context.stream.seed, context.config.run.attempts)
    begin_evaluation(context, eval_id)
    trials = _Trials(context, split, address, eval_id)
    limit, run_id = asyncio.Semaphore(context.config.run.concurrency), context.stream.run_id
    done: list[str] = []

    async def tried(task: Task) -> _Tried:
        async with limit:
            with about(task.id):
                one = await trials.task(task)
        done.append(task.id)
        told = context.tally.event(one.episodes[WITH][one.chosen[WITH]])
        context.observers.notify(told.model_copy(update={"run_id": run_id, "done": len(done)}))
        return one

    found = dict(zip((task.id for task in tasks), await all_of(map(tried, tasks)), strict=True))
    report = _report(eval_id, split, address, context.config, found)
    if not context.store.events(type=ATTEMPTS, subject=eval_id, limit=1):
        data = report.model_dump(mode="json")
        context.store.append(Event(type=ATTEMPTS, run_id=run_id, subject=eval_id, data=data))
    for warning in report.warnings:
        context.observers.notify(Notice(run_id=run_id, text=f"{split}: {warning}"))
    return report


def lines(report: AttemptsReport) -> list[str]:
    """Return the report as text for people."""
    passes = report.passes
    head = (
        f"{report.split}: {passes.tasks} tasks, {report.attempts} attempts each, {report.notes:.1f} notes shown, "
        f"coverage {passes.coverage_without:.0%} / {passes.coverage_with_notes:.0%}"
    )
    rows = [
        f"  pass@{row.k:<3} without notes {row.without:6.1%}   with notes {row.with_notes:6.1%}   {row.gain:+.1%}"
        for row in passes.rows
    ]
    best = f"  best of {report.attempts} without notes {report.best_without:.1%}, with {report.best_with_notes:.1%}"
    retry = f"  retry with the avoid list {report.retry:.1%} in {report.retries:.2f} attempts"
    return [head, *rows, f"{best} (chosen without the grade)", retry]


class _Trials:
    """Attempts at the tasks of one split, with the knowledge of one snapshot."""

    def __init__(self, context: RunContext, split: str, address: str, eval_id: str) -> None:
        self._context, self._split, self._address, self._eval_id = context, split, address, eval_id
        view = context.store.view(context.namespace, address)
        core = core_records(choose_core(context.config, view, context.policy, 0), view)
        plain = tuple(record for record in core if record.kind != Note.kind)
        self._arms: dict[str, tuple[Config, tuple[Record[Any], ...]]] = {
            WITHOUT: (_without_notes(context.config), plain),
            WITH: (context.config, core),
            RETRY: (context.config, core),
        }

    async def task(self, task: Task) -> _Tried:
        """Return all attempts at a task. The first attempt of a retry is the first sample with notes."""
        count = self._context.config.run.attempts
        episodes = await self._sampled(task)
        tries, verdicts = [episodes[WITH][0]], [await self._finding(episodes[WITH][0])]
        while verdicts[-1].failed and len(tries) < count:
            advice = avoid_text(self._notes(tries[0]), tries, self._context.policy.profile)
            tries.append(await self._attempt(task, RETRY, len(tries), self._shown(task, RETRY), advice))
            verdicts.append(await self._finding(tries[-1]))
        chosen = {arm: best_of(found, await self._findings(found)) for arm, found in episodes.items()}
        return _Tried({**episodes, RETRY: tuple(tries)}, {**chosen, RETRY: best_of(tries, verdicts)})

    async def _sampled(self, task: Task) -> dict[str, tuple[Trajectory, ...]]:
        """Return the samples of both arms. Where no note is shown or can be searched, they are the same, made once."""
        shown = self._shown(task, WITH)
        if not _notes_among(shown.injected) and not self._context.config.playbook.search_k:
            return dict.fromkeys((WITHOUT, WITH), await self._samples(task, WITH if shown.injected else WITHOUT, shown))
        plain = await self._samples(task, WITHOUT, self._shown(task, WITHOUT))
        return {WITHOUT: plain, WITH: await self._samples(task, WITH, shown)}

    async def _samples(self, task: Task, arm: str, shown: Shown) -> tuple[Trajectory, ...]:
        return tuple([await self._attempt(task, arm, at, shown) for at in range(self._context.config.run.attempts)])

    def _shown(self, task: Task, arm: str) -> Shown:
        config, core = self._arms[arm]
        if not config.playbook.enabled:  # without memory: no exemplar either
            return Shown()
        own = [record for record in core if task.id not in record.provenance.task_ids]
        context, wanted = self._context, sought(task, self._context.environment)
        return recall_for(context.store, config, wanted, own, context.policy, snapshot_id=self._address)

    async def _attempt(self, task: Task, arm: str, at: int, shown: Shown, advice: str = "") -> Trajectory:
        """Return one attempt; both sampled arms share the seed of a number."""
        context, episode_id = self._context, id_for("tr", self._eval_id, task.id, arm, at)
        stored = context.store.trajectory(episode_id)
        if stored is not None:
            context.tally.add(stored)
            return stored
        profile = context.policy.profile
        attempt = Attempt(
            id=episode_id,
            task=task,
            seed=seed_for(context.stream.seed, self._split, task.id, at),
            core=shown.core,
            recalled=shown.recalled,
            injected=shown.injected,
            skills=shown.skills,
            exemplars=shown.exemplars,
            run_id=self._eval_id,
            arm=arm,
            snapshot_id=self._address,
            search=search_for(context.store, self._arms[arm][0], task, profile, snapshot_id=self._address),
            advice=advice,
        )
        trajectory = await rollout(context.environment, context.policy, attempt, context.acting)
        context.store.add_trajectory(trajectory)
        context.tally.add(trajectory)
        return trajectory

    def _notes(self, trajectory: Trajectory) -> list[Note]:
        found = self._context.store.reader.load([item.record_id for item in trajectory.injected])
        return [record.payload for record in found if record.kind == Note.kind]

    async def _findings(self, attempts: Sequence[Trajectory]) -> list[Finding]:
        """Return the findings about all attempts of an arm: by what most of them answered, else each by itself."""
        found = [await self._finding(each) for each in attempts]
        if self._context.config.run.judge != AGREEMENT:
            return found
        given = answers(self._context.environment, attempts)
        common = commonest(given)
        if common is None:
            return found
        return [each.model_copy(update={"failed": a != common}) for each, a in zip(found, given, strict=True)]

    async def _finding(self, trajectory: Trajectory) -> Finding:
        """Return whether an attempt seems to have failed. The outcome is not read."""
        if self._context.config.run.judge == "policy":
            return await by_policy(self._context.policies.judge, trajectory)
        erred = not trajectory.steps or trajectory.steps[-1].error is not None
        return Finding(
            trajectory_id=trajectory.id,
            task_id=trajectory.task.id,
            failed=erred or trajectory.stop is not StopReason.DONE,
        )


def _without_notes(config: Config) -> Config:
    kinds = tuple(kind for kind in config.memory.kinds or known_kinds() if kind != Note.kind)
    update = {"kinds": kinds} if kinds else {"recall_k": 0}  # no kind at all would stand for every one
    return config.model_copy(update={"memory": config.memory.model_copy(update=update)})


def _notes_among(shown: Sequence[Injection]) -> int:
    return sum(item.label.startswith(f"{Note.kind}-") for item in shown)


def _report(eval_id: str, split: str, address: str, config: Config, found: dict[str, _Tried]) -> AttemptsReport:
    count, total = config.run.attempts, max(len(found), 1)
    notes = sum(_notes_among(tried.episodes[WITH][0].injected) for tried in found.values())
    passed = {arm: {key: tried.solved(arm) for key, tried in found.items()} for arm in (WITHOUT, WITH, RETRY)}
    warnings: list[str] = []
    if config.policy.temperature == 0:
        warnings.append("samples at temperature 0 may all be the same; set [policy] temperature")
    if not notes:
        warnings.append("no note was shown: both arms are the same samples")
    return AttemptsReport(
        id=eval_id,
        split=split,
        snapshot_id=address,
        attempts=count,
        passes=compare_pass(
            {key: tried.marks(WITHOUT) for key, tried in found.items()},
            {key: tried.marks(WITH) for key, tried in found.items()},
            range(1, count + 1),
        ),
        best_without=sum(passed[WITHOUT].values()) / total,
        best_with_notes=sum(passed[WITH].values()) / total,
        retry=sum(passed[RETRY].values()) / total,
        retries=sum(len(tried.episodes[RETRY]) for tried in found.values()) / total,
        notes=notes / total,
        passed=passed,
        warnings=tuple(warnings),
    )
