"""Chroma as the vector index: approximate (HNSW), on disk, rebuildable at any time from the vectors in SQLite.

Importing chromadb takes about a second, so import this where it is used. One process owns a directory (`memory.locks`);
nothing here takes that lock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar, cast

import chromadb
import numpy as np
from chromadb.api import ClientAPI
from chromadb.api.client import Client
from chromadb.api.models.Collection import Collection
from chromadb.api.shared_system_client import SharedSystemClient
from chromadb.config import Settings
from chromadb.errors import ChromaError, NotFoundError

from memory.errors import EvolveError, IndexCorrupt
from memory.index_address import legal_name
from memory.protocols import Vector
from memory.vectors import check_maker, check_query, check_vectors, ranked

T = TypeVar("T")

EF_SEARCH = 200
"""Chroma's default of 100 found only 86 % of the true neighbours at 10,000 vectors."""
_HNSW = {"hnsw": {"space": "cosine", "ef_search": EF_SEARCH, "ef_construction": 200, "max_neighbors": 32}}
"""The space can never be changed after creation, and Chroma's default is squared L2."""


def similarity(distance: float) -> float:
    """Return the cosine in [-1, 1] for a cosine distance as Chroma reports it (`1 - cosine`, rounding included)."""
    return max(-1.0, min(1.0, 1.0 - distance))


def fresh_settings() -> Settings:
    """Return settings for one client, which changes them."""
    return Settings(anonymized_telemetry=False)


class ChromaCollections(ABC):
    """Approximate cosine search by a Chroma client, one Chroma collection for each of ours.

    Raises `EmbedderMismatch` on a collection that another embedder made, and what `error_of` returns. Safe to share
    between threads.
    """

    prefix = "c-"
    """How the names of our collections begin."""
    errors: tuple[type[Exception], ...] = (ChromaError,)
    """What a client may raise."""
    keeps_handles = True
    """Whether a collection is looked up once: nobody else may delete it, and make it anew, meanwhile."""

    def __init__(self, *, model: str, dim: int) -> None:
        self._model, self._dim = model, dim
        self._open: dict[str, Collection] = {}
        self._lock = RLock()

    def use(self, client: ClientAPI) -> None:
        """Answer with an open client from now on."""
        self._client = cast(Client, client)
        self._batch = self.guard(self._client.get_max_batch_size)

    def upsert(self, collection: str, ids: Sequence[str], vectors: Vector) -> None:
        """Insert or replace vectors `(n, dim)`. Raises `BadInput` on a zero vector or another dimension."""
        check_vectors(ids, vectors, self._dim)
        if not ids:
            return
        target = self._collection(collection) or self._create(collection)
        for part in self._parts(len(ids)):
            self.guard(target.upsert, ids=list(ids[part]), embeddings=np.asarray(vectors[part], dtype=np.float32))

    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """Forget ids; unknown ones are ignored."""
        target = self._collection(collection)
        if target is None:
            return
        for part in self._parts(len(ids)):
            self.guard(target.delete, ids=list(ids[part]))

    def search(self, collection: str, vector: Vector, k: int) -> list[tuple[str, float]]:
        """Return up to `k` (id, cosine in [-1, 1]), best first; equal ones by id."""
        check_query(vector, self._dim)
        target = self._collection(collection)
        if target is None or k <= 0:
            return []
        found = self.guard(target.query, query_embeddings=vector[None, :], n_results=k, include=["distances"])
        distances = found["distances"] or [[]]
        hits = zip(found["ids"][0], (similarity(float(d)) for d in distances[0]), strict=True)
        return ranked(hits)

    def count(self, collection: str) -> int:
        """Return how many vectors the collection holds."""
        target = self._collection(collection)
        return self.guard(target.count) if target is not None else 0

    def collections(self) -> list[str]:
        """Return the names of all collections, ours, not Chroma's."""
        return sorted(str((found.metadata or {})["collection"]) for found in self._ours())

    def ids(self, collection: str) -> list[str]:
        """Return every id in a collection, sorted."""
        target = self._collection(collection)
        return sorted(self.guard(target.get, include=[])["ids"]) if target is not None else []

    def build(self, collection: str, stopped: Callable[[], bool]) -> None:  # noqa: B027
        """Do nothing: Chroma gathers vectors itself before it adds them to its graph."""

    def erase(self) -> None:
        """Delete every collection of ours."""
        with self._lock:
            self._open.clear()
            for each in self._ours():
                self.guard(self._client.delete_collection, each.name)

    def _ours(self) -> list[Collection]:
        return [each for each in self.guard(self._client.list_collections) if each.name.startswith(self.prefix)]

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
                found = self._client.get_collection(self._named(name), embedding_function=None)
            except NotFoundError:
                return None
            except self.errors as error:
                raise self.error_of(error) from error
            about = dict(found.metadata or {})
            check_maker(name, (about.get("model"), about.get("dim")), (self._model, self._dim))
            if self.keeps_handles:
                self._open[name] = found
            return found

    def _create(self, name: str) -> Collection:
        about = {"model": self._model, "dim": self._dim, "normalised": True, "collection": name}
        with self._lock:
            made = self.guard(
                self._client.get_or_create_collection,
                self._named(name),
                metadata=about,
                configuration=_HNSW,
                embedding_function=None,
            )
            if self.keeps_handles:
                self._open[name] = made
            return made

    def _parts(self, total: int) -> Iterator[slice]:
        for start in range(0, total, self._batch):
            yield slice(start, start + self._batch)

    def guard(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run one Chroma call; what it raises becomes what `error_of` returns."""
        try:
            return call(*args, **kwargs)
        except self.errors as error:
            raise self.error_of(error) from error

    @abstractmethod
    def error_of(self, error: Exception) -> EvolveError:
        """Return what is raised in place of an error of Chroma's."""

    def _named(self, name: str) -> str:
        """Return a legal Chroma name (3-512 of `[a-zA-Z0-9._-]`), different for different `name`."""
        return self.prefix + legal_name(name)


class ChromaIndex(ChromaCollections):
    """The collections of a Chroma directory. Raises `IndexCorrupt` when Chroma cannot read its own files."""

    def __init__(self, path: Path, *, model: str, dim: int) -> None:
        super().__init__(model=model, dim=dim)
        self._path = path
        try:
            client = chromadb.PersistentClient(path=str(path), settings=fresh_settings())
        except (ChromaError, ValueError) as error:
            SharedSystemClient.clear_system_cache()  # else the half-started client is given to the next opener
            raise self.error_of(error) from error
        self.use(client)

    def error_of(self, error: Exception) -> EvolveError:
        """Return what is raised in place of an error of Chroma's."""
        return IndexCorrupt(
            f"Chroma cannot use its directory {str(self._path)!r} ({type(error).__name__}: {error}); nothing is lost, "
            "SQLite holds every vector: run `evolve memory doctor` to rebuild the index"
        )


MEMBER = ChromaIndex
