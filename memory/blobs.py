"""Exact search over the vectors that SQLite holds: what every process can read, and what is right by construction.

Keeps one matrix per namespace and kind in this process and brings it up to date with the rows that changed since.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from memory.errors import EmbedderMismatch
from memory.indexes.exact import ExactIndex
from memory.journal import Journal
from memory.protocols import Vector
from memory.records import RECALLABLE
from memory.vectors import collection_name, from_blobs

_KEPT = 20_000
"""Single vectors kept in memory."""
Row = tuple[str, str, str, bool, int, bytes | None]
"""(record id, kind, status, forgotten, version, vector)."""


class BlobSearch:
    """Live nearest neighbours among recallable records, read from SQLite. Safe to share between threads."""

    def __init__(self, journal: Journal, *, dim: int) -> None:
        self._journal, self._dim = journal, dim
        self._index = ExactIndex()
        self._seen: dict[str, int] = {}
        self._lock = Lock()
        self._recent: OrderedDict[tuple[str, int], Vector] = OrderedDict()

    def search(self, namespace: str, kind: str, vector: Vector, k: int) -> list[tuple[str, float]]:
        """Return up to `k` (record id, cosine), best first, as of the last commit on disk."""
        with self._lock:
            self._refresh(namespace)
            return self._index.search(collection_name(namespace, kind), vector, k)

    def vectors(self, versions: Sequence[tuple[str, int]]) -> list[Vector | None]:
        """Return the vector of each (record id, version) pair, None without one; it never changes, so it is kept."""
        with self._lock:
            new = [pair for pair in versions if pair not in self._recent]
            if new:
                rows = self._journal.query(
                    "SELECT e.record_id, e.version, e.vector FROM json_each(?) j CROSS JOIN embeddings e"
                    " ON e.record_id = j.value ->> 0 AND e.version = CAST(j.value ->> 1 AS INTEGER)",
                    (json.dumps(new),),
                )
                self._recent.update(
                    zip(
                        ((row[0], row[1]) for row in rows), from_blobs([row[2] for row in rows], self._dim), strict=True
                    )
                )
            found = [self._recent.get(pair) for pair in versions]
            self._trim()
            return found

    def count(self, namespace: str, kind: str) -> int:
        """Return how many records the last search of that kind could choose from."""
        return self._index.count(collection_name(namespace, kind))

    def clear(self) -> None:
        """Forget what was read, e.g. after every vector was made anew."""
        with self._lock:
            self._index.close()
            self._recent.clear()
            self._seen.clear()

    def _refresh(self, namespace: str) -> None:
        head = self._journal.query("SELECT head FROM namespaces WHERE namespace = ?", (namespace,))
        seen = self._seen.get(namespace, 0)
        if not head or head[0][0] == seen:
            return
        changed = self._journal.query(
            "SELECT r.id, r.kind, r.status, r.forgotten, r.version, e.vector FROM records r"
            " LEFT JOIN embeddings e ON e.record_id = r.id AND e.version = r.version"
            " WHERE r.seq > ? AND +r.namespace = ? ORDER BY r.seq",
            (seen, namespace),
        )
        for kind in {row[1] for row in changed}:
            self._apply(collection_name(namespace, kind), [row for row in changed if row[1] == kind])
        self._seen[namespace] = head[0][0]

    def _apply(self, collection: str, rows: Sequence[Row]) -> None:
        shown = [row for row in rows if row[5] is not None and row[2] in RECALLABLE and not row[3]]
        vectors = from_blobs([row[5] or b"" for row in shown], self._dim)
        ids = [row[0] for row in shown]
        self._index.remove(collection, sorted({row[0] for row in rows} - set(ids)))
        self._index.upsert(collection, ids, vectors)
        pairs = ((row[0], row[4]) for row in shown[-_KEPT:])
        self._recent.update(zip(pairs, vectors[-_KEPT:].copy(), strict=True))
        self._trim()

    def _trim(self) -> None:
        while len(self._recent) > _KEPT:
            self._recent.popitem(last=False)


def check_embedder(journal: Journal, *, model: str, dim: int) -> None:
    """Raise `EmbedderMismatch` when the workspace holds vectors of another embedder.

    One row tells it of all: a reindex replaces every vector or none.
    """
    other = journal.query("SELECT model, dim FROM embeddings LIMIT 1")
    if other and other[0] != (model, dim):
        raise EmbedderMismatch(
            f"{journal.path}: its vectors were made by embedder {other[0][0]!r} (dimension {other[0][1]}), but "
            f"{model!r} (dimension {dim}) is configured; set the old embedder again, or run `evolve memory reindex` to "
            "embed everything anew"
        )
