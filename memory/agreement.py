"""Does Chroma find what is there? Its neighbours against exact search, on vectors drawn from the workspace."""

from __future__ import annotations

from memory.index_worker import EXACT_NUMBERS
from memory.journal import Journal
from memory.live_index import LiveIndex
from memory.vectors import from_blobs

QUERIES = 20
"""Stored vectors asked for, per collection."""
NEAR = 10
ENOUGH = 0.98
"""Recall@10 below this is a finding."""
_WAIT_SECONDS = 120.0


def agreement(journal: Journal, index: LiveIndex, *, dim: int) -> float | None:
    """Return recall@10 of the live index against exact search; None where exact search answers anyway.

    A neighbour that is as near as the tenth true one counts as found. Waits until Chroma holds everything committed.
    """
    large = journal.query(
        "SELECT namespace, kind, count(*) FROM records WHERE status IN ('provisional', 'active') AND NOT forgotten"
        f" GROUP BY namespace, kind HAVING count(*) > {EXACT_NUMBERS // dim}"
    )
    if not large or not index.flush(_WAIT_SECONDS):
        return None
    found = wanted = 0
    for namespace, kind, count in large:
        blobs = journal.query(
            "SELECT e.vector FROM (SELECT id, version, row_number() OVER (ORDER BY row) AS place FROM records"
            " WHERE namespace = ? AND kind = ? AND status IN ('provisional', 'active') AND NOT forgotten) r"
            " JOIN embeddings e ON e.record_id = r.id AND e.version = r.version WHERE r.place % ? = 0 LIMIT ?",
            (namespace, kind, max(1, count // QUERIES), QUERIES),
        )
        for vector in from_blobs([row[0] for row in blobs], dim):
            truth = index.blobs.search(namespace, kind, vector, NEAR)
            edge = truth[-1][1] - 1e-5
            wanted += len(truth)
            found += sum(cosine >= edge for _, cosine in index.search(namespace, kind, vector, NEAR))
    return min(1.0, found / wanted) if wanted else None
