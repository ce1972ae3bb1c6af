"""Current state as a function of the journal: the one place that changes projection tables.

A live commit and `doctor --rebuild` both call `apply` with the same events in the same order, so both reach the same
state. Handlers read the event and the projection only, never content: a purge cannot change what a rebuild gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from memory.content import canonical
from memory.database_engine import Connection
from memory.records import UsageCounts

COUNTS = tuple(UsageCounts.model_fields)
"""Names of the usage counters, in the order of the `usage` table."""

TABLES = (
    "usage", "record_tasks", "versions", "records", "namespaces", "ops", "snapshots",
    "trajectories", "reflections", "replies", "evals", "runs",
)  # fmt: skip
"""Projection tables in an order in which they can be emptied."""


@dataclass(frozen=True)
class Entry:
    """One event to be written: structure in `meta` (survives a purge), the hash of free text in `content`."""

    type: str
    subject: str = ""
    namespace: str = ""
    run_id: str = ""
    meta: dict[str, Any] = field(default_factory=lambda: {})
    content: str | None = None


@dataclass(frozen=True)
class Applied:
    """An entry in its place in the journal."""

    conn: Connection
    seq: int
    entry: Entry
    created_at: str


def apply(conn: Connection, seq: int, entry: Entry, created_at: str) -> None:
    """Change the projection as the event says. Events without a handler (notes, verdicts) change nothing."""
    handler = HANDLERS.get(entry.type)
    if handler is not None:
        handler(Applied(conn, seq, entry, created_at))


def _new_record(event: Applied) -> None:
    meta, subject, created = event.entry.meta, event.entry.subject, event.created_at
    provenance = canonical(meta["provenance"])
    event.conn.execute(
        'INSERT INTO records ("row", id, namespace, kind, schema_version, number, slug, status, version, max_version,'
        " pinned, supersedes, content_hash, provenance, ns_version, forgotten, created_at, updated_at, seq)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?)",
        (
            event.seq, subject, event.entry.namespace, meta["kind"], meta["schema_version"], meta["number"],
            meta["slug"], meta["status"], meta["version"], meta["version"], meta["pinned"],
            canonical(meta["supersedes"]), meta["content_hash"], provenance, meta["ns_version"], created, created,
            event.seq,
        ),
    )  # fmt: skip
    _add_version(event, provenance)
    counts = [meta["usage"].get(name, 0) for name in COUNTS]
    event.conn.execute("INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (subject, *counts, event.seq))
    _touch(event, version=meta["ns_version"], number=meta["number"])
    _remember_op(event, meta["version"])


def _new_version(event: Applied) -> None:
    meta = event.entry.meta
    provenance = canonical(meta["provenance"])
    _add_version(event, provenance)
    event.conn.execute(
        "UPDATE records SET version = ?, max_version = ?, status = ?, pinned = ?, slug = ?, content_hash = ?,"
        " provenance = ?, updated_at = ?, ns_version = ?, seq = ? WHERE id = ?",
        (
            meta["version"], meta["version"], meta["status"], meta["pinned"], meta["slug"], meta["content_hash"],
            provenance, event.created_at, meta["ns_version"], event.seq, event.entry.subject,
        ),
    )  # fmt: skip
    _touch(event, version=meta["ns_version"])
    _remember_op(event, meta["version"])


def _add_version(event: Applied, provenance: str) -> None:
    meta, subject = event.entry.meta, event.entry.subject
    event.conn.execute(
        "INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            subject, meta["version"], meta["status"], meta["pinned"], meta["slug"], meta["content_hash"], provenance,
            event.created_at, event.seq,
        ),
    )  # fmt: skip
    if tasks := meta["provenance"]["task_ids"]:
        event.conn.executemany(
            "INSERT INTO record_tasks VALUES (?, ?) ON CONFLICT DO NOTHING", [(subject, task) for task in tasks]
        )


def _point(event: Applied) -> None:
    """Make an older version the current one again."""
    meta, subject = event.entry.meta, event.entry.subject
    event.conn.execute(
        "UPDATE records SET version = v.version, status = v.status, pinned = v.pinned, slug = v.slug,"
        " content_hash = v.content_hash, provenance = v.provenance, updated_at = ?, ns_version = ?, seq = ?"
        " FROM versions AS v WHERE records.id = ? AND v.record_id = ? AND v.version = ?",
        (event.created_at, meta["ns_version"], event.seq, subject, subject, meta["version"]),
    )
    _touch(event, version=meta["ns_version"])
    _remember_op(event, meta["version"])


def _tag(event: Applied) -> None:
    meta, subject = event.entry.meta, event.entry.subject
    names = [name for name in COUNTS if name in meta["usage"]]
    sets = "".join(f"{name} = {name} + ?, " for name in names)
    values = [meta["usage"][name] for name in names]
    event.conn.execute(f"UPDATE usage SET {sets}seq = ? WHERE record_id = ?", (*values, event.seq, subject))
    _touch(event)
    _remember_op(event, meta["version"])


def _touch(event: Applied, *, version: int = 0, number: int = 0) -> None:
    event.conn.execute(
        "INSERT INTO namespaces VALUES (?, ?, ?, ?) ON CONFLICT (namespace) DO UPDATE SET"
        " version = max(namespaces.version, excluded.version),"
        " next_number = max(namespaces.next_number, excluded.next_number),"
        " head = excluded.head",
        (event.entry.namespace, version, number + 1, event.seq),
    )


def _remember_op(event: Applied, version: int) -> None:
    op_id = event.entry.meta.get("op_id")
    if op_id:
        event.conn.execute("INSERT INTO ops VALUES (?, ?, ?, ?)", (op_id, event.entry.subject, version, event.seq))


def _forget(event: Applied) -> None:
    """Mark a record as forgotten, or a task: its episodes point to their figures then. Drop rows of a purged body."""
    meta, subject = event.entry.meta, event.entry.subject
    if meta["what"] == "record":
        event.conn.execute("UPDATE records SET forgotten = 1, seq = ? WHERE id = ?", (event.seq, subject))
        _touch(event, version=meta["ns_version"])
        return
    figures = meta.get("figures")
    gone = ("reflections", "replies") if figures is not None else ("trajectories", "reflections", "replies")
    for table in gone if meta["what"] == "task" else ():  # before there were figures, an episode went whole
        event.conn.execute(f"DELETE FROM {table} WHERE task_id = ?", (subject,))
    event.conn.executemany(
        "UPDATE trajectories SET hash = ? WHERE id = ?", [(h, key) for key, h in (figures or {}).items()]
    )
    for table in ("trajectories", "reflections", "replies", "evals", "runs"):
        event.conn.executemany(f"DELETE FROM {table} WHERE hash = ?", [(key,) for key in meta["hashes"]])


def _snapshot(event: Applied) -> None:
    meta = event.entry.meta
    body = canonical(frozen_rows(event.conn, event.entry.namespace))
    event.conn.execute(
        "INSERT INTO snapshots VALUES (?, ?, ?, ?, ?)",
        (event.entry.subject, meta["position"], event.entry.namespace, body, event.created_at),
    )


def frozen_rows(conn: Connection, namespace: str) -> list[list[Any]]:
    """Return `[id, version, content hash, [usage counts]]` of every recallable record, sorted by id."""
    counts = ", ".join(f"u.{name}" for name in COUNTS)
    rows = conn.execute(
        f"SELECT r.id, r.version, r.content_hash, {counts} FROM records r JOIN usage u ON u.record_id = r.id"
        " WHERE r.namespace = ? AND r.status IN ('provisional', 'active') AND r.forgotten = 0 ORDER BY r.id",
        (namespace,),
    )
    return [[*row[:3], list(row[3:])] for row in rows]


def _trajectory(event: Applied) -> None:
    meta, entry = event.entry.meta, event.entry
    event.conn.execute(
        "INSERT INTO trajectories VALUES (?, ?, ?, ?, ?, ?)",
        (entry.subject, entry.run_id, meta["task_id"], meta["arm"], entry.content, event.seq),
    )


def _reflection(event: Applied) -> None:
    meta, entry = event.entry.meta, event.entry
    event.conn.execute(
        "INSERT INTO reflections VALUES (?, ?, ?, ?, ?, ?, ?)",
        (entry.subject, entry.run_id, meta["task_id"], meta["trajectory_id"], meta["parsed"], entry.content, event.seq),
    )


def _reply(event: Applied) -> None:
    entry = event.entry
    event.conn.execute(
        "INSERT INTO replies VALUES (?, ?, ?, ?, ?)",
        (entry.subject, entry.run_id, entry.meta["task_id"], entry.content, event.seq),
    )


def _eval(event: Applied) -> None:
    event.conn.execute("INSERT INTO evals VALUES (?, ?, ?)", (event.entry.subject, event.entry.content, event.seq))


def _run(event: Applied) -> None:
    event.conn.execute(
        "INSERT INTO runs VALUES (?, ?, ?, ?)"
        " ON CONFLICT (run_id) DO UPDATE SET hash = excluded.hash, seq = excluded.seq",
        (event.entry.subject, event.entry.content, event.seq, event.seq),
    )


HANDLERS: dict[str, Callable[[Applied], None]] = {
    "knowledge.add": _new_record,
    "knowledge.edit": _new_version,
    "knowledge.tag": _tag,
    "knowledge.merge": _new_record,
    "knowledge.supersede": _new_record,
    "knowledge.superseded": _new_version,
    "knowledge.remove": _new_version,
    "knowledge.restore": _new_version,
    "knowledge.rolled_back": _point,
    "forgotten": _forget,
    "snapshot": _snapshot,
    "trajectory": _trajectory,
    "reflection": _reflection,
    "reply": _reply,
    "eval": _eval,
    "run": _run,
}
"""Event types with an effect on the projection. They are written by the store alone."""
