"""Lists everything that happened here as runs, whatever made it, with what it came to.

Learning runs, evaluations, comparisons, and sessions of `Agent`, the LangChain middleware, MCP clients and the
LangGraph store are runs alike. All figures are read from the journal; those of gates' own episodes stand in no run's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import astuple
from datetime import UTC, datetime, timedelta
from typing import Any

from evolve.episode.arms import FROZEN, MAIN, NO_MEMORY
from evolve.gates.evaluator import run_of
from evolve.loop.lives import ENDED, life_episodes
from evolve.loop.runs import (
    AGENT,
    COMPARE,
    DONE,
    EVAL,
    KINDS,
    LANGCHAIN,
    LEARN,
    MCP,
    REST,
    RESUMABLE,
    RUNNING,
    SESSION,
)
from memory import paging, runlist
from memory.errors import BadInput, NotFound
from memory.paging import EpisodeLine
from memory.records import Frozen
from memory.runlist import ArmTotals, RunFilter, RunRow
from memory.store import Store

STALE = "stale"
"""Status of what says `running` and does not: a run whose process is gone, a session not heard of for `LEASE`."""
TEACHING = (LEARN, AGENT, LANGCHAIN, MCP, REST, SESSION)
"""Kinds of runs in which something may be learned from episodes."""
LEASE = timedelta(hours=1)
CHANGES = ("add", "edit", "merge", "supersede", "remove", "restore")
"""Ends of the journal's `knowledge.*` events that changed what is known; the others count uses or follow from these."""
WITH_MEMORY = (MAIN, FROZEN, "with_notes")
WITHOUT_MEMORY = (NO_MEMORY, "without_notes")
"""Arms of an episode, by whether what is known was shown."""


class RunSummary(Frozen):
    """One run in a line."""

    run_id: str
    kind: str
    """`learn`, `eval`, `quarantine`, `compare`, `agent`, `langchain`, `mcp`, `rest`, `langgraph`, or `session`
    (unknown)."""
    name: str = ""
    tags: tuple[str, ...] = ()
    mode: str = ""
    status: str
    """`running`, `done`, `stopped`, or `stale`: it says running, and its process is gone, or there was no sign of a
    session for an hour."""
    reason: str = ""
    started: datetime
    ended: datetime
    """Its last sign, while it is running."""
    policy: str = ""
    """Who acted."""
    policy_version: str = ""
    environment: str = ""
    client: str = ""
    """Who visited, of a session over MCP or REST."""
    planned: int | None = None
    """Tasks it was to do; None where nobody can know."""
    tasks: int = 0
    """Tasks done with memory; of several passes the last one counts."""
    solved: int = 0
    success: float | None = None
    """Share of `tasks` solved; what was not graded failed. None without tasks."""
    mean_reward: float | None = None
    """Of the graded tasks done with memory."""
    control_tasks: int = 0
    """Tasks done without memory."""
    control_success: float | None = None
    episodes: int = 0
    """Of all arms and passes; those of gates are not among them."""
    changes: int = 0
    """Changes of knowledge that were applied."""
    tokens: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0
    """Wall time."""
    snapshot: str | None = None
    """Knowledge at its end, or that was evaluated, as `<id>@<position>`."""
    parent: str | None = None
    """Of an evaluation: the latest run before it that ended with the knowledge it evaluated."""


def list_runs(
    store: Store, wanted: RunFilter | None = None, *, offset: int = 0, limit: int = 25
) -> tuple[list[RunSummary], int]:
    """Return a page of all runs that a filter lets through, the latest first, and how many there are.

    Raises `BadInput` for an unknown kind.
    """
    odd = sorted(set(wanted.kinds) - set(KINDS)) if wanted else []
    if odd:
        raise BadInput(f"got kind {odd[0]!r}; expected one of {', '.join(KINDS)}")
    rows, total = runlist.runs(store.journal, wanted, offset=offset, limit=limit)
    return _summaries(store, rows), total


def find_summary(store: Store, run_id: str) -> RunSummary:
    """Return the line of one run. Raises `NotFound`."""
    rows, _ = runlist.runs(store.journal, RunFilter(run_ids=(run_id,)), limit=1)
    if not rows:
        raise NotFound(f"no run {run_id!r} in this workspace; see `evolve logs list`")
    return _summaries(store, rows)[0]


def latest_learner(store: Store) -> RunSummary | None:
    """Return the latest run that learned from tasks; a session counts once it has done one. None where there is none.

    This is what a report without a name and the overview are about.
    """
    offset, size = 0, 25
    while True:
        rows, total = list_runs(store, RunFilter(kinds=TEACHING), offset=offset, limit=size)
        for row in rows:
            if row.kind == LEARN or row.episodes:
                return row
        offset += size
        if offset >= total:
            return None


