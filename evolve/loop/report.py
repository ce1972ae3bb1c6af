"""Report of a run, read from the journal alone: figures by half, controls, cost, and the points of its curve.

Nothing is remembered outside the journal, so a report can be printed again at any time and says the same.

Beside a run stand the latest held-out evaluations: how its policy does with what is known, and without.

pass@k says how many of a run's tasks any of k attempts solved. The stream's own figures are pass@1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from evolve.episode.arms import ATTEMPT, FURTHER, MAIN, NO_MEMORY, TEACHER
from evolve.episode.metrics import Metrics, summarize
from evolve.episode.skill_runtime.figures import SkillFigures, figures
from evolve.episode.skill_runtime.figures import lines as skill_lines
from evolve.gates import account
from evolve.loop.advice import advice
from evolve.loop.attempts import ATTEMPTS, AttemptsReport
from evolve.loop.attempts import lines as attempt_lines
from evolve.loop.evaluate import EvalReport
from evolve.loop.history import (
    CHANGES,
    STALE,
    TEACHING,
    WITH_MEMORY,
    WITHOUT_MEMORY,
    RunSummary,
    find_summary,
    latest_learner,
    list_runs,
)
from evolve.loop.lives import Compared, compared, compared_lines
from evolve.loop.methods import growth
from evolve.loop.modes.online import place
from evolve.loop.role_policies import RoleUse, used
from evolve.loop.role_policies import lines as role_lines
from evolve.loop.runs import COMPARE, EVAL, RESUMABLE, RunRecord, load_run
from memory import paging
from memory.errors import NotFound
from memory.records import Frozen, Trajectory
from memory.runlist import RunFilter
from memory.store import Store


class PassAtK(Frozen):
    """What further attempts at tasks of the stream brought."""

    k: int
    """Most attempts at a task."""
    tasks: int
    first: int
    """Tasks that their first attempt solved."""
    solved: int
    """Tasks that one of the attempts solved."""
    episodes: int
    """Further attempts that were made."""


class Taught(Frozen):
    """What the teacher did with the tasks that the agent failed (`policy.teacher.attempts`)."""

    tasks: int
    solved: int
    episodes: int
    """Its attempts."""


def taught_by(episodes: Sequence[Trajectory]) -> Taught | None:
    """Return what a teacher's attempts among a run's `episodes` came to; None where there are none."""
    own = [episode for episode in episodes if episode.arm == TEACHER]
    solved = {episode.task.id for episode in own if episode.success}
    tasks = {episode.task.id for episode in own}
    return Taught(tasks=len(tasks), solved=len(solved), episodes=len(own)) if own else None


def taught_lines(found: Taught | None) -> list[str]:
    """Return the figures as text for people; nothing where there are none."""
    if found is None:
        return []
    of = f"{found.solved} of {found.tasks} tasks that the agent failed"
    return [f"solved by the teacher       {of}, in {found.episodes} attempts"]


def pass_at_k(k: int, stream: Sequence[Trajectory], episodes: Sequence[Trajectory]) -> PassAtK | None:
    """Return what the further attempts among a run's `episodes` add to its stream; None where there are none."""
    further = [episode for episode in episodes if episode.arm == ATTEMPT]
    if not further:
        return None
    first = {episode.task.id for episode in stream if episode.success}
    later = {episode.task.id for episode in further if episode.success}
    return PassAtK(k=k, tasks=len(stream), first=len(first), solved=len(first | later), episodes=len(further))


def pass_at_k_lines(found: PassAtK | None) -> list[str]:
    """Return the figures as text for people; nothing where there are none."""
    if found is None:
        return []
    share = found.solved / max(found.tasks, 1)
    return [f"pass@{found.k:<23} {share:6.1%}  with {found.episodes} further attempts"]


LOOKED = 50
"""Evaluations that are looked through, the latest."""


class HeldOut(Frozen):
    """One arm of one split, of the latest evaluation that has it."""

    run_id: str
    """The evaluation's."""
    started: datetime
    parent: str | None
    """The run that ended with the knowledge it evaluated."""
    report: EvalReport


