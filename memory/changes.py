"""Writes of one commit: new records and versions, with text, vector and outbox row in the same transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memory.content import canonical
from memory.forget import Tombstone
from memory.journal import Journal
from memory.kinds import parse_payload
from memory.projection import Entry
from memory.proposals import Prepared
from memory.records import RECALLABLE, DeltaOp, Provenance, Status, UsageCounts, new_id
from memory.targets import Target


@dataclass(frozen=True)
class Batch:
    """One commit as it was asked for."""

    namespace: str
    ops: Sequence[Prepared]
    actor: str
    expected_version: int | None = None
    run_id: str = ""
    data: dict[str, Any] | None = None


@dataclass
class Change:
    """A commit in progress. `version` is the namespace's before it, `number` the next free one."""

    journal: Journal
    batch: Batch
    model: str
    dim: int
    version: int
    number: int
    forgotten: Mapping[str, Tombstone] = field(default_factory=dict[str, Tombstone])
    """Text -> tombstone, of those among the proposed texts that have one."""
    changed: bool = False

    def event(self, name: str, subject: str, meta: dict[str, Any], content: str | None = None) -> int:
        """Journal a knowledge event of this commit, apply it, and return its seq."""
        entry = Entry(
            f"knowledge.{name}",
            subject,
            self.batch.namespace,
            self.batch.run_id,
            {"actor": self.batch.actor, **meta},
            content,
        )
        return self.journal.write(entry)

    def create(self, item: Prepared, provenance: Provenance, usage: UsageCounts, supersedes: Sequence[str] = ()) -> str:
        """Write a new record and return its id."""
        op, record_id = item.op, new_id()
        meta = {
            "op_id": op.op_id,
            "kind": op.kind,
            "schema_version": 1,
            "number": self.number,
            "supersedes": list(supersedes),
            "usage": {name: count for name, count in usage.model_dump().items() if count},
            **self._state(1, op.status, op.pinned, provenance),
            "slug": item.slug,
            "content_hash": self.journal.put_body(item.body),
        }
        row = self.event(op.op.lower(), record_id, meta, self._reason(op))
        self.number += 1
        self.journal.words.put(row, item.text)
        self._index(record_id, 1, op.status, item)
        return record_id

    def revise(self, name: str, target: Target, op: DeltaOp, **state: Any) -> int:
        """Write the next version of a record and return it.

        `state` may hold `item` (a new payload), `status`, `pinned`, `provenance` and `by` (the superseding record).
        """
        item: Prepared | None = state.get("item")
        version = target.max_version + 1
        status, pinned = state.get("status", target.status), state.get("pinned", target.pinned)
        meta = self._state(version, status, pinned, state.get("provenance", target.provenance))
        meta["slug"] = item.slug if item else target.slug
        meta["content_hash"] = self.journal.put_body(item.body) if item else target.content_hash
        if "by" in state:
            meta["by"] = state["by"]
        else:
            meta["op_id"] = op.op_id
        self.event(name, target.id, meta, self._reason(op))
        if item is None:
            self.copy_vector(target.id, target.version, version)
            self.enqueue(target.id, version, status)
        else:
            self._set_text(target.row, item.text)
            self._index(target.id, version, status, item)
        return version

    def return_to(self, target: Target, version: int) -> None:
        """Make an older version of a record the current one again."""
        self.changed = True
        self.event("rolled_back", target.id, {"version": version, "ns_version": self.version + 1})
        conn = self.journal.conn
        status, body = conn.execute(
            "SELECT v.status, c.body FROM versions v JOIN content c ON c.hash = v.content_hash"
            " WHERE v.record_id = ? AND v.version = ?",
            (target.id, version),
        ).fetchone()
        self._set_text(target.row, parse_payload(body).text())
        self.enqueue(target.id, version, Status(status))

    def _state(self, version: int, status: Status, pinned: bool, provenance: Provenance) -> dict[str, Any]:
        self.changed = True
        return {
            "version": version,
            "ns_version": self.version + 1,
            "status": status.value,
            "pinned": int(pinned),
            "provenance": provenance.model_dump(mode="json"),
        }

    def _reason(self, op: DeltaOp) -> str | None:
        return self.journal.put_body(canonical({"reason": op.reason})) if op.reason else None

    def _index(self, record_id: str, version: int, status: Status, item: Prepared) -> None:
        self.journal.conn.execute(
            "INSERT INTO embeddings VALUES (?, ?, ?, ?, ?, ?)",
            (record_id, version, self.model, self.dim, item.key_hash, item.vector),
        )
        self.enqueue(record_id, version, status)

    def _set_text(self, row: int, text: str) -> None:
        self.journal.words.remove(row)
        self.journal.words.put(row, text)

    def copy_vector(self, record_id: str, old: int, new: int) -> None:
        """Give a version whose text did not change the vector of the one before."""
        self.journal.conn.execute(
            "INSERT INTO embeddings SELECT record_id, ?, model, dim, sha256, vector FROM embeddings"
            " WHERE record_id = ? AND version = ?",
            (new, record_id, old),
        )

    def enqueue(self, record_id: str, version: int, status: Status) -> None:
        """Tell the vector index what to do about a record: only recallable ones are in it."""
        action = "upsert" if status in RECALLABLE else "remove"
        self.journal.conn.execute(
            "INSERT INTO outbox (record_id, version, action) VALUES (?, ?, ?)", (record_id, version, action)
        )