def runs_at(store: Store, namespace: str) -> dict[str, tuple[str, ...]]:
    """Return snapshot address -> the runs that began or ended with it, each as `start of RUN` or `end of RUN`."""
    found: dict[str, dict[str, None]] = {}
    for mark in store.events(type="run.mark", namespace=namespace):
        began = mark.subject.endswith("/start")
        found.setdefault(mark.data.get("snapshot", ""), {})[f"{'start of' if began else 'in'} {mark.run_id}"] = None
    for run_id, snapshot, _ in runlist.ended_at(store.journal):
        found.setdefault(snapshot, {})[f"end of {run_id}"] = None
    return {address: tuple(said) for address, said in found.items()}


def run_filter(
    kinds: Sequence[str] = (), *, tag: str = "", name: str = "", since: str = "", until: str = ""
) -> RunFilter:
    """Return the filter that was asked for in words. Raises `BadInput` for what is no date."""
    return RunFilter(kinds=kinds, tag=tag, name=name, since=_date(since), until=_date(until))


def run_episodes(store: Store, run_id: str) -> list[EpisodeLine]:
    """Return all episodes of a run in the order they were done: those of its evaluations too, if it is one.

    Those of a comparison are read from the journals of its lives.
    """
    return paging.episodes(store.journal, names_of(store, run_id)) or life_episodes(store, run_id)


class Change(Frozen):
    """One change of knowledge that a run made."""

    at: datetime
    verb: str
    record_id: str
    text: str
    """As the record reads now; empty where it was forgotten."""


def run_changes(store: Store, run_id: str, *, limit: int = 100) -> list[Change]:
    """Return the latest changes of knowledge that a run made, oldest first: what is seen of a store's session."""
    found = [event for name in CHANGES for event in store.events(type=f"knowledge.{name}", run_id=run_id)]
    latest = sorted(found, key=lambda event: event.seq or 0)[-limit:]
    records = {record.id: record for record in store.reader.load([event.subject for event in latest])}
    return [
        Change(
            at=event.created_at,
            verb=event.type.removeprefix("knowledge."),
            record_id=event.subject,
            text=records[event.subject].payload.text() if event.subject in records else "",
        )
        for event in latest
    ]


def names_of(store: Store, run_id: str) -> tuple[str, ...]:
    """Return the names under which the episodes of a run are journalled."""
    record = store.get_run(run_id)
    evaluates = record is not None and record.get("mode") == "frozen"
    found = runlist.evaluations(store.journal, (run_id,)) if evaluates else ()
    return (run_id, *(name for _, name in found))


def owner_of(store: Store, name: str) -> str:
    """Return the run that an episode belongs to, by its `run_id`: the stream's, a gate's or an evaluation's."""
    run_id = run_of(name)
    return run_id if store.get_run(run_id) else runlist.evaluated_by(store.journal, run_id) or run_id


def _summaries(store: Store, rows: Sequence[RunRow]) -> list[RunSummary]:
    journal = store.journal
    ids = [row.run_id for row in rows]
    exams = [row.run_id for row in rows if row.kind == EVAL]
    sources = [(run_id, run_id) for run_id in ids] + runlist.evaluations(journal, exams)
    passes = [row.run_id for row in rows if _record(row).get("mode") == "offline"]
    totals = runlist.totals(journal, sources, last_pass=passes)
    changed = runlist.changes(journal, ids, [f"knowledge.{name}" for name in CHANGES])
    acting = runlist.acting(journal, [row.run_id for row in rows if row.kind not in RESUMABLE])
    by_run: dict[str, dict[str, ArmTotals]] = {run_id: {} for run_id in ids}
    for (run_id, arm), each in totals.items():
        by_run[run_id][arm] = each
    found = [_summary(store, row, by_run[row.run_id], changed.get(row.run_id, 0)) for row in rows]
    found = [each.model_copy(update={"policy": acting.get(each.run_id, each.policy)}) for each in found]
    found = [_compared(store, each) if each.kind == COMPARE else each for each in found]
    return _with_evaluated(store, found, exams)


