"""A Qdrant server as the vector index, for several machines: `memory.index = "qdrant:http://HOST:6333/NAME"`.

Its key, where it asks for one, stands in QDRANT_API_KEY.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import NAMESPACE_URL, uuid5

import httpx

from memory.errors import BadInput, IndexUnavailable
from memory.index_address import legal_name, parse_address
from memory.protocols import Vector
from memory.vectors import check_maker, check_query, check_vectors, ranked

try:
    from qdrant_client import QdrantClient, models
    from qdrant_client.common.client_exceptions import QdrantException
    from qdrant_client.http.exceptions import ApiException
except ImportError as missing:
    raise BadInput(
        "`memory.index` names a Qdrant server, but qdrant-client is not installed; run `pip install "
        "'evolve-agents[qdrant]'`"
    ) from missing

T = TypeVar("T")
SECONDS = 30
SEARCH = models.SearchParams(hnsw_ef=200)
"""Candidates of a search, as for Chroma."""
PAGE = 10_000


class QdrantIndex:
    """Approximate cosine search on a Qdrant server, a Qdrant collection for each of ours. Threads may share it.

    Raises `IndexUnavailable` where the server does not answer, `EmbedderMismatch` on a collection that another embedder
    made.
    """

    def __init__(
        self, address: str, database: str, *, model: str, dim: int, client: Callable[[], QdrantClient] | None = None
    ) -> None:
        """Raises `BadInput` for an address that is none; the server is not asked yet. `client` makes another client."""
        self._server, self._model, self._dim = parse_address("qdrant", address), model, dim
        self._make = client or self._over_http
        self._opened: QdrantClient | None = None

    def _over_http(self) -> QdrantClient:
        key = os.environ.get("QDRANT_API_KEY") or None
        return QdrantClient(url=self._server.url, api_key=key, check_compatibility=False, timeout=SECONDS)

    def connect(self) -> None:
        """Connect. Raises `IndexUnavailable`."""
        self.close()
        self._opened = self._asked(self._make)
        self.collections()

    def upsert(self, collection: str, ids: Sequence[str], vectors: Vector) -> None:
        """Insert or replace vectors `(n, dim)`. Raises `BadInput` on a zero vector or another dimension."""
        check_vectors(ids, vectors, self._dim)
        if not ids:
            return
        name = self._there(collection) or self._create(collection)
        points = [
            models.PointStruct(id=_point(key), vector=row.tolist(), payload={"id": key})
            for key, row in zip(ids, vectors, strict=True)
        ]
        self._asked(self._client.upsert, name, points, wait=True)

    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """Forget ids; unknown ones are ignored."""
        if ids and (name := self._there(collection)):
            self._asked(self._client.delete, name, [_point(key) for key in ids], wait=True)

    def search(self, collection: str, vector: Vector, k: int) -> list[tuple[str, float]]:
        """Return up to `k` (id, cosine in [-1, 1]), best first; equal ones by id."""
        check_query(vector, self._dim)
        name = self._there(collection) if k > 0 else None
        if name is None:
            return []
        found = self._asked(
            self._client.query_points, name, query=vector.tolist(), limit=k, with_payload=True, search_params=SEARCH
        )
        hits = (((each.payload or {})["id"], round(max(-1.0, min(1.0, each.score)), 6)) for each in found.points)
        return ranked(hits)

    def count(self, collection: str) -> int:
        """Return how many vectors the collection holds."""
        name = self._there(collection)
        return self._asked(self._client.count, name, exact=True).count if name else 0

    def collections(self) -> list[str]:
        """Return the names of all collections, ours, not Qdrant's."""
        return sorted(str(self._about(name)["collection"]) for name in self._ours())

    def ids(self, collection: str) -> list[str]:
        """Return every id in a collection, sorted."""
        name, found, after = self._there(collection), list[str](), None
        while name:
            page, after = self._asked(self._client.scroll, name, limit=PAGE, offset=after, with_payload=True)
            found += [(each.payload or {})["id"] for each in page]
            if after is None:
                break
        return sorted(found)

    def build(self, collection: str, stopped: Callable[[], bool]) -> None:
        """Do nothing: Qdrant's optimiser builds its graphs in the background."""

    def erase(self) -> None:
        """Delete every collection of this workspace."""
        for name in self._ours():
            self._asked(self._client.delete_collection, name)

    def close(self) -> None:
        """Disconnect; closing twice is allowed."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @property
    def _client(self) -> QdrantClient:
        assert self._opened is not None, "connect it first"
        return self._opened

    def _ours(self) -> list[str]:
        listed = self._asked(self._client.get_collections).collections
        return [each.name for each in listed if each.name.startswith(self._server.prefix)]

    def _about(self, name: str) -> dict[str, Any]:
        return dict(self._asked(self._client.get_collection, name).config.metadata or {})

    def _there(self, collection: str) -> str | None:
        """Return what Qdrant calls a collection; None where there is none. Asked each time: others may delete it."""
        name = self._named(collection)
        if not self._asked(self._client.collection_exists, name):
            return None
        about = self._about(name)
        check_maker(collection, (about.get("model"), about.get("dim")), (self._model, self._dim))
        return name

    def _create(self, collection: str) -> str:
        name, about = self._named(collection), {"collection": collection, "model": self._model, "dim": self._dim}
        size = models.VectorParams(size=self._dim, distance=models.Distance.COSINE)
        self._asked(self._client.create_collection, name, size, metadata=about)
        return name

    def _named(self, collection: str) -> str:
        return self._server.prefix + legal_name(collection)

    def _asked(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Make one call; what the client or the network raises becomes `IndexUnavailable`."""
        try:
            return call(*args, **kwargs)
        except (ApiException, QdrantException, httpx.HTTPError, ValueError) as error:
            said, hint = f"{type(error).__name__}: {error}", "Is it running, and is its key in QDRANT_API_KEY?"
            raise IndexUnavailable.of(f"the Qdrant server at {self._server.url}", said, hint) from error


def _point(key: str) -> str:
    """Return Qdrant's id of a record: it takes UUIDs alone."""
    return str(uuid5(NAMESPACE_URL, f"evolve:{key}"))


MEMBER = QdrantIndex
