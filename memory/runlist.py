"""Everything that happened, as runs: pages of run records, and what their episodes came to.

A run is listed where it has a record, and also where only its events tell of it: sessions that an earlier version
journalled without one. The episodes of gates are no run, and those of an evaluation belong to the run that made it.
"""

from __future__ import annotations

import json
import string
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from memory.journal import Journal

BEGUN = "evaluation.begun"
"""Event: run `run_id` begins the evaluation `subject`, under whose name its episodes are journalled."""
EXAMS = (BEGUN, "evaluation", "attempts")
"""Events that name an evaluation and its run; earlier versions journalled the last two alone, when it was over."""
OPENED = "session.opened"
"""Event: a client came, over MCP or REST."""
KINDS = {"frozen": "eval", "quarantine": "quarantine"}
"""Mode of a record without a kind -> the kind; any other mode is `learn`."""

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
"""What `lower` does to a stored text in both databases. Of a parameter PostgreSQL lowers what its locale says."""
_BY_MODE = " ".join(f"WHEN '{mode}' THEN '{kind}'" for mode, kind in KINDS.items())
_EXAMS = ", ".join(f"'{name}'" for name in EXAMS)
_LISTED = f"""
WITH listed (run_id, hash, first, latest, kind) AS (
  SELECT run_id, hash, created_seq, seq, '' FROM runs
  UNION ALL
  SELECT o.run_id, NULL, min(o.seq), max(o.seq), 'mcp' FROM events o
    WHERE o.type = '{OPENED}' AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.run_id = o.run_id) GROUP BY o.run_id
  UNION ALL
  SELECT run_id, NULL, first, latest,
      CASE WHEN substr(run_id, 1, 3) IN ('ev-', 'at-') THEN 'eval' ELSE 'session' END
    FROM (SELECT run_id, min(seq) AS first, max(seq) AS latest FROM trajectories GROUP BY run_id) AS named
    WHERE run_id <> '' AND substr(run_id, length(run_id) - 5) <> '/gates'
      AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.run_id = named.run_id)
      AND NOT EXISTS (SELECT 1 FROM events e WHERE e.subject = named.run_id AND e.type IN ({_EXAMS}))
      AND NOT EXISTS (SELECT 1 FROM events e WHERE e.run_id = named.run_id AND e.type = '{OPENED}')
),
told (run_id, first, latest, kind, body, started) AS (
  SELECT l.run_id, l.first, l.latest,
      coalesce(nullif(l.kind, ''), nullif(c.body ->> '$.kind', ''),
        CASE c.body ->> '$.mode' {_BY_MODE} ELSE 'learn' END),
      c.body, e.created_at
    FROM listed l LEFT JOIN content c ON c.hash = l.hash JOIN events e ON e.seq = l.first
)
"""


@dataclass(frozen=True)
class RunFilter:
    """Conditions on a list of runs; those left empty do not count."""

    kinds: Collection[str] = ()
    tag: str = ""
    name: str = ""
    """Part of the name; of A to Z the case does not count."""
    since: str = ""
    """Started at this time or later: ISO 8601 in UTC, a date or more."""
    until: str = ""
    """Started before the end of this time."""
    run_ids: Collection[str] = ()
    namespace: str = ""
    """That its record names; a run without a record has none."""


@dataclass(frozen=True)
class RunRow:
    """One run as the journal has it."""

    run_id: str
    kind: str
    record: dict[str, Any] | None
    """Its record; None where only events tell of it."""
    started: str
    latest: int
    """Seq of the record's last state, or of the last episode."""


@dataclass(frozen=True)
class ArmTotals:
    """What the episodes of one arm of a run came to."""

    episodes: int
    tasks: int
    """Episodes that count: of several passes over a task the last one, where that was asked for."""
    graded: int
    solved: int
    reward: float
    """Sum over the graded."""
    tokens: int
    cost_usd: float
    seconds: float
    """Wall time of the episodes together."""


def runs(
    journal: Journal, wanted: RunFilter | None = None, *, offset: int = 0, limit: int = 25
) -> tuple[list[RunRow], int]:
    """Return a page of runs, the latest first, and how many there are in all."""
    where, values = _conditions(wanted or RunFilter())
    fitting = [
        row[0] for row in journal.query(f"{_LISTED} SELECT run_id FROM told WHERE {where} ORDER BY first DESC", values)
    ]
    page = fitting[offset:] if limit < 0 else fitting[offset : offset + limit]
    rows = journal.query(
        f"{_LISTED} SELECT run_id, kind, body, started, latest FROM told"
        " WHERE run_id IN (SELECT value FROM json_each(?)) ORDER BY first DESC",
        (json.dumps(page),),
    )
    return [
        RunRow(run_id, kind, json.loads(body) if body else None, started, latest)
        for run_id, kind, body, started, latest in rows
    ], len(fitting)


def evaluations(journal: Journal, run_ids: Collection[str]) -> list[tuple[str, str]]:
    """Return (run, evaluation) of these runs, in the order they began."""
    rows = journal.query(
        "SELECT e.run_id, e.subject FROM json_each(?) j JOIN events e ON e.run_id = j.value"
        f" WHERE e.type IN ({_EXAMS}) GROUP BY 1, 2 ORDER BY min(e.seq)",
        (json.dumps(list(run_ids)),),
    )
    return [(run_id, evaluation) for run_id, evaluation in rows]


def evaluated_by(journal: Journal, evaluation: str) -> str:
    """Return the run that made an evaluation; empty where no event says so."""
    rows = journal.query(f"SELECT run_id FROM events WHERE subject = ? AND type IN ({_EXAMS}) LIMIT 1", (evaluation,))
    return rows[0][0] if rows else ""