def _summary(store: Store, row: RunRow, arms: dict[str, ArmTotals], changes: int) -> RunSummary:
    record = _record(row)
    status, started, ended = _times(store, row)
    shown, bare = _joined(arms, WITH_MEMORY), _joined(arms, WITHOUT_MEMORY)
    learns = row.kind == LEARN
    return RunSummary(
        run_id=row.run_id,
        kind=row.kind,
        name=record.get("name", ""),
        tags=tuple(record.get("tags", ())),
        mode=record.get("mode", ""),
        status=status,
        reason=record.get("reason", ""),
        started=started,
        ended=ended,
        policy=record.get("policy", ""),
        policy_version=record.get("policy_version", ""),
        environment=record.get("environment", ""),
        client=record.get("client", ""),
        planned=len(record.get("tasks", ())) if learns else None,
        tasks=shown.tasks,
        solved=shown.solved,
        success=_share(shown.solved, shown.tasks),
        mean_reward=_share(shown.reward, shown.graded),
        control_tasks=bare.tasks,
        control_success=_share(bare.solved, bare.tasks),
        episodes=sum(each.episodes for each in arms.values()),
        changes=changes,
        tokens=sum(each.tokens for each in arms.values()),
        cost_usd=sum(each.cost_usd for each in arms.values()),
        seconds=record.get("seconds") or (ended - started).total_seconds(),
        snapshot=record.get("snapshot_id"),
    )


def _compared(store: Store, run: RunSummary) -> RunSummary:
    """Return the line of a comparison with its figures: the first arm's, and the control's beside it."""
    events = store.events(type=ENDED, run_id=run.run_id)
    arms = events[-1].data.get("arms", ()) if events else ()
    if not arms:
        return run
    bare = next((arm for arm in arms if arm["role"] == "control"), None)
    usages = [arm[part] for arm in arms for part in ("learning", "gates", "judging")]
    figures = {
        "tasks": arms[0]["episodes"],
        "solved": round(arms[0]["rate"] * arms[0]["episodes"]),
        "success": arms[0]["rate"],
        "control_tasks": bare["episodes"] if bare else 0,
        "control_success": bare["rate"] if bare else None,
        "episodes": sum(arm["episodes"] for arm in arms),
        "changes": sum(arm["changes"] for arm in arms),
        "tokens": sum(each["prompt_tokens"] + each["completion_tokens"] for each in usages),
        "cost_usd": sum(each["cost_usd"] for each in usages),
    }
    return run.model_copy(update=figures)


def _times(store: Store, row: RunRow) -> tuple[str, datetime, datetime]:
    """Return the status with the first and the last sign of a run; what was left running ends with its last one."""
    status = _record(row).get("status", DONE)
    over = row.record is not None and status != RUNNING
    last = runlist.moment(store.journal, row.latest) if over else runlist.last_sign(store.journal, row.run_id)
    started, ended = datetime.fromisoformat(row.started), datetime.fromisoformat(last)
    if status == RUNNING and not _is_alive(store, row, ended):
        status = STALE
    return status, started, ended


def _is_alive(store: Store, row: RunRow, heard: datetime) -> bool:
    """Tell whether a run that says `running` does: by its lock, or what holds none by the time it was last heard of."""
    if row.kind in RESUMABLE:
        return store.journal.leased(row.run_id)
    return datetime.now(UTC) - heard <= LEASE


def _with_evaluated(store: Store, found: list[RunSummary], exams: Collection[str]) -> list[RunSummary]:
    """Return the lines with the knowledge that each evaluation was made of, and the run it came from."""
    if not exams:
        return found
    ended = runlist.ended_at(store.journal)
    starts = dict(_marks(store, exams))
    lines: list[RunSummary] = []
    for each in found:
        if each.run_id in starts:
            snapshot, seq = starts[each.run_id]
            parents = [run for run, end, at in ended if at < seq and end.split("@")[0] == snapshot.split("@")[0]]
            each = each.model_copy(update={"snapshot": snapshot, "parent": parents[-1] if parents else None})
        lines.append(each)
    return lines


def _marks(store: Store, run_ids: Collection[str]) -> list[tuple[str, tuple[str, int]]]:
    """Return run -> the snapshot it began with, and the place of that mark in the journal."""
    marks = [(run_id, store.events(type="run.mark", run_id=run_id, limit=1)) for run_id in run_ids]
    return [
        (run_id, (mark.data["snapshot"], mark.seq or 0))
        for run_id, found in marks  # none where it stopped before its first task
        for mark in found
        if "snapshot" in mark.data
    ]


def _date(text: str) -> str:
    """Return a date as the journal writes it; a time with a zone is turned into UTC."""
    if not text:
        return ""
    try:
        given = datetime.fromisoformat(text)
    except ValueError as wrong:
        raise BadInput(f"got date {text!r}; expected one such as 2026-11-22, or 2026-11-22T18:30") from wrong
    if given.tzinfo is None and re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return text
    return given.replace(tzinfo=given.tzinfo or UTC).astimezone(UTC).isoformat()


def _joined(arms: dict[str, ArmTotals], names: Collection[str]) -> ArmTotals:
    found = [astuple(arms[name]) for name in names if name in arms]
    return ArmTotals(*map(sum, zip(*found, strict=True))) if found else ArmTotals(0, 0, 0, 0, 0.0, 0, 0.0, 0.0)


def _record(row: RunRow) -> dict[str, Any]:
    return row.record or {}


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None
