"""Pages of what the journal holds, for whoever looks at it a screen at a time. Costs what a page holds, not what is
stored.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from memory.errors import BadInput
from memory.journal import ALL, Journal
from memory.lexical import query_words
from memory.trajectories import Usage

Order = Literal["newest", "oldest", "shown", "helpful", "harmful"]

_ORDERS: dict[Order, str] = {
    "newest": "r.number DESC",
    "oldest": "r.number",
    "shown": "u.injected DESC, r.number",
    "helpful": "(u.helpful + 1.0) / (u.helpful + u.harmful + 2) DESC, u.helpful DESC, r.number",
    "harmful": "(u.helpful + 1.0) / (u.helpful + u.harmful + 2), u.harmful DESC, r.number",
}


@dataclass(frozen=True)
class Wanted:
    """Which records of a namespace."""

    namespace: str
    kinds: Collection[str] = ()
    """Empty = all."""
    statuses: Collection[str] = ()
    """Empty = all."""
    text: str = ""
    """Words that all must occur; the last one may be unfinished."""
    order: Order = "newest"


@dataclass(frozen=True)
class EpisodeLine:
    """One episode in short."""

    id: str
    task_id: str
    arm: str
    success: bool
    steps: int
    shown: int
    tokens: int
    seconds: float
    cost_usd: float
    instruction: str
    error: str


def records(journal: Journal, wanted: Wanted, *, offset: int = 0, limit: int = 50) -> tuple[list[str], int]:
    """Return a page of record ids, and how many there are in all. Raises `BadInput` for an unknown order."""
    if wanted.order not in _ORDERS:
        raise BadInput(f"got order {wanted.order!r}; expected one of {', '.join(_ORDERS)}")
    words = query_words(wanted.text)
    if wanted.text.strip() and not words:
        return [], 0
    match, parameters = journal.words.holding(words) if words else ("", [])
    where = (
        "FROM records r JOIN usage u ON u.record_id = r.id WHERE r.namespace = ? AND r.forgotten = 0"
        + _among("r.kind", wanted.kinds)
        + _among("r.status", wanted.statuses)
        + (f" AND {match}" if match else "")
    )
    values = [wanted.namespace, *wanted.kinds, *wanted.statuses, *parameters]
    ((total,),) = journal.query(f"SELECT count(*) {where}", values)
    order = _ORDERS[wanted.order]
    rows = journal.query(f"SELECT r.id {where} ORDER BY {order} LIMIT ? OFFSET ?", [*values, limit, offset])
    return [row[0] for row in rows], total


def counts(journal: Journal, namespace: str) -> dict[str, dict[str, int]]:
    """Return kind -> status -> how many records."""
    found: dict[str, dict[str, int]] = {}
    for kind, status, count in journal.query(
        "SELECT kind, status, count(*) FROM records WHERE namespace = ? AND forgotten = 0 GROUP BY 1, 2", (namespace,)
    ):
        found.setdefault(kind, {})[status] = count
    return found


def episode_count(journal: Journal) -> int:
    """Return how many episodes there are, of all runs."""
    return int(journal.query("SELECT count(*) FROM trajectories")[0][0])


def missing_episodes(journal: Journal, run_id: str) -> int:
    """Return how many episodes of a run were erased without a trace of their outcome, as older versions did it."""
    rows = journal.query(
        "SELECT count(*) FROM events e WHERE e.run_id = ? AND e.type = 'trajectory'"
        " AND NOT EXISTS (SELECT 1 FROM trajectories t WHERE t.id = e.subject)",
        (run_id,),
    )
    return rows[0][0]


def used(journal: Journal, run_id: str) -> tuple[int, Usage]:
    """Return how many episodes of a run there are, and what they used in all."""
    names = tuple(Usage.model_fields)
    sums = ", ".join(f"total(c.body ->> '$.usage.{name}')" for name in names)
    (row,) = journal.query(
        f"SELECT count(*), {sums} FROM trajectories t JOIN content c ON c.hash = t.hash WHERE t.run_id = ?", (run_id,)
    )
    return row[0], Usage.model_validate(dict(zip(names, row[1:], strict=True)))


def used_by_role(journal: Journal, run_id: str) -> dict[str, Usage]:
    """Return role -> what its journalled model calls of a run used; the role is empty where none was stored."""
    names = tuple(Usage.model_fields)
    sums = ", ".join(f"total(c.body ->> '$.reply.usage.{name}')" for name in names)
    rows = journal.query(
        f"SELECT coalesce(c.body ->> '$.role', ''), {sums} FROM replies r JOIN content c ON c.hash = r.hash"
        " WHERE r.run_id = ? GROUP BY 1",
        (run_id,),
    )
    return {role: Usage.model_validate(dict(zip(names, sums, strict=True))) for role, *sums in rows}


def episodes(journal: Journal, names: str | Sequence[str], *, offset: int = 0, limit: int = ALL) -> list[EpisodeLine]:
    """Return a page of the episodes journalled under a run's name, or under several, in the order they were done."""
    rows = journal.query(
        "SELECT t.id, t.task_id, t.arm, coalesce(CAST(c.body ->> '$.outcome.success' AS INTEGER), 0),"
        " json_array_length(c.body, '$.steps'), json_array_length(c.body, '$.injected'),"
        " CAST(c.body ->> '$.usage.prompt_tokens' AS INTEGER),"
        " CAST(c.body ->> '$.usage.completion_tokens' AS INTEGER), CAST(c.body ->> '$.seconds' AS FLOAT8),"
        " CAST(c.body ->> '$.usage.cost_usd' AS FLOAT8), c.body ->> '$.task.instruction',"
        " coalesce(c.body ->> '$.error', '')"
        " FROM trajectories t JOIN content c ON c.hash = t.hash WHERE t.run_id IN (SELECT value FROM json_each(?))"
        " ORDER BY t.seq LIMIT ? OFFSET ?",
        (json.dumps([names] if isinstance(names, str) else list(names)), limit, offset),
    )
    return [
        EpisodeLine(
            id=row[0],
            task_id=row[1],
            arm=row[2],
            success=bool(row[3]),
            steps=row[4],
            shown=row[5],
            tokens=(row[6] or 0) + (row[7] or 0),
            seconds=row[8] or 0.0,
            cost_usd=row[9] or 0.0,
            instruction=row[10] or "",
            error=row[11],
        )
        for row in rows
    ]