def held_out(store: Store, record: RunRecord) -> tuple[HeldOut, ...]:
    """Return the latest evaluations of a run's policy in its environment, each split with memory before without."""
    found: dict[tuple[str, str], HeldOut] = {}
    rows, _ = list_runs(store, RunFilter(kinds=(EVAL,)), limit=LOOKED)
    same = (record.policy, record.policy_version, record.environment)
    for row in rows:
        if (row.policy, row.policy_version, row.environment) != same:
            continue
        for event in store.events(type="evaluation", run_id=row.run_id):
            if event.data.get("arm") in (MAIN, NO_MEMORY):
                report = EvalReport.model_validate(event.data)
                each = HeldOut(run_id=row.run_id, started=row.started, parent=row.parent, report=report)
                found.setdefault((report.split, report.arm), each)
    return tuple(found[key] for key in sorted(found))


class Report(Frozen):
    """One run in figures."""

    run_id: str
    kind: str = ""
    """One of `evolve.loop.runs.KINDS`."""
    name: str = ""
    tags: tuple[str, ...] = ()
    started: datetime | None = None
    mode: str
    status: str
    policy: str
    policy_version: str
    environment: str
    config_hash: str
    preset: str | None = None
    """Method whose values applied where no key was given."""
    seed: int
    snapshot_id: str | None
    first_half: Metrics | None = None
    second_half: Metrics | None = None
    whole: Metrics | None = None
    control: Metrics | None = None
    """The same stream's tasks without memory, on the sampled share."""
    evaluations: tuple[EvalReport, ...] = ()
    """Made by the run itself."""
    compared: Compared | None = None
    """What a comparison came to."""
    held_out: tuple[HeldOut, ...] = ()
    """Of a run that learned: the latest evaluations of the same policy in the same environment."""
    attempts: tuple[AttemptsReport, ...] = ()
    """pass@k, best-of-n and retry of each split, where several attempts were made."""
    retried: PassAtK | None = None
    """What further attempts at failed tasks brought, of a run that learned; None without any."""
    taught: Taught | None = None
    """What the teacher's attempts at failed tasks came to; None without any."""
    known_before: int = 0
    """Bullets that were known when the run started."""
    learned: int = 0
    """Changes of knowledge that were applied; counters are none."""
    roles: tuple[RoleUse, ...] = ()
    """What each role's model calls used; those of the gates' episodes are among the acting ones."""
    gates: account.GateAccount = account.GateAccount()
    """What the gates decided, and what they spent beside the stream."""
    egl: float | None = None
    """New records / tasks, of method `yunjue`; None where another writes."""
    skills: SkillFigures | None = None
    """How skills were used; None where there were none."""
    curve: tuple[bool, ...] = ()
    """Success of the main arm, in order of the stream."""
    warnings: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    """What kept the run from learning, each with the key to turn."""


def make_report(store: Store, run_id: str | None = None) -> Report:
    """Return the report of a run: the named one, or the latest that learned. Raises `NotFound`."""
    record = find_record(store, run_id)
    line = find_summary(store, record.run_id)
    stream, control = _episodes(store, record)
    further = _of_last_pass(store.trajectories(run_id=record.run_id, arm=[MAIN, *FURTHER]))
    half = len(stream) // 2
    namespace = record.config.get("memory", {}).get("namespace", "default")
    events = store.events(type="evaluation", run_id=record.run_id)
    gates = account.account(store, record.run_id)
    return Report(
        run_id=record.run_id,
        kind=record.kind,
        name=record.name,
        tags=record.tags,
        started=line.started,
        mode=record.mode,
        status=line.status,
        policy=line.policy,
        policy_version=record.policy_version,
        environment=record.environment,
        config_hash=record.config_hash,
        preset=record.config.get("preset"),
        seed=record.config.get("run", {}).get("seed", 0),
        snapshot_id=record.snapshot_id,
        first_half=_metrics(stream[:half]),
        second_half=_metrics(stream[half:]),
        whole=_metrics(stream),
        control=_metrics(control),
        evaluations=tuple(EvalReport.model_validate(event.data) for event in events),
        compared=compared(store, record.run_id),
        held_out=held_out(store, record) if record.kind in TEACHING else (),
        attempts=tuple(
            AttemptsReport.model_validate(event.data) for event in store.events(type=ATTEMPTS, run_id=record.run_id)
        ),
        retried=pass_at_k(record.config.get("run", {}).get("attempts", 1), stream, further),
        taught=taught_by(further),
        known_before=_known_before(store, record.run_id),
        learned=_applied(store, record.run_id),
        roles=used(store, record.run_id, f"{line.policy} {record.policy_version}".rstrip(), record.roles),
        gates=gates,
        egl=growth(store, namespace, {t.id for t in stream}),
        skills=figures(store, record.run_id, stream),
        curve=tuple(t.success for t in stream),
        warnings=_warnings(line, record, stream, paging.missing_episodes(store.journal, record.run_id)),
        advice=advice(store, record, stream, gates),
    )


