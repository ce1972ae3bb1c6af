"""Reading knowledge: records built from the projection, and the read-only view that gates and roles get."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from memory.errors import JournalError
from memory.journal import Journal
from memory.kinds import parse_record
from memory.projection import COUNTS
from memory.records import RECALLABLE, Record

_COLUMNS = (
    "r.id, r.kind, r.schema_version, r.namespace, r.number, r.supersedes, r.created_at, v.status, v.version, v.slug,"
    " v.pinned, v.content_hash, v.provenance, r.updated_at"
)
_BODY = f"c.body, {', '.join(f'u.{name}' for name in COUNTS)}"


@dataclass(frozen=True)
class View:
    """A namespace as it was at one moment. `records` are the recallable ones; `get` also finds the others."""

    namespace: str
    version: int
    all_records: tuple[Record[Any], ...]
    find: Callable[[str], Record[Any] | None]
    kept: dict[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)

    def records(self, kind: str | None = None) -> tuple[Record[Any], ...]:
        """Return recallable records in order of creation, of one kind if named."""
        return self.all_records if kind is None else self._by_kind.get(kind, ())

    def get(self, record_id: str) -> Record[Any] | None:
        """Return a record of any status, as it stands in this view if it is recallable here."""
        return self._by_id.get(record_id) or self.find(record_id)

    @cached_property
    def _by_kind(self) -> dict[str, tuple[Record[Any], ...]]:
        found: dict[str, list[Record[Any]]] = defaultdict(list)
        for record in self.all_records:
            found[record.kind].append(record)
        return {kind: tuple(records) for kind, records in found.items()}

    @cached_property
    def _by_id(self) -> dict[str, Record[Any]]:
        return {record.id: record for record in self.all_records}


class Reader:
    """Builds records and keeps them until an event changes them; a parsed record is shared, never copied.

    A view is brought up to date with the records that changed since the last one, so it costs what changed, not what is
    there.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._records: dict[str, tuple[int, Record[Any]]] = {}
        self._views: dict[str, tuple[int, dict[int, Record[Any]], View]] = {}

    def head(self, namespace: str) -> tuple[int, int]:
        """Return (namespace version, seq of its last change); zeros for one that does not exist yet."""
        rows = self._journal.query("SELECT version, head FROM namespaces WHERE namespace = ?", (namespace,))
        return (rows[0][0], rows[0][1]) if rows else (0, 0)

    def view(self, namespace: str) -> View:
        """Return the live view; the same object as long as nothing changed."""
        with self._journal.lock:
            version, head = self.head(namespace)
            seen, live, view = self._views.get(namespace, (0, {}, None))
            if view is None or seen != head:
                live = self._update(namespace, live, seen)
                kept = view.kept if view else {}
                view = View(namespace, version, tuple(live[number] for number in sorted(live)), self.get, kept)
                self._views[namespace] = (head, live, view)
            return view

    def get(self, record_id: str) -> Record[Any] | None:
        """Return a record of any status; None when there is none or it was forgotten."""
        found = self.load([record_id])
        return found[0] if found else None

    def everything(self, namespace: str) -> tuple[Record[Any], ...]:
        """Return all records of a namespace that were not forgotten, in order of creation."""
        rows = self._journal.query("SELECT id FROM records WHERE namespace = ? ORDER BY number", (namespace,))
        return self.load([row[0] for row in rows])

    def _update(self, namespace: str, live: dict[int, Record[Any]], seen: int) -> dict[int, Record[Any]]:
        """Return number -> record of the recallable ones: `live` with everything applied that changed after `seen`."""
        changed = self._journal.query(
            "SELECT r.id, r.number FROM (SELECT id FROM records WHERE seq > ? UNION"
            " SELECT record_id FROM usage WHERE seq > ?) c JOIN records r ON r.id = c.id WHERE +r.namespace = ?",
            (seen, seen, namespace),
        )
        gone = {number for _, number in changed}
        kept = {number: record for number, record in live.items() if number not in gone}
        fresh = self.load([record_id for record_id, _ in changed])
        return kept | {record.number: record for record in fresh if record.status in RECALLABLE}

    def load(self, ids: Sequence[str]) -> tuple[Record[Any], ...]:
        """Return records in the order of `ids`; forgotten and unknown ones are left out."""
        wanted = json.dumps(list(ids))
        with self._journal.lock:
            stamps = self._journal.query(
                "SELECT r.id, max(r.seq, u.seq) FROM json_each(?) j JOIN records r ON r.id = j.value"
                " JOIN usage u ON u.record_id = r.id WHERE r.forgotten = 0 ORDER BY j.key",
                (wanted,),
            )
            return tuple(self.at(stamps))

    def at(self, stamps: Sequence[tuple[str, int]]) -> list[Record[Any]]:
        """Return records by id and the seq of what last changed them; what was forgotten since is left out."""
        with self._journal.lock:
            missing = [key for key, seq in stamps if self._records.get(key, (0, None))[0] != seq]
            if missing:
                self._fetch(missing, dict(stamps))
            return [self._records[key][1] for key, _ in stamps if key in self._records]

    def versions(self, record_id: str) -> tuple[Record[Any], ...]:
        """Return every version of a record, oldest first, each with today's usage; none when it was forgotten."""
        rows = self._journal.query(
            f"SELECT {_COLUMNS.replace('r.updated_at', 'v.updated_at')}, {_BODY} FROM records r"
            " JOIN versions v ON v.record_id = r.id JOIN usage u ON u.record_id = r.id"
            " LEFT JOIN content c ON c.hash = v.content_hash WHERE r.id = ? AND r.forgotten = 0 ORDER BY v.version",
            (record_id,),
        )
        return tuple(map(build, rows))

    def _fetch(self, ids: Sequence[str], stamps: dict[str, int]) -> None:
        rows = self._journal.query(
            f"SELECT {_COLUMNS}, {_BODY} FROM json_each(?) j JOIN records r ON r.id = j.value"
            " JOIN versions v ON v.record_id = r.id AND v.version = r.version JOIN usage u ON u.record_id = r.id"
            " LEFT JOIN content c ON c.hash = v.content_hash WHERE r.forgotten = 0",
            (json.dumps(list(ids)),),
        )
        for key in ids:
            self._records.pop(key, None)
        for row in rows:
            self._records[row[0]] = (stamps[row[0]], build(row))


