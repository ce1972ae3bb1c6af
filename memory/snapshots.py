"""Snapshots: a named set of (record, version, hash) with frozen usage, and going back to one.

A snapshot is named by the hash of its manifest, so the same set always has the same name. When the same set is frozen
again after its usage counters moved, both freezes are kept: `<id>` means the latest one, `<id>@<position>` a
particular one.
"""

from __future__ import annotations

import json
from typing import Any

from memory.changes import Batch, Change
from memory.content import canonical, digest
from memory.errors import NotFound
from memory.journal import Journal
from memory.projection import Entry, frozen_rows
from memory.records import Commit, DeltaOp, Op, OpResult, Record, Snapshot, Status
from memory.targets import find_target
from memory.view import frozen_records

Row = list[Any]
"""`[record id, version, content hash, [usage counts]]`."""


def take(journal: Journal, namespace: str) -> Snapshot:
    """Freeze the recallable records of a namespace now. Nothing is written when the last freeze still holds."""
    with journal.transaction() as conn:
        rows = frozen_rows(conn, namespace)
        name = _name(namespace, rows)
        newest = "SELECT body, position, created_at FROM snapshots WHERE id = ? ORDER BY position DESC"
        last = conn.execute(newest, (name,)).fetchone()
        if last is None or last[0] != canonical(rows):
            journal.write(Entry("snapshot", name, namespace, meta={"position": journal.position()}))
            last = conn.execute(newest, (name,)).fetchone()
        return _snapshot(name, namespace, last[1], rows, last[2])


def name_now(journal: Journal, namespace: str) -> str:
    """Return what a snapshot taken now would be called. Nothing is written."""
    with journal.lock:
        return _name(namespace, frozen_rows(journal.conn, namespace))


def _name(namespace: str, rows: list[Row]) -> str:
    return digest(canonical([namespace, [row[:3] for row in rows]]))


def _snapshot(name: str, namespace: str, position: int, rows: list[Row], created_at: str) -> Snapshot:
    return Snapshot.model_validate(
        {
            "id": name,
            "namespace": namespace,
            "manifest": [row[:3] for row in rows],
            "position": position,
            "created_at": created_at,
        }
    )


def address(snapshot: Snapshot) -> str:
    """Return the name of this very freeze, `<id>@<position>`: what an evaluation should record."""
    return f"{snapshot.id}@{snapshot.position}"


def find(journal: Journal, name: str) -> Snapshot:
    """Return a snapshot by `<id>` or `<id>@<position>`. Raises `NotFound`."""
    namespace, position, rows, created_at = _load(journal, name)
    return _snapshot(name.partition("@")[0], namespace, position, rows, created_at)


def _load(journal: Journal, name: str) -> tuple[str, int, list[Row], Any]:
    snapshot_id, _, position = name.partition("@")
    found = journal.query(
        "SELECT namespace, position, body, created_at FROM snapshots"
        " WHERE id = ? AND (? = '' OR CAST(position AS TEXT) = ?) ORDER BY position DESC LIMIT 1",
        (snapshot_id, position, position),
    )
    if not found:
        raise NotFound(f"no snapshot {name!r}; list those there are with `evolve playbook log`")
    namespace, at, body, created_at = found[0]
    return namespace, at, json.loads(body), created_at


def listing(journal: Journal, namespace: str) -> tuple[Snapshot, ...]:
    """Return every freeze of a namespace, oldest first."""
    names = journal.query(
        "SELECT id || '@' || position FROM snapshots WHERE namespace = ? ORDER BY position, id", (namespace,)
    )
    return tuple(find(journal, name) for (name,) in names)


def frozen(journal: Journal, name: str) -> tuple[Record[Any], ...]:
    """Return the records of a snapshot as they were, usage included; those forgotten since are left out."""
    return frozen_records(journal, _load(journal, name)[2])


def rollback(journal: Journal, namespace: str, name: str, *, actor: str) -> Commit:
    """Make the recallable set of a namespace that of a snapshot again, as one journalled commit.

    Records of the manifest get their version of then back; recallable ones outside it are retired. Usage stays: what
    happened, happened. A record forgotten since cannot come back and is reported as refused. Raises `NotFound`.
    """
    with journal.transaction() as conn:
        origin, position, rows, _ = _load(journal, name)
        if origin != namespace:
            raise NotFound(f"snapshot {name!r} belongs to namespace {origin!r}, not to {namespace!r}")
        version = conn.execute("SELECT version FROM namespaces WHERE namespace = ?", (namespace,)).fetchone()
        change = Change(journal, Batch(namespace, (), actor), "", 0, version[0] if version else 0, 0)
        results = [*_retire_others(change, {row[0] for row in rows}), *(_point(change, *row[:2]) for row in rows)]
        results = [result for result in results if result.reason != "unchanged"]
        after = change.version + change.changed
        change.event("rollback", name.partition("@")[0], {"version": after, "position": position})
        return Commit(namespace=namespace, version=after, results=tuple(results))


def _retire_others(change: Change, keep: set[str]) -> list[OpResult]:
    results: list[OpResult] = []
    live = [row[0] for row in frozen_rows(change.journal.conn, change.batch.namespace)]
    for target in (find_target(change.journal.conn, key) for key in live if key not in keep):
        if target is not None:
            op = DeltaOp(op=Op.REMOVE, target_id=target.id)
            version = change.revise("remove", target, op, status=Status.RETIRED)
            results.append(OpResult(op_id=op.op_id, applied=True, record_id=target.id, version=version))
    return results


def _point(change: Change, record_id: str, version: int) -> OpResult:
    """Move a record's pointer back to a version; its text, vector and index entry follow."""
    op_id = f"rollback:{record_id}"
    target = find_target(change.journal.conn, record_id)
    if target is None or target.forgotten:
        return OpResult(op_id=op_id, applied=False, record_id=record_id, reason="forgotten since the snapshot")
    if target.version == version:
        return OpResult(op_id=op_id, applied=True, record_id=record_id, version=version, reason="unchanged")
    change.return_to(target, version)
    return OpResult(op_id=op_id, applied=True, record_id=record_id, version=version)
