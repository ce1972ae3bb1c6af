"""Evidence for and against a record, replayed from the journal. Nothing is stored, and no clock of seconds runs.

A mark is what one event counted; its age is the number of tasks that were done since. Only marks of the present text
count: what was said of an earlier wording, or before the record was brought back from retirement, is history. What a
merge carried over from its parents counts from the merge on.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
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
    ids = [record.id for record in records]
    back = brought_back(journal, ids, until)
    said: dict[str, dict[int, int]] = {key: {} for key in ids}
    for key, version, seq in _present_text(journal, records, back):
        said[key][version] = seq
    found: dict[str, list[Mark]] = {key: [] for key in ids}
    for key, seq, version, usage in _events(journal, ids, after=tasks[0] if len(tasks) == horizon else 0, to=until):
        if version in said[key] and seq > back.get(key, 0):
            found[key].append(Mark(seq, _age(tasks, seq), UsageCounts(**json.loads(usage))))
    born = {key: max(min(versions.values()), back.get(key, 0)) for key, versions in said.items()}
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


def _present_text(
    journal: Journal, records: Sequence[Record[Any]], back: Mapping[str, int]
) -> list[tuple[str, int, int]]:
    """Return (record id, version, its seq) of the unbroken run of live versions that say what it says now.

    `back` is the seq of a record's last rollback: what came before that is history, but for the version it gave back.
    """
    wanted = [[record.id, record.version, record.content_hash, back.get(record.id, 0)] for record in records]
    rows = journal.query(
        "WITH wanted AS (SELECT j.value ->> 0 AS id, CAST(j.value ->> 1 AS INTEGER) AS version, j.value ->> 2 AS hash,"
        "  CAST(j.value ->> 3 AS BIGINT) AS back FROM json_each(?) j),"
        " told AS (SELECT w.id, v.version, v.seq, CASE WHEN v.version < w.version"
        f"  AND (v.content_hash <> w.hash OR v.status NOT IN ({_LIVE})) THEN v.version ELSE 0 END AS broken"
        "  FROM wanted w JOIN versions v ON v.record_id = w.id AND v.version <= w.version"
        "  LEFT JOIN events e ON e.seq = w.back WHERE v.seq > w.back"
        "  OR v.version IN (w.version, CAST(e.meta ->> 'version' AS INTEGER))),"
        " ended AS (SELECT id, max(broken) AS version FROM told GROUP BY id)"
        " SELECT t.id, t.version, t.seq FROM told t JOIN ended b ON b.id = t.id AND t.version > b.version",
        (json.dumps(wanted),),
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


def _events(journal: Journal, ids: Sequence[str], *, after: int, to: int) -> list[tuple[str, int, int, str]]:
    """Return (record id, seq, version it speaks of, usage as JSON) of every event that counted something, in order."""
    return [
        (row[0], row[1], row[2], row[3])
        for row in journal.query(
            "SELECT e.subject, e.seq, CAST(e.meta ->> 'version' AS INTEGER), e.meta ->> 'usage' FROM json_each(?) j"
            " CROSS JOIN events e ON e.subject = j.value WHERE e.type IN ('knowledge.tag', 'knowledge.merge')"
            " AND e.seq > ? AND e.seq <= ? ORDER BY e.seq",
            (json.dumps(list(ids)), after, to),
        )
    ]