def build(row: tuple[Any, ...]) -> Record[Any]:
    """Return the record of one row of `_COLUMNS` + `_BODY`. Raises `JournalError` when its text is missing."""
    (record_id, kind, schema_version, namespace, number, supersedes, created_at, status, version, slug, pinned) = row[
        :11
    ]
    content_hash, provenance, updated_at, body = row[11:15]
    if body is None:
        raise JournalError(f"text of record {record_id!r} ({content_hash}) is missing; run `evolve memory doctor`")
    return parse_record(
        {
            "id": record_id,
            "kind": kind,
            "schema_version": schema_version,
            "namespace": namespace,
            "status": status,
            "version": version,
            "number": number,
            "slug": slug,
            "pinned": bool(pinned),
            "supersedes": json.loads(supersedes),
            "content_hash": content_hash,
            "payload": json.loads(body)["payload"],
            "provenance": json.loads(provenance),
            "usage": dict(zip(COUNTS, row[15:], strict=True)),
            "created_at": created_at,
            "updated_at": updated_at,
        }
    )


def frozen_records(journal: Journal, rows: Sequence[Sequence[Any]]) -> tuple[Record[Any], ...]:
    """Return records as a snapshot froze them: `rows` are `[id, version, content hash, [usage counts]]`.

    In order of creation; records forgotten since are left out.
    """
    found = journal.query(
        f"SELECT {_COLUMNS.replace('r.updated_at', 'v.updated_at')}, c.body, j.value ->> 3 FROM json_each(?) j"
        " JOIN records r ON r.id = j.value ->> 0"
        " JOIN versions v ON v.record_id = r.id AND v.version = CAST(j.value ->> 1 AS INTEGER)"
        " LEFT JOIN content c ON c.hash = v.content_hash WHERE r.forgotten = 0 ORDER BY r.number",
        (json.dumps(list(rows)),),
    )
    return tuple(build((*row[:15], *json.loads(row[15]))) for row in found)
