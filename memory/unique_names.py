"""At most one record in use has a name: for kinds that are called by one (`Payload.unique`), whoever writes at once."""

from __future__ import annotations

from memory.kinds import parse_payload
from memory.records import RECALLABLE, DeltaOp, Op, Payload
from memory.sql import sqlite3

_BODY = (
    "SELECT r.id, printf('%s-%05d', r.slug, r.number), c.body FROM records r JOIN content c ON c.hash = r.content_hash"
    " WHERE "
)
_USED = ", ".join(f"'{status}'" for status in sorted(RECALLABLE))


def holder(conn: sqlite3.Connection, namespace: str, op: DeltaOp, payload: Payload | None) -> str | None:
    """Return why an op may not bring its record into use: another one there has its name. None where it may.

    To be asked inside the transaction that applies the op. What the op replaces does not count.
    """
    if op.op in (Op.TAG, Op.REMOVE) or op.status not in RECALLABLE:
        return None
    if payload is None:
        row = conn.execute(_BODY + "r.id = ?", (op.target_id or "",)).fetchone()
        payload = parse_payload(row[2]) if row else None
    name = payload.unique() if payload else ""
    if payload is None or not name:
        return None
    replaced = {op.target_id, *op.parent_ids}
    rows = conn.execute(f"{_BODY}r.namespace = ? AND r.kind = ? AND r.status IN ({_USED})", (namespace, payload.kind))
    for record_id, label, body in rows:
        if record_id not in replaced and parse_payload(body).unique() == name:
            return f"taken: {label} is in use and named {name!r}; edit it, or choose another name"
    return None
