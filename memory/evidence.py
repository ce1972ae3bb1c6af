"""What speaks for and against a record, replayed from the journal. Nothing is stored, and no clock of seconds runs.

A mark is what one event counted; its age is the number of tasks that were done since. Only marks of the present text
count: what was said of an earlier wording, or before the record was brought back from retirement, is history. What a
merge carried over from its parents counts from the merge on.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memory.journal import Journal
from memory.records import Event, Record, UsageCounts

ELSEWHERE = "merge.evidence"
"""Event: how the record did in another workspace, the latest about it being what counts."""
_LIVE = "'candidate', 'provisional', 'active'"


@dataclass(frozen=True)
class Mark:
    """What one journal event counted about a record."""

    seq: int
    age: int
    """Tasks done since."""
    counts: UsageCounts


@dataclass(frozen=True)
class Evidence:
    """The marks of a record's present text, oldest first."""

    born: Mark
    """When this text came, with what it began with."""
    marks: tuple[Mark, ...] = ()

    @property
    def confirmed_at(self) -> int:
        """Seq of the last helpful mark; 0 without one."""
        return max((mark.seq for mark in self.marks if mark.counts.helpful), default=0)

    @property
    def refuted_at(self) -> int:
        """Seq of the last harmful mark; 0 without one."""
        return max((mark.seq for mark in self.marks if mark.counts.harmful), default=0)

    @property
    def supported_at(self) -> int:
        """Seq of the last thing that spoke for it: a helpful mark, or the event that stated it."""
        return max(self.born.seq, self.confirmed_at)

    @property
    def idle(self) -> int:
        """Tasks since it was last shown, or since it came."""
        return min((mark.age for mark in self.marks if mark.counts.injected), default=self.born.age)


def evidence(
    journal: Journal, namespace: str, records: Sequence[Record[Any]], *, horizon: int, until: int | None = None
) -> dict[str, Evidence]:
    """Return the evidence of each record as it stood after event `until` (default: now), by record id.

    Marks older than about `horizon` tasks are left out, and no age is counted beyond it. Tasks are the graded or
    ungraded episodes of the main arm in the runs that learned in this namespace; controls, evaluations and trials of
    gates are none.
    """
    until = journal.position() if until is None else until
    tasks = _tasks(journal, namespace, horizon, until)
    since = {key: (first, seq) for key, first, seq in _present_text(journal, records)}
    wanted = {record.id: record.version for record in records}
    back = brought_back(journal, list(wanted), until)
    found: dict[str, list[Mark]] = {key: [] for key in wanted}
    for key, seq, version, usage in _events(journal, wanted, after=tasks[0] if len(tasks) == horizon else 0, to=until):
        if since[key][0] <= version <= wanted[key] and seq > back.get(key, 0):
            found[key].append(Mark(seq, _age(tasks, seq), UsageCounts(**json.loads(usage))))
    born = {key: max(seq, back.get(key, 0)) for key, (_, seq) in since.items()}
    return {
        key: Evidence(Mark(born[key], _age(tasks, born[key]), UsageCounts()), tuple(marks))
        for key, marks in found.items()
    }


def reported(history: Sequence[Event]) -> dict[str, int]:
    """Return what somebody outside said of a record, by counter: it is kept and has no weight."""
    total: Counter[str] = Counter()
    for event in history:
        total.update(event.data.get("reported", {}))
    return dict(total)


def elsewhere(history: Sequence[Event]) -> dict[str, dict[str, int]]:
    """Return how a record did in workspaces that were merged into this one, by policy: kept, and without weight."""
    latest = {event.data.get("record"): event.data for event in history if event.type == ELSEWHERE}
    total: dict[str, Counter[str]] = {}
    for data in latest.values():
        for policy, counts in data.get("by_policy", {}).items():
            total.setdefault(policy, Counter()).update(counts)
    return {policy: dict(counts) for policy, counts in total.items()}


def _tasks(journal: Journal, namespace: str, horizon: int, until: int) -> list[int]:
    """Return the seqs of the last `horizon` tasks, oldest first."""
    rows = journal.query(
        "SELECT seq FROM events WHERE type = 'trajectory' AND meta ->> 'arm' = 'main' AND seq <= ? AND run_id IN"
        " (SELECT run_id FROM events WHERE type = 'knowledge.commit' AND namespace = ?) ORDER BY seq DESC LIMIT ?",
        (until, namespace, horizon),
    )
    return sorted(row[0] for row in rows)


def _age(tasks: Sequence[int], seq: int) -> int:
    return len(tasks) - bisect_right(tasks, seq)


def _present_text(journal: Journal, records: Sequence[Record[Any]]) -> list[tuple[str, int, int]]:
    """Return (record id, first version, its seq) of the unbroken run of live versions that say what it says now."""
    rows = journal.query(
        "WITH wanted AS (SELECT j.value ->> 0 AS id, CAST(j.value ->> 1 AS INTEGER) AS version, j.value ->> 2 AS hash"
        " FROM json_each(?) j),"
        " broken AS (SELECT w.id, coalesce(max(v.version), 0) AS version FROM wanted w LEFT JOIN versions v"
        "  ON v.record_id = w.id AND v.version < w.version"
        f"  AND (v.content_hash <> w.hash OR v.status NOT IN ({_LIVE})) GROUP BY w.id)"
        " SELECT b.id, b.version + 1, v.seq FROM broken b JOIN versions v"
        "  ON v.record_id = b.id AND v.version = b.version + 1",
        (json.dumps([[record.id, record.version, record.content_hash] for record in records]),),
    )
    return [(row[0], row[1], row[2]) for row in rows]


def brought_back(journal: Journal, ids: Sequence[str], until: int) -> dict[str, int]:
    """Return record id -> seq of the last rollback that gave it an earlier version back."""
    rows = journal.query(
        "SELECT e.subject, max(e.seq) FROM json_each(?) j CROSS JOIN events e ON e.subject = j.value"
        " WHERE e.type = 'knowledge.rolled_back' AND e.seq <= ? GROUP BY e.subject",
        (json.dumps(list(ids)), until),
    )
    return {row[0]: row[1] for row in rows}


def _events(journal: Journal, wanted: dict[str, int], *, after: int, to: int) -> list[tuple[str, int, int, str]]:
    """Return (record id, seq, version it speaks of, usage as JSON) of every event that counted something, in order."""
    return [
        (row[0], row[1], row[2], row[3])
        for row in journal.query(
            "SELECT e.subject, e.seq, CAST(e.meta ->> 'version' AS INTEGER), e.meta ->> 'usage' FROM json_each(?) j"
            " CROSS JOIN events e ON e.subject = j.value WHERE e.type IN ('knowledge.tag', 'knowledge.merge')"
            " AND e.seq > ? AND e.seq <= ? ORDER BY e.seq",
            (json.dumps(list(wanted)), after, to),
        )
    ]
