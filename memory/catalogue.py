"""Catalogue of the recallable records of a namespace for ranking, kept in memory and brought up to date.

A record is read once and again when it or its usage changed, so a recall costs what changed, not what is there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from memory.journal import Journal
from memory.records import RECALLABLE, UsageCounts


@dataclass(frozen=True)
class Candidate:
    """What ranking needs to know of a record, without parsing it."""

    id: str
    kind: str
    number: int
    version: int
    seq: int
    """Of the event that last changed it or its usage; 0 in a snapshot."""
    utility: float


@dataclass
class Known:
    """The recallable records of a namespace."""

    seen: int = -1
    """Seq of the last change that is in here."""
    by_id: dict[str, Candidate] = field(default_factory=dict[str, Candidate])
    by_row: dict[int, Candidate] = field(default_factory=dict[int, Candidate])
    """By the row of `records`, which is that of `record_text`."""
    kinds: set[str] = field(default_factory=set[str])
    """Those that were ever seen."""


class Catalogue:
    """The recallable records of all namespaces. Safe to share between threads."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: dict[str, Known] = {}

    def of(self, namespace: str) -> Known:
        """Return the recallable records of a namespace as of the last commit."""
        with self._journal.lock:
            known = self._known.setdefault(namespace, Known())
            rows = self._journal.query("SELECT head FROM namespaces WHERE namespace = ?", (namespace,))
            if rows and rows[0][0] != known.seen:
                self._update(namespace, known)
                known.seen = rows[0][0]
            return known

    def _update(self, namespace: str, known: Known) -> None:
        changed = self._journal.query(
            "SELECT r.row, r.status, r.forgotten, r.id, r.kind, r.number, r.version, max(r.seq, u.seq), u.helpful,"
            " u.harmful FROM (SELECT id FROM records WHERE seq > ? UNION SELECT record_id FROM usage WHERE seq > ?) c"
            " CROSS JOIN records r ON r.id = c.id CROSS JOIN usage u ON u.record_id = r.id WHERE +r.namespace = ?",
            (known.seen, known.seen, namespace),
        )
        for row, status, forgotten, record_id, kind, number, version, seq, helpful, harmful in changed:
            if status in RECALLABLE and not forgotten:
                candidate = Candidate(record_id, kind, number, version, seq, _utility(helpful, harmful))
                known.by_id[record_id] = known.by_row[row] = candidate
                known.kinds.add(kind)
            else:
                known.by_id.pop(record_id, None)
                known.by_row.pop(row, None)


@lru_cache(maxsize=4096)
def _utility(helpful: int, harmful: int) -> float:
    return UsageCounts(helpful=helpful, harmful=harmful).utility
