"""Embeds every stored version anew with another embedder: the way out of `EmbedderMismatch`."""

from __future__ import annotations

from hashlib import sha256

from memory.journal import Journal
from memory.kinds import parse_payload
from memory.live_index import LiveIndex
from memory.protocols import Embedder
from memory.vectors import to_blob

_BATCH = 256


def reindex(journal: Journal, embedder: Embedder, index: LiveIndex) -> int:
    """Replace all stored vectors, refill the vector index, and return how many versions were embedded.

    All texts are embedded before the first vector is replaced, in one transaction: a kill leaves the old ones. Versions
    whose text was purged lose their vector. Raises `BadInput` when a stored text cannot be embedded.
    """
    texts = _texts(journal)
    made: dict[str, tuple[str, bytes]] = {}
    hashes = sorted(texts)
    for start in range(0, len(hashes), _BATCH):
        part = hashes[start : start + _BATCH]
        vectors = embedder.embed([texts[key] for key in part])
        for key, vector in zip(part, vectors, strict=True):
            made[key] = (sha256(texts[key].encode("utf-8")).hexdigest(), to_blob(vector))
    with journal.transaction() as conn:
        versions = conn.execute("SELECT record_id, version, content_hash FROM versions").fetchall()
        conn.execute("DELETE FROM embeddings")
        conn.executemany(
            "INSERT INTO embeddings (record_id, version, model, dim, sha256, vector) VALUES (?, ?, ?, ?, ?, ?)",
            [(row[0], row[1], embedder.model, embedder.dim, *made[row[2]]) for row in versions if row[2] in made],
        )
    index.rebuild()
    return sum(row[2] in made for row in versions)


def _texts(journal: Journal) -> dict[str, str]:
    """Return content hash -> text that is embedded, for every version that still has its text."""
    rows = journal.query(
        "SELECT DISTINCT c.hash, c.body FROM versions v JOIN records r ON r.id = v.record_id"
        " JOIN content c ON c.hash = v.content_hash WHERE NOT r.forgotten"
    )
    return {key: parse_payload(body).key() for key, body in rows}
