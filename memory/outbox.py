"""Carries changes from the journal to a vector index: drain the outbox, heal drift, start over.

A commit writes its outbox rows in its own transaction; a row leaves only after the index holds what it says. A crash in
between repeats the row, which changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from memory.journal import Journal
from memory.protocols import Index
from memory.vectors import collection_name, from_blobs

BATCH = 100
"""Rows per step. Chroma holds Python's global lock while it writes: 100 rows are about 0.1 s."""


class ListableIndex(Index, Protocol):
    """An index that can say what it holds, which healing needs."""

    def collections(self) -> list[str]:
        """Return the names of all collections."""
        ...

    def ids(self, collection: str) -> list[str]:
        """Return every id in a collection."""
        ...

    def build(self, collection: str, stopped: Callable[[], bool]) -> None:
        """Build what searches of a large collection need and what is slow to grow vector by vector, if it is missing.

        It ends early, and unbuilt, once `stopped` says so. Raises `IndexUnavailable`.
        """
        ...


_LIVE = (
    "SELECT r.id, r.version, r.namespace, r.kind FROM records r"
    " WHERE r.status IN ('provisional', 'active') AND r.forgotten = 0"
)


def pending(journal: Journal) -> int:
    """Return how many outbox rows wait."""
    return int(journal.query("SELECT count(*) FROM outbox")[0][0])


def waits(journal: Journal) -> bool:
    """Tell whether a row waits, however many there are."""
    return bool(journal.query("SELECT 1 FROM outbox LIMIT 1"))


def drain(journal: Journal, index: ListableIndex, *, dim: int, limit: int = BATCH) -> int:
    """Bring the oldest `limit` outbox rows into the index and delete them; return how many there were.

    What a row's record is *now* decides, so a burst of changes to one record costs one upsert.
    """
    rows = journal.query("SELECT id, record_id FROM outbox ORDER BY id LIMIT ?", (limit,))
    if not rows:
        return 0
    wanted = sorted({row[1] for row in rows})
    _apply(index, wanted, _current(journal, wanted), dim)
    with journal.transaction() as conn:
        done = conn.execute("DELETE FROM outbox WHERE id <= ? RETURNING id", (rows[-1][0],)).fetchall()
        if len(done) < len(rows):  # another process carried them as well, and might have carried newer ones
            _queue(journal, wanted)
    return len(rows)


def _current(journal: Journal, ids: Sequence[str]) -> list[tuple[Any, ...]]:
    marks = ", ".join("?" * len(ids))
    return journal.query(
        "SELECT r.id, r.namespace, r.kind, r.status IN ('provisional', 'active') AND r.forgotten = 0, e.vector"
        " FROM records r LEFT JOIN embeddings e ON e.record_id = r.id AND e.version = r.version"
        f" WHERE r.id IN ({marks}) ORDER BY r.row",
        tuple(ids),
    )


def _apply(index: ListableIndex, wanted: Sequence[str], rows: Sequence[tuple[Any, ...]], dim: int) -> None:
    upserts: dict[str, dict[str, bytes]] = defaultdict(dict)
    removals: dict[str, list[str]] = defaultdict(list)
    for record_id, namespace, kind, live, vector in rows:
        collection = collection_name(namespace, kind)
        if live and vector is not None:
            upserts[collection][record_id] = vector
        else:
            removals[collection].append(record_id)
    gone = set(wanted) - {row[0] for row in rows}
    if gone:  # no row says where it was
        for collection in index.collections():
            removals[collection].extend(sorted(gone))
    for collection, ids in removals.items():
        index.remove(collection, ids)
    for collection, vectors in upserts.items():
        index.upsert(collection, list(vectors), from_blobs(list(vectors.values()), dim))


def reconcile(journal: Journal, index: ListableIndex, *, thorough: bool) -> int:
    """Queue what the index lacks or holds too much of, and return how many records that is.

    Compares counts, and ids where counts differ (`thorough`: ids everywhere). Run it when an index was opened.
    """
    waiting = {row[0] for row in journal.query("SELECT DISTINCT record_id FROM outbox")}
    expected: dict[str, set[str]] = defaultdict(set)
    for record_id, _, namespace, kind in journal.query(_LIVE):
        expected[collection_name(namespace, kind)].add(record_id)
    wrong: set[str] = set()
    for collection in sorted(expected.keys() | set(index.collections())):
        there = expected[collection]
        if thorough or waiting or index.count(collection) != len(there):
            wrong |= there.symmetric_difference(index.ids(collection)) - waiting
    _queue(journal, sorted(wrong))
    return len(wrong)


def enqueue_all(journal: Journal) -> int:
    """Queue each recallable record, once: fills an empty index. Returns how many. What waits to be removed stays."""
    with journal.transaction() as conn:
        ids = [row[0] for row in journal.query(_LIVE + " ORDER BY r.row")]
        conn.execute(f"DELETE FROM outbox WHERE record_id IN (SELECT id FROM ({_LIVE}) live)")
        _queue(journal, ids)
    return len(ids)


def _queue(journal: Journal, ids: Sequence[str]) -> None:
    with journal.transaction() as conn:
        conn.executemany(
            "INSERT INTO outbox (record_id, version, action) VALUES (?, 0, 'upsert')", [(key,) for key in ids]
        )
