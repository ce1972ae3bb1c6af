"""What operations came to once they were applied: from the ids of operations to records, and back."""

from __future__ import annotations

from collections.abc import Sequence

from memory.journal import Journal


def ops_of(journal: Journal, record_id: str) -> frozenset[str]:
    """Return the ids of the operations that changed a record."""
    return frozenset(row[0] for row in journal.query("SELECT op_id FROM ops WHERE record_id = ?", (record_id,)))


def records_of(journal: Journal, op_ids: Sequence[str]) -> dict[str, str]:
    """Return op id -> id of the record that it changed, for those that were applied."""
    rows = journal.query(f"SELECT op_id, record_id FROM ops WHERE op_id IN ({_marks(op_ids)})", tuple(op_ids))
    return {row[0]: row[1] for row in rows}


def written_by(journal: Journal, op_ids: Sequence[str]) -> list[tuple[str, str]]:
    """Return (record id, content hash) of each version that these operations wrote. TAG writes none."""
    rows = journal.query(
        "SELECT v.record_id, v.content_hash FROM ops o JOIN versions v ON v.record_id = o.record_id"
        f" AND v.version = o.version AND v.seq = o.seq WHERE o.op_id IN ({_marks(op_ids)})",
        tuple(op_ids),
    )
    return [(row[0], row[1]) for row in rows]


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))