def lines(report: Report) -> list[str]:
    """Return the report as text for people."""
    called = "".join(
        f" {word}" for word in ([repr(report.name)] if report.name else []) + [f"#{t}" for t in report.tags]
    )
    when = f", started {report.started:%Y-%m-%d %H:%M} UTC" if report.started else ""
    head = [
        f"run {report.run_id}{called} ({report.mode}, {report.status}){when}",
        f"policy {report.policy} {report.policy_version}, environment {report.environment}",
        f"seed {report.seed}, config {report.config_hash}, snapshot {report.snapshot_id or '-'}",
    ]
    if report.kind == COMPARE:
        return [*head[:1], *(compared_lines(report.compared) if report.compared else ["it is not done"])]
    head += [f"preset {report.preset} (`evolve presets show {report.preset}`)"] if report.preset else []
    named = {
        "first half": report.first_half,
        "second half": report.second_half,
        "whole stream": report.whole,
        "without memory (sample)": report.control,
    }
    body = [_figures(name, metrics) for name, metrics in named.items() if metrics]
    body += [*pass_at_k_lines(report.retried), *taught_lines(report.taught)]
    body += [_figures(f"{e.split} ({e.arm})", e.metrics) for e in report.evaluations]
    body += [_figures(f"held out {_memory(e.report.arm)} memory", e.report.metrics) for e in report.held_out]
    body += [f"held out: {said}" for said in dict.fromkeys(map(_evaluation, report.held_out))]
    body += [line for each in report.attempts for line in attempt_lines(each)]
    learned = f"known before: {report.known_before}, changes applied: {report.learned}"
    if report.egl is not None:
        learned += f", new records per task (EGL): {report.egl:.2f}"
    end = [*report.warnings, *(f"note: {each}" for each in report.advice)]
    asked = role_lines(report.roles)
    return [*head, "", *body, "", learned, *asked, *account.lines(report.gates), *skill_lines(report.skills), *end]


def _memory(arm: str) -> str:
    return "without" if arm == NO_MEMORY else "with"


def _evaluation(each: HeldOut) -> str:
    knew = f", of what run {each.parent} knew at its end" if each.parent else ""
    return f"evaluation {each.run_id} on {each.report.split}, {each.started:%Y-%m-%d %H:%M} UTC{knew}"


def _figures(name: str, m: Metrics) -> str:
    reward = "" if m.reward is None or m.reward == m.tgc else f"reward {m.reward:.3f}  "
    ends = ", ".join(f"{stop.value} {count}" for stop, count in sorted(m.stops.items()))
    return (
        f"{name:<28} TGC {m.tgc:6.1%} [{m.interval.low:.0%}, {m.interval.high:.0%}]  SGC {m.sgc:6.1%}  "
        f"{reward}n={m.tasks}  steps {m.steps:.1f}  tokens {m.tokens:,.0f}  shown {m.injected:.1f}  "
        f"coverage {m.coverage:.0%}" + (f"  ended by {ends}" if ends else "")
    )


def find_record(store: Store, run_id: str | None) -> RunRecord:
    """Return the record of the named run; of none the latest that learned, or else the latest. Raises `NotFound`."""
    if run_id is not None:
        return load_run(store, run_id)
    latest = latest_learner(store) or next(iter(list_runs(store, limit=1)[0]), None)
    if latest is None:
        raise NotFound("no run in this workspace; start one with `evolve run`")
    return load_run(store, latest.run_id)