def totals(
    journal: Journal, sources: Sequence[tuple[str, str]], *, last_pass: Collection[str] = ()
) -> dict[tuple[str, str], ArmTotals]:
    """Return (run, arm) -> totals; `sources` are pairs of a run and the name under which episodes of it are journalled.

    Of the runs `last_pass` the last episode of each task counts; what the others used is in the totals too.
    """
    pairs = [[run_id, source, "last" if run_id in last_pass else "each"] for run_id, source in sources]
    rows = journal.query(
        "WITH read AS MATERIALIZED (SELECT j.value ->> 0 AS run, t.arm AS arm, t.seq AS seq,"
        " CASE j.value ->> 2 WHEN 'last' THEN t.task_id ELSE CAST(t.seq AS TEXT) END AS pass,"
        " json_extract(c.body, '$.outcome.success', '$.outcome.reward',"
        " '$.usage.prompt_tokens', '$.usage.completion_tokens', '$.usage.cost_usd', '$.seconds') AS f"
        " FROM json_each(?) j JOIN trajectories t ON t.run_id = j.value ->> 1 JOIN content c ON c.hash = t.hash),"
        " done AS (SELECT *, seq = max(seq) OVER (PARTITION BY run, arm, pass) AS counts FROM read)"
        " SELECT run, arm, count(*), count(CASE WHEN counts THEN 1 END),"
        " count(CASE WHEN counts AND f ->> 0 IS NOT NULL THEN 1 END),"
        " count(CASE WHEN counts AND CAST(f ->> 0 AS INTEGER) = 1 THEN 1 END),"
        " total(CASE WHEN counts THEN f ->> 1 END),"
        " sum(coalesce(CAST(f ->> 2 AS INTEGER), 0) + coalesce(CAST(f ->> 3 AS INTEGER), 0)),"
        " total(f ->> 4), total(f ->> 5) FROM done GROUP BY 1, 2",
        (json.dumps(pairs),),
    )
    return {(run, arm): ArmTotals(*figures) for run, arm, *figures in rows}


def changes(journal: Journal, run_ids: Collection[str], types: Collection[str]) -> dict[str, int]:
    """Return run -> how many events of these types name it."""
    rows = journal.query(
        "SELECT e.run_id, count(*) FROM json_each(?) j JOIN events e ON e.run_id = j.value"
        f" WHERE e.type IN ({', '.join('?' * len(types))}) GROUP BY 1",
        (json.dumps(list(run_ids)), *types),
    )
    return {row[0]: row[1] for row in rows}


def acting(journal: Journal, run_ids: Collection[str]) -> dict[str, str]:
    """Return run -> the names of the policies that its episodes tell of; a run whose episodes tell none is left out."""
    rows = journal.query(
        "SELECT t.run_id, group_concat(DISTINCT nullif(c.body ->> '$.policy', '')) FROM json_each(?) j"
        " JOIN trajectories t ON t.run_id = j.value JOIN content c ON c.hash = t.hash GROUP BY 1",
        (json.dumps(list(run_ids)),),
    )
    return {run_id: names for run_id, names in rows if names}


def last_sign(journal: Journal, run_id: str) -> str:
    """Return when the journal last heard of a run."""
    rows = journal.query(
        "SELECT created_at FROM events WHERE seq = (SELECT max(seq) FROM events WHERE run_id = ?)", (run_id,)
    )
    return rows[0][0] if rows else ""


def moment(journal: Journal, seq: int) -> str:
    """Return when an event was journalled."""
    return journal.query("SELECT created_at FROM events WHERE seq = ?", (seq,))[0][0]


def ended_at(journal: Journal) -> list[tuple[str, str, int]]:
    """Return (run, snapshot at its end, place in the journal) of every run that learned and ended, oldest first."""
    rows = journal.query(
        "SELECT r.run_id, c.body ->> '$.snapshot_id', r.created_seq FROM runs r JOIN content c ON c.hash = r.hash"
        " WHERE c.body ->> '$.snapshot_id' IS NOT NULL"
        f" AND c.body ->> '$.mode' NOT IN ({', '.join(repr(mode) for mode in KINDS)}) ORDER BY r.created_seq"
    )
    return [(run_id, snapshot, seq) for run_id, snapshot, seq in rows]


def tags(journal: Journal) -> list[str]:
    """Return every tag of a run, in order."""
    rows = journal.query(
        "SELECT DISTINCT j.value FROM runs r JOIN content c ON c.hash = r.hash, json_each(c.body, '$.tags') j"
    )
    return sorted(row[0] for row in rows)


def _conditions(wanted: RunFilter) -> tuple[str, list[Any]]:
    """Return the condition of a filter with its values."""
    asked: list[tuple[str, list[Any]]] = [("1 = 1", [])]
    if wanted.kinds:
        asked.append((f"kind IN ({', '.join('?' * len(wanted.kinds))})", list(wanted.kinds)))
    if wanted.run_ids:
        asked.append((f"run_id IN ({', '.join('?' * len(wanted.run_ids))})", list(wanted.run_ids)))
    if wanted.tag:
        asked.append(("EXISTS (SELECT 1 FROM json_each(body, '$.tags') j WHERE j.value = ?)", [wanted.tag]))
    if wanted.name:
        asked.append(("instr(lower(body ->> '$.name'), ?) > 0", [wanted.name.translate(_LOWER)]))
    if wanted.namespace:
        asked.append(("body ->> '$.config.memory.namespace' = ?", [wanted.namespace]))
    if wanted.since:
        asked.append(("started >= ?", [wanted.since]))
    if wanted.until:
        asked.append(("started < ?", [f"{wanted.until}~"]))  # "~" sorts after all that a longer time goes on with
    return " AND ".join(condition for condition, _ in asked), [value for _, values in asked for value in values]
