"""Chroma as the vector index: approximate (HNSW), on disk, rebuildable at any time from the vectors in SQLite.

The only file that knows chromadb; importing it takes about a second, so import it where it is used. One process owns a
directory (`memory.owner`); nothing here takes that lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from re import sub
from threading import RLock
from typing import Any, TypeVar, cast

import chromadb
import numpy as np
from chromadb.api.client import Client
from chromadb.api.models.Collection import Collection
from chromadb.api.shared_system_client import SharedSystemClient
from chromadb.config import Settings
from chromadb.errors import ChromaError, NotFoundError

from memory.errors import BadInput, EmbedderMismatch, IndexCorrupt
from memory.protocols import Vector
from memory.vectors import check_vectors

T = TypeVar("T")

EF_SEARCH = 200
"""Chroma's default of 100 found only 86 % of the true neighbours at 10,000 vectors."""
_HNSW = {"hnsw": {"space": "cosine", "ef_search": EF_SEARCH, "ef_construction": 200, "max_neighbors": 32}}
"""The space can never be changed after creation, and Chroma's default is squared L2."""


def similarity(distance: float) -> float:
    """Return the cosine in [-1, 1] for a cosine distance as Chroma reports it (`1 - cosine`, rounding included)."""
    return max(-1.0, min(1.0, 1.0 - distance))


class ChromaIndex:
    """Approximate cosine search in a Chroma directory, one Chroma collection for each of ours.

    Raises `EmbedderMismatch` on a collection that another embedder made, `IndexCorrupt` when Chroma cannot read its
    own files. Safe to share between threads.
    """

    def __init__(self, path: Path, *, model: str, dim: int) -> None:
        self._path, self._model, self._dim = path, model, dim
        self._open: dict[str, Collection] = {}
        self._lock = RLock()
        try:
            client = chromadb.PersistentClient(path=str(path), settings=Settings(anonymized_telemetry=False))
        except (ChromaError, ValueError) as error:
            SharedSystemClient.clear_system_cache()  # else the half-started client is given to the next opener
            raise self._corrupt(error) from error
        self._client = cast(Client, client)
        self._batch = self._client.get_max_batch_size()

    def upsert(self, collection: str, ids: Sequence[str], vectors: Vector) -> None:
        """Insert or replace vectors `(n, dim)`. Raises `BadInput` on a zero vector or another dimension."""
        check_vectors(ids, vectors)
        if not ids:
            return
        if vectors.shape[1] != self._dim:
            raise BadInput(f"got vectors of dimension {vectors.shape[1]}; this index holds {self._dim}")
        target = self._collection(collection) or self._create(collection)
        for part in self._parts(len(ids)):
            self._guard(target.upsert, ids=list(ids[part]), embeddings=np.asarray(vectors[part], dtype=np.float32))

    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """Forget ids; unknown ones are ignored."""
        target = self._collection(collection)
        if target is None:
            return
        for part in self._parts(len(ids)):
            self._guard(target.delete, ids=list(ids[part]))

    def search(self, collection: str, vector: Vector, k: int) -> list[tuple[str, float]]:
        """Return up to `k` (id, cosine in [-1, 1]), best first; equal ones by id."""
        if vector.shape != (self._dim,):
            raise BadInput(f"got a query of shape {vector.shape}; this index holds vectors of dimension {self._dim}")
        target = self._collection(collection)
        if target is None or k <= 0:
            return []
        found = self._guard(target.query, query_embeddings=vector[None, :], n_results=k, include=["distances"])
        distances = found["distances"] or [[]]
        hits = zip(found["ids"][0], (similarity(float(d)) for d in distances[0]), strict=True)
        return sorted(hits, key=lambda hit: (-hit[1], hit[0]))

    def count(self, collection: str) -> int:
        """Return how many vectors the collection holds."""
        target = self._collection(collection)
        return self._guard(target.count) if target is not None else 0

    def collections(self) -> list[str]:
        """Return the names of all collections, ours, not Chroma's."""
        return sorted(str((found.metadata or {})["collection"]) for found in self._guard(self._client.list_collections))

    def ids(self, collection: str) -> list[str]:
        """Return every id in a collection, sorted."""
        target = self._collection(collection)
        return sorted(self._guard(target.get, include=[])["ids"]) if target is not None else []

    def close(self) -> None:
        """Release files. Clients of one process on one path share them; the last one to close lets go."""
        with self._lock:
            self._open.clear()
            self._client.close()

    def _collection(self, name: str) -> Collection | None:
        with self._lock:
            found = self._open.get(name)
            if found is not None:
                return found
            try:
                found = self._client.get_collection(_chroma_name(name), embedding_function=None)
            except NotFoundError:
                return None
            except ChromaError as error:
                raise self._corrupt(error) from error
            self._check_embedder(name, dict(found.metadata or {}))
            self._open[name] = found
            return found

    def _create(self, name: str) -> Collection:
        about = {"model": self._model, "dim": self._dim, "normalised": True, "collection": name}
        with self._lock:
            self._open[name] = self._guard(
                self._client.get_or_create_collection,
                _chroma_name(name),
                metadata=about,
                configuration=_HNSW,
                embedding_function=None,
            )
            return self._open[name]

    def _check_embedder(self, name: str, about: dict[str, object]) -> None:
        made_by = (about.get("model"), about.get("dim"))
        if made_by != (self._model, self._dim):
            raise EmbedderMismatch(
                f"collection {name!r} was made by embedder {made_by[0]!r} (dimension {made_by[1]!r}), but "
                f"{self._model!r} (dimension {self._dim}) is configured; set the old embedder again, or run "
                "`evolve memory reindex` to embed everything anew"
            )

    def _parts(self, total: int) -> Iterator[slice]:
        for start in range(0, total, self._batch):
            yield slice(start, start + self._batch)

    def _guard(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run one Chroma call; what it raises about its own files becomes `IndexCorrupt`."""
        try:
            return call(*args, **kwargs)
        except ChromaError as error:
            raise self._corrupt(error) from error

    def _corrupt(self, error: Exception) -> IndexCorrupt:
        return IndexCorrupt(
            f"Chroma cannot use its directory {str(self._path)!r} ({type(error).__name__}: {error}); nothing is lost, "
            "SQLite holds every vector: run `evolve memory doctor` to rebuild the index"
        )


def _chroma_name(name: str) -> str:
    """Return a legal Chroma name (3-512 of `[a-zA-Z0-9._-]`), different for different `name`."""
    readable = sub(r"[^a-zA-Z0-9]+", "-", name)[:80].strip("-")
    return f"c-{readable}-{blake2b(name.encode(), digest_size=8).hexdigest()}"