def _episodes(store: Store, record: RunRecord) -> tuple[list[Trajectory], list[Trajectory]]:
    """Return the episodes with memory and without, in order; those of a session as they came."""
    found = store.trajectories(run_id=record.run_id)
    if record.kind not in RESUMABLE:
        return [t for t in found if t.arm in WITH_MEMORY], [t for t in found if t.arm in WITHOUT_MEMORY]
    episodes = {(t.arm, t.task.id): t for t in found}
    stream = [episodes[MAIN, task] for task in _order(record) if (MAIN, task) in episodes]
    return stream, [episodes[NO_MEMORY, task] for task in record.control if (NO_MEMORY, task) in episodes]


def _of_last_pass(episodes: Sequence[Trajectory]) -> list[Trajectory]:
    """Return the further attempts that followed the last episode of their task: with epochs, those of its last pass."""
    last = {each.task.id: at for at, each in enumerate(episodes) if each.arm == MAIN}
    return [each for at, each in enumerate(episodes) if each.arm in FURTHER and at > last.get(each.task.id, -1)]


def _order(record: RunRecord) -> tuple[str, ...]:
    """Return the ids of the tasks as they were worked through; with epochs, in the order of the environment."""
    run = record.config.get("run", {})
    if record.mode == "online" and run.get("shuffle"):
        return tuple(sorted(record.tasks, key=lambda task_id: place(task_id, run.get("seed", 0), 0)))
    return record.tasks


def _metrics(trajectories: Sequence[Trajectory]) -> Metrics | None:
    own = _each_its_own(trajectories)
    return summarize([t.task for t in own], own) if own else None


def _each_its_own(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """Return episodes of which none shares a task: a session may do one many times, and each time is asked for."""
    times, found = Counter[str](), list[Trajectory]()
    for each in trajectories:
        task = each.task
        times[task.id] += 1
        if (again := times[task.id]) > 1:
            update = {"id": f"{task.id} ({again})", "scenario": task.scenario or task.id}
            each = each.model_copy(update={"task": task.model_copy(update=update)})
        found.append(each)
    return found


def _known_before(store: Store, run_id: str) -> int:
    marks = store.events(type="run.mark", run_id=run_id, limit=1)
    return len(store.get_snapshot(marks[0].data["snapshot"]).manifest) if marks else 0


def _applied(store: Store, run_id: str) -> int:
    return sum(len(store.events(type=f"knowledge.{name}", run_id=run_id)) for name in CHANGES)


def _warnings(line: RunSummary, record: RunRecord, stream: Sequence[Trajectory], missing: int) -> tuple[str, ...]:
    late, found = stream[len(stream) // 2 :], list[str]()
    remembering = record.config.get("playbook", {}).get("enabled", True)
    if line.status == STALE and line.kind in RESUMABLE:
        found.append("warning: the process of this run is gone: `evolve resume` goes on where it was")
    if late and remembering and not any(t.injected for t in late):
        found.append("warning: nothing was shown in the second half: the playbook is empty, or recall found none of it")
    found += _of_replies(record, stream)
    if cut := sum(step.omitted > 0 for t in stream for step in t.steps):
        found.append(
            f"{cut} observations were longer than environment.observation_chars; the agent read them cut short"
        )
    if forgotten := sum(t.forgotten for t in stream):
        found.append(
            f"{forgotten} observations were left out of later prompts: a conversation was longer than "
            "environment.history_chars"
        )
    if erased := sum(t.erased for t in stream):
        found.append(
            f"{erased} of these tasks were forgotten since: their figures count, but not by role; their texts are gone"
        )
    if missing:
        found.append(f"warning: {missing} episodes of this run were erased: they are in no figure")
    return tuple(found)


def _of_replies(record: RunRecord, stream: Sequence[Trajectory]) -> Iterator[str]:
    """Say how many replies were empty, and how many took all tokens they may have."""
    begun = [step for t in stream if not t.erased for step in t.steps if step.usage.calls]
    limit = record.config.get("policy", {}).get("max_tokens")
    if empty := sum(not (step.action or step.reply or step.tool_calls) for step in begun):
        yield (
            f"warning: {empty} of {len(begun)} replies were empty: raise policy.max_tokens where the model thinks "
            "before it answers, or look at its chat template"
        )
    if limit and (cut := sum(step.usage.calls == 1 and step.usage.completion_tokens >= limit for step in begun)):
        yield f"{cut} of {len(begun)} replies took all of policy.max_tokens = {limit}, so they may be cut"