def snapshots(
    journal: Journal, namespace: str, *, offset: int = 0, limit: int = 25
) -> tuple[list[dict[str, Any]], int]:
    """Return a page of snapshots, the latest first (`name`, `records`, `created_at`), and how many there are."""
    ((total,),) = journal.query("SELECT count(*) FROM snapshots WHERE namespace = ?", (namespace,))
    rows = journal.query(
        "SELECT id || '@' || position, json_array_length(body), created_at FROM snapshots WHERE namespace = ?"
        " ORDER BY position DESC, id DESC LIMIT ? OFFSET ?",
        (namespace, limit, offset),
    )
    return [{"name": name, "records": size, "created_at": at} for name, size, at in rows], total


def learned_from(journal: Journal, trajectory_id: str, task_id: str) -> list[str]:
    """Return the ids of the records that an episode taught, those forgotten left out."""
    rows = journal.query(
        "SELECT r.id FROM record_tasks t JOIN records r ON r.id = t.record_id WHERE t.task_id = ? AND r.forgotten = 0"
        " AND EXISTS (SELECT 1 FROM json_each(r.provenance, '$.trajectory_ids') j WHERE j.value = ?) ORDER BY r.number",
        (task_id, trajectory_id),
    )
    return [row[0] for row in rows]


def latest(journal: Journal, namespace: str, types: Collection[str], *, limit: int) -> list[int]:
    """Return the seqs of the latest events of these types in a namespace, the latest first."""
    rows = journal.query(
        f"SELECT seq FROM events WHERE namespace = ?{_among('type', types)} ORDER BY seq DESC LIMIT ?",
        (namespace, *types, limit),
    )
    return [row[0] for row in rows]


def namespaces(journal: Journal, types: Collection[str]) -> list[str]:
    """Return the namespaces that have an event of these types."""
    rows = journal.query(f"SELECT DISTINCT namespace FROM events WHERE true{_among('type', types)}", (*types,))
    return [row[0] for row in rows]


def _among(column: str, values: Collection[str]) -> str:
    return f" AND {column} IN ({', '.join('?' * len(values))})" if values else ""
