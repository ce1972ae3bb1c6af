"""Reading the journal: events by type, run and subject, the history of a record, and who wrote its present text.

What operations came to once they were applied: from the ids of operations to records, and back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from memory.content import clean_body
from memory.errors import BadInput, NotFound
from memory.journal import ALL, Journal
from memory.projection import HANDLERS, Entry
from memory.records import Event, now

BODIES = frozenset({"trajectory", "reflection", "reply", "eval", "run"})
"""Events whose text is read through their own methods; in the journal they show its hash."""


def append(journal: Journal, event: Event) -> Event:
    """Journal an event of one's own and return it with its seq. `data` is redacted and can be purged.

    Raises `BadInput` for a type that changes stored state: those are written by the store's own methods.
    """
    if not event.type or event.type in HANDLERS or event.type.startswith("knowledge."):
        raise BadInput(
            f"got event type {event.type!r}; that name is the store's own, choose another, e.g. 'gate.verdict'"
        )
    body, at = clean_body(event.data) if event.data else "", now()
    with journal.transaction():
        content = journal.put_body(body) if body else None
        seq = journal.write(Entry(event.type, event.subject, event.namespace, event.run_id, content=content), at)
    return event.model_copy(update={"seq": seq, "data": json.loads(body) if body else {}, "created_at": at})


def read(journal: Journal, *, after: int = 0, limit: int | None = None, **where: str | None) -> list[Event]:
    """Return events in order; `where` may name type, namespace, run_id, subject. Purged data is `{"purged": true}`."""
    wanted = {name: value for name, value in where.items() if value is not None}
    conditions = "".join(f" AND e.{name} = ?" for name in wanted)
    rows = journal.query(
        "SELECT e.seq, e.type, e.namespace, e.run_id, e.subject, e.meta, e.content, e.created_at, c.body FROM events e"
        f" LEFT JOIN content c ON c.hash = e.content WHERE e.seq > ?{conditions} ORDER BY e.seq LIMIT ?",
        (after, *wanted.values(), ALL if limit is None else limit),
    )
    return [_event(row) for row in rows]


def count(journal: Journal, **where: str) -> int:
    """Return how many events there are; `where` may name type, namespace, run_id, subject."""
    conditions = " AND ".join(f"{name} = ?" for name in where)
    return journal.query(f"SELECT count(*) FROM events WHERE {conditions}", tuple(where.values()))[0][0]


def read_data(journal: Journal, type: str, namespace: str, key: str, value: str) -> list[dict[str, Any]]:
    """Return the data of the events of a type in which `key` has this value, in order; others are not parsed."""
    rows = journal.query(
        "SELECT c.body FROM events e JOIN content c ON c.hash = e.content"
        " WHERE e.type = ? AND e.namespace = ? AND CAST(c.body ->> ? AS TEXT) = CAST(? AS TEXT) ORDER BY e.seq",
        (type, namespace, f"$.{key}", value),
    )
    return [json.loads(row[0]) for row in rows]


def _event(row: tuple[Any, ...]) -> Event:
    seq, kind, namespace, run_id, subject, meta, content, created_at, body = row
    data = json.loads(meta)
    if kind in BODIES:
        data["hash"] = content
    elif content is not None:
        data |= json.loads(body) if body is not None else {"purged": True}
    return Event(
        seq=seq, type=kind, namespace=namespace, run_id=run_id, subject=subject, data=data, created_at=created_at
    )


def blame(journal: Journal, record_id: str) -> Event:
    """Return the event that wrote the present text of a record: actor, run, op and reason are in its `data`.

    Raises `NotFound`.
    """
    rows = journal.query(
        "SELECT min(v.seq) FROM records r JOIN versions v ON v.record_id = r.id AND v.content_hash = r.content_hash"
        " WHERE r.id = ?",
        (record_id,),
    )
    if rows[0][0] is None:
        raise NotFound(f"no record {record_id!r}; list records with `evolve playbook list`")
    return read(journal, after=rows[0][0] - 1, limit=1)[0]


def ops_of(journal: Journal, record_id: str) -> frozenset[str]:
    """Return the ids of the operations that changed a record."""
    return frozenset(row[0] for row in journal.query("SELECT op_id FROM ops WHERE record_id = ?", (record_id,)))


def records_of(journal: Journal, op_ids: Sequence[str]) -> dict[str, str]:
    """Return op id -> id of the record that it changed, for those that were applied."""
    rows = journal.query(
        "SELECT op_id, record_id FROM ops WHERE op_id IN (SELECT value FROM json_each(?))", (json.dumps(list(op_ids)),)
    )
    return {row[0]: row[1] for row in rows}


def written_by(journal: Journal, op_ids: Sequence[str]) -> list[tuple[str, str]]:
    """Return (record id, content hash) of each version that these operations wrote. TAG writes none."""
    rows = journal.query(
        "SELECT v.record_id, v.content_hash FROM ops o JOIN versions v ON v.record_id = o.record_id"
        " AND v.version = o.version AND v.seq = o.seq WHERE o.op_id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(op_ids)),),
    )
    return [(row[0], row[1]) for row in rows]
