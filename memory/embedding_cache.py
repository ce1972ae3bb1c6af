"""Embeddings that were paid for once: a cache in front of an embedder, keyed by (model, sha256 of the text).

Embedding, not search, is the slow part of recall with a real model. A hashing embedder is faster than the database, so
for it only the copy in memory is worth having.

Embeds every stored version anew with another embedder: the way out of `EmbedderMismatch`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256
from threading import Lock

import numpy as np

from memory.content import digest
from memory.journal import Journal
from memory.kinds import parse_payload
from memory.live_index import LiveIndex
from memory.protocols import Embedder, Vector
from memory.vectors import from_blobs, to_blob

_REMEMBERED = 4096
"""Vectors kept in memory."""


class CachedEmbedder:
    """An `Embedder` that asks another one only for new texts. `persist` keeps the vectors in the workspace, too."""

    def __init__(self, embedder: Embedder, journal: Journal, *, persist: bool) -> None:
        self._embedder, self._journal = embedder, journal
        self._persist = persist
        self._recent: OrderedDict[str, Vector] = OrderedDict()
        self._lock, self._embedding = Lock(), Lock()

    @property
    def model(self) -> str:
        """Identity of the embedder behind."""
        return self._embedder.model

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self._embedder.dim

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return float32 `(len(texts), dim)`, L2-normalised. Errors are those of the embedder behind."""
        keys = [sha256(text.encode("utf-8", "surrogatepass")).hexdigest() for text in texts]
        with self._lock:
            found = {key: self._recent[key] for key in keys if key in self._recent}
        if self._persist:
            found |= self._stored([key for key in keys if key not in found])
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if missing:
            with self._embedding:  # tokenizers are for one thread at a time
                vectors = self._embedder.embed(list(missing.values()))
            made = dict(zip(missing, vectors, strict=True))
            if self._persist and not self._journal.read_only:
                self._store(made)
            found |= made
        self._remember(found)
        return np.stack([found[key] for key in keys]) if keys else np.zeros((0, self.dim), dtype=np.float32)

    def _stored(self, keys: Sequence[str]) -> dict[str, Vector]:
        rows: list[tuple[str, bytes]] = []
        for start in range(0, len(keys), 500):
            part = keys[start : start + 500]
            marks = ", ".join("?" * len(part))
            rows += self._journal.query(
                f"SELECT sha256, vector FROM embedding_cache WHERE model = ? AND sha256 IN ({marks})",
                (self.model, *part),
            )
        vectors = from_blobs([row[1] for row in rows], self.dim) if rows else []
        return dict(zip((row[0] for row in rows), vectors, strict=True))

    def _store(self, made: dict[str, Vector]) -> None:
        with self._journal.transaction() as conn:
            conn.executemany(
                "INSERT INTO embedding_cache (model, sha256, dim, vector) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                [(self.model, key, self.dim, to_blob(vector)) for key, vector in made.items()],
            )

    def _remember(self, found: dict[str, Vector]) -> None:
        with self._lock:
            for key, vector in found.items():
                self._recent[key] = vector
                self._recent.move_to_end(key)
            while len(self._recent) > _REMEMBERED:
                self._recent.popitem(last=False)


_BATCH = 256
_Made = dict[str, tuple[str, bytes]]
"""Content hash -> sha256 of the text that is embedded, and its vector."""


def reindex(journal: Journal, embedder: Embedder, index: LiveIndex) -> int:
    """Replace all stored vectors, refill the vector index, and return how many versions were embedded.

    The texts are embedded before the transaction that replaces the vectors: a kill leaves the old ones. The few texts
    that others commit meanwhile are embedded inside it. Versions whose text was purged lose their vector. Raises
    `BadInput` when a stored text cannot be embedded.
    """
    before = _embedded(journal, embedder, {})
    with journal.transaction() as conn:
        made = _embedded(journal, embedder, before)
        versions = conn.execute("SELECT record_id, version, content_hash FROM versions").fetchall()
        conn.execute("DELETE FROM embeddings")
        conn.executemany(
            "INSERT INTO embeddings (record_id, version, model, dim, sha256, vector) VALUES (?, ?, ?, ?, ?, ?)",
            [(row[0], row[1], embedder.model, embedder.dim, *made[row[2]]) for row in versions if row[2] in made],
        )
    index.rebuild()
    return sum(row[2] in made for row in versions)


def _embedded(journal: Journal, embedder: Embedder, known: _Made) -> _Made:
    """Return what is stored for each text that is there now; only those that are not `known` are embedded."""
    texts = _texts(journal)
    made = {key: known[key] for key in texts if key in known}
    hashes = sorted(texts.keys() - known.keys())
    for start in range(0, len(hashes), _BATCH):
        part = hashes[start : start + _BATCH]
        vectors = embedder.embed([texts[key] for key in part])
        for key, vector in zip(part, vectors, strict=True):
            made[key] = (digest(texts[key]), to_blob(vector))
    return made


def _texts(journal: Journal) -> dict[str, str]:
    """Return content hash -> text that is embedded, for every version that still has its text."""
    rows = journal.query(
        "SELECT DISTINCT c.hash, c.body FROM versions v JOIN records r ON r.id = v.record_id"
        " JOIN content c ON c.hash = v.content_hash WHERE r.forgotten = 0"
    )
    return {key: parse_payload(body).key() for key, body in rows}
