"""Examines a workspace database, and rebuilds the projection and the word index from the journal.

Does Chroma find what is there? Its neighbours against exact search, on vectors drawn from the workspace.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from memory.content import digest
from memory.database_engine import Connection
from memory.errors import JournalError
from memory.forget import cut_bodies
from memory.index_worker import EXACT_NUMBERS
from memory.journal import Journal
from memory.kinds import parse_payload
from memory.live_index import LiveIndex
from memory.projection import TABLES, Entry, apply
from memory.records import Frozen
from memory.sqlite.database import DAMAGED
from memory.sqlite.sqlite_engine import VERSION, SqliteError, empty_projection, known_fault
from memory.vectors import from_blobs

UNREADABLE = "journal"
"""Code of the finding that the journal cannot be replayed."""
_RESTORE = "restore your newest backup, or save what agrees with the journal with `evolve memory salvage`"


class Finding(Frozen):
    """One thing the doctor saw. `info` needs nothing done; `fix` says what to do about the others."""

    level: Literal["info", "warning", "error"]
    code: str
    message: str
    fix: str = ""


def held(journal: Journal) -> tuple[int, int]:
    """Return how many records and episodes a database holds."""
    (row,) = journal.query("SELECT (SELECT count(*) FROM records), (SELECT count(*) FROM trajectories)")
    return row[0], row[1]


def examine(journal: Journal) -> list[Finding]:
    """Return what is wrong with the database; an empty list is a clean bill of health. Changes nothing.

    What is compared is read as of one moment: others may write meanwhile.
    """
    if damaged := list(_file(journal)):
        return damaged  # nothing else can be trusted
    with journal.reading():
        projection = list(_projection(journal))
        if any(finding.code == UNREADABLE for finding in projection):
            return projection  # nor can what else is read from its events
        return [*_bodies(journal), *projection, *_derived(journal)]


def library(version: tuple[int, ...] = VERSION) -> Finding | None:
    """Return what is known against this version of SQLite, if anything."""
    fault = known_fault(version)
    fix = "use a Python with SQLite 3.51.3 or newer, or let one process at a time write; run `evolve backup` often"
    return Finding(level="info", code="sqlite", message=fault, fix=fix) if fault else None


def examine_index(journal: Journal, index: LiveIndex, *, dim: int) -> list[Finding]:
    """Return what is wrong with the vector index of this process, and what it mended by itself."""
    share = agreement(journal, index, dim=dim)
    state = index.state()
    findings: list[Finding] = []
    if share is not None and share < ENOUGH:
        message = f"the vector index finds {share:.1%} of the true ten nearest; expected {ENOUGH:.0%}"
        findings.append(Finding(level="warning", code="recall", message=message, fix="run `evolve memory reindex`"))
    if state.failure:
        fix = "search goes on exactly; mend what it says, or run `evolve memory reindex` to make the index anew"
        findings.append(Finding(level="warning", code="index", message=state.failure, fix=fix))
    if state.healed:
        findings.append(Finding(level="info", code="index-healed", message=state.healed))
    return findings


def rebuild(journal: Journal) -> list[Finding]:
    """Empty the projection and the word index and make them again from the journal, in one transaction.

    Returns what differed before. The result is exactly what the journal says, by the code that live commits use.
    """
    with journal.transaction() as conn:
        before = {table: _dump(conn, table) for table in TABLES}
        for table in TABLES:
            conn.execute(f"DELETE FROM {table}")
        try:
            count = replay(conn, conn)
        except (LookupError, TypeError, ValueError) as error:
            raise JournalError(f"the journal cannot be replayed ({error!r}); {_RESTORE}") from error
        rebuild_text(journal)
        changed = [table for table in TABLES if before[table] != _dump(conn, table)]
    found = f"rebuilt the projection from {count} events; " + (
        f"these tables differed: {', '.join(changed)}" if changed else "it was exact"
    )
    return [Finding(level="warning" if changed else "info", code="rebuilt", message=found)]


def replay(source: Connection, target: Connection) -> int:
    """Apply every event of `source` to the empty projection tables of `target`; return how many there were."""
    rows = source.execute(
        "SELECT seq, type, namespace, run_id, subject, meta, content, created_at FROM events ORDER BY seq"
    ).fetchall()
    for seq, kind, namespace, run_id, subject, meta, content, created_at in rows:
        apply(target, seq, Entry(kind, subject, namespace, run_id, json.loads(meta), content), created_at)
    return len(rows)


def _dump(conn: Connection, table: str) -> list[tuple[Any, ...]]:
    return sorted(conn.execute(f"SELECT * FROM {table}").fetchall())


def rebuild_text(journal: Journal) -> None:
    """Fill the word index anew from the records. Needs an open transaction."""
    journal.words.clear()
    rows = journal.query(
        "SELECT r.row, c.body FROM records r JOIN content c ON c.hash = r.content_hash WHERE r.forgotten = 0"
    )
    for row, body in rows:
        journal.words.put(row, parse_payload(body).text())


def _file(journal: Journal) -> Iterator[Finding]:
    with journal.lock:
        messages = journal.engine.examine()
    for message in messages:
        yield Finding(level="error", code="damaged", message=message, fix=DAMAGED)


def _bodies(journal: Journal) -> Iterator[Finding]:
    """Every body has the hash it is stored under, or the one a purge gave it; every hash has a body unless purged."""
    cut = cut_bodies(journal)
    wrong = [key for key, body in _texts(journal) if digest(body) != cut.get(key, key)]
    if wrong:
        message = f"{len(wrong)} stored texts do not have the hash they are kept under, e.g. {wrong[0]}"
        yield Finding(level="error", code="altered", message=message, fix=_RESTORE)
    purged: set[str] = set()
    for (meta,) in journal.query("SELECT meta FROM events WHERE type = 'forgotten'"):
        purged.update(json.loads(meta).get("hashes", []))
    named = journal.query(
        "SELECT e.content AS hash FROM events e WHERE e.content IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM content c WHERE c.hash = e.content) UNION SELECT v.content_hash FROM versions v"
        " WHERE NOT EXISTS (SELECT 1 FROM content c WHERE c.hash = v.content_hash)"
    )
    missing = [key for (key,) in named if key not in purged]
    if missing:
        message = f"{len(missing)} texts are missing though nobody purged them, e.g. {missing[0]}"
        yield Finding(level="error", code="missing-text", message=message, fix=_RESTORE)


def _texts(journal: Journal) -> Iterator[tuple[str, str]]:
    """Yield hash and body of every text, some at a time."""
    key = ""
    while rows := journal.query("SELECT hash, body FROM content WHERE hash > ? ORDER BY hash LIMIT 1000", (key,)):
        yield from rows
        key = rows[-1][0]


def _projection(journal: Journal) -> Iterator[Finding]:
    with empty_projection() as fresh:
        try:
            replay(journal.conn, fresh)
        except (SqliteError, LookupError, TypeError, ValueError) as error:
            yield Finding(
                level="error",
                code=UNREADABLE,
                message=f"the journal cannot be replayed: {error!r}",
                fix=_RESTORE,
            )
            return
        differing = [table for table in TABLES if _dump(journal.conn, table) != _dump(fresh, table)]
    if differing:
        message = f"tables {', '.join(differing)} do not say what the journal says"
        yield Finding(level="error", code="projection", message=message, fix="run `evolve memory doctor --rebuild`")


def _derived(journal: Journal) -> Iterator[Finding]:
    if texts := journal.words.missing():
        message = f"{texts} records cannot be found by words"
        yield Finding(level="error", code="word-index", message=message, fix="run `evolve memory doctor --rebuild`")
    vectors = journal.query(
        "SELECT count(*) FROM records r LEFT JOIN embeddings e ON e.record_id = r.id AND e.version = r.version"
        " WHERE r.forgotten = 0 AND e.vector IS NULL"
    )[0][0]
    if vectors:
        message = f"{vectors} records have no vector"
        yield Finding(level="warning", code="vectors", message=message, fix="run `evolve memory reindex`")
    embedded = journal.query(
        "SELECT c.hash, c.body, e.sha256 FROM records r JOIN content c ON c.hash = r.content_hash"
        " JOIN embeddings e ON e.record_id = r.id AND e.version = r.version WHERE r.forgotten = 0"
    )
    whole = [(body, known) for key, body, known in embedded if digest(body) == key]
    if stale := sum(digest(parse_payload(body).key()) != known for body, known in whole):
        message = f"{stale} vectors are of other texts than those by which this version finds records"
        yield Finding(level="warning", code="vectors", message=message, fix="run `evolve memory reindex`")


QUERIES = 20
"""Stored vectors asked for, per collection."""
NEAR = 10
ENOUGH = 0.8
"""Recall@10 below this is a finding. Sound graphs find 90 % among the hardest texts, drawn at random (docs/LOG.md)."""
_WAIT_SECONDS = 120.0


def agreement(journal: Journal, index: LiveIndex, *, dim: int) -> float | None:
    """Return recall@10 of the live index against exact search; None where exact search answers anyway.

    A neighbour that is as near as the tenth true one counts as found. Waits until Chroma holds everything committed.
    """
    large = journal.query(
        "SELECT namespace, kind, count(*) FROM records WHERE status IN ('provisional', 'active') AND forgotten = 0"
        f" GROUP BY namespace, kind HAVING count(*) > {EXACT_NUMBERS // dim}"
    )
    if not large or not index.flush(_WAIT_SECONDS):
        return None
    found = wanted = 0
    for namespace, kind, count in large:
        blobs = journal.query(
            "SELECT e.vector FROM (SELECT id, version, row_number() OVER (ORDER BY r.row) AS place FROM records r"
            " WHERE namespace = ? AND kind = ? AND status IN ('provisional', 'active') AND forgotten = 0) r"
            " JOIN embeddings e ON e.record_id = r.id AND e.version = r.version WHERE r.place % ? = 0 LIMIT ?",
            (namespace, kind, max(1, count // QUERIES), QUERIES),
        )
        for vector in from_blobs([row[0] for row in blobs], dim):
            truth = index.blobs.search(namespace, kind, vector, NEAR)
            edge = truth[-1][1] - 1e-5
            wanted += len(truth)
            found += sum(cosine >= edge for _, cosine in index.search(namespace, kind, vector, NEAR))
    return found / wanted if wanted else None
