"""Versions of what is known: list the snapshots, see what changed between two, go back to one."""

from __future__ import annotations

from typing import Any

from evolve.lookup import find_snapshot
from evolve.loop.history import runs_at
from evolve.workspace.editing import OPERATOR
from evolve.workspace.plain_rows import Rows
from memory.records import Commit, Frozen, Record
from memory.snapshots import address
from memory.store import Store


class SnapshotRow(Frozen):
    """One version of what is known, in a line."""

    snapshot: str
    """Its name, for `diff` and `rollback`."""
    bullets: int
    """Records in it, of all kinds."""
    at: str
    runs: str | None
    """Runs that began or ended with it."""


class Edited(Frozen):
    """A record before and after."""

    before: str
    after: str


class KnowledgeDiff(Frozen):
    """What changed from one version to another; a line names the record, its version and its text."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[Edited, ...]


def snapshots(store: Store, namespace: str, limit: int = 20) -> Rows[SnapshotRow]:
    """Return the latest versions, newest last, with the runs that began or ended there."""
    at = runs_at(store, namespace)
    return Rows(
        SnapshotRow(
            snapshot=f"{s.id[:12]}@{s.position}",
            bullets=len(s.manifest),
            at=s.created_at.isoformat("T", "seconds"),
            runs=", ".join(at.get(address(s), ())) or None,
        )
        for s in store.snapshots(namespace)[-limit:]
    )


def diff(store: Store, namespace: str, a: str, b: str | None = None) -> KnowledgeDiff:
    """Return what changed from snapshot `a` to `b`, or to what is live now. Raises `NotFound` and `BadInput`."""
    names = [find_snapshot(store, namespace, a), find_snapshot(store, namespace, b) if b else None]
    before, after = ({r.id: r for r in store.view(namespace, name).records()} for name in names)
    return KnowledgeDiff(
        added=tuple(_line(record) for key, record in after.items() if key not in before),
        removed=tuple(_line(record) for key, record in before.items() if key not in after),
        changed=tuple(
            Edited(before=_line(before[key]), after=_line(record))
            for key, record in after.items()
            if key in before and before[key].version != record.version
        ),
    )


def rollback(store: Store, namespace: str, snapshot: str) -> Commit:
    """Make an earlier version the live one again; what was live is frozen first. Raises `NotFound` and `BadInput`."""
    name = find_snapshot(store, namespace, snapshot)
    store.snapshot(namespace)
    return store.rollback(namespace, name, actor=OPERATOR)


def _line(record: Record[Any]) -> str:
    return f"[{record.label} v{record.version}] {record.payload.text()}"
