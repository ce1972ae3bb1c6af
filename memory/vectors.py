"""Vectors at rest and at the door: bytes for SQLite, the check every index makes, the name of a collection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from memory.errors import BadInput, EmbedderMismatch
from memory.protocols import Vector


def to_blob(vector: Vector) -> bytes:
    """Return a vector as little-endian float32 bytes."""
    return vector.astype("<f4").tobytes()


def from_blobs(blobs: Sequence[bytes], dim: int) -> Vector:
    """Return float32 `(len(blobs), dim)`. Raises `BadInput` when a blob has another length."""
    for blob in blobs:
        if len(blob) != 4 * dim:
            raise BadInput(f"got a stored vector of {len(blob)} bytes; expected {4 * dim} for dimension {dim}")
    return np.frombuffer(b"".join(blobs), dtype="<f4").reshape(len(blobs), dim).astype(np.float32, copy=False)


def collection_name(namespace: str, kind: str) -> str:
    """Return the collection of one kind in one namespace: filters inside a collection cost more than collections."""
    return f"{namespace}/{kind}"


def ranked(hits: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return (id, cosine) pairs, best first; equal ones by id."""
    return sorted(hits, key=lambda hit: (-hit[1], hit[0]))


def check_vectors(ids: Sequence[str], vectors: Vector, dim: int | None = None) -> None:
    """Raise `BadInput` unless there is one finite vector of unit length for each distinct id, `dim` long if given."""
    if vectors.ndim != 2 or len(ids) != len(vectors):
        raise BadInput(f"got {len(ids)} ids and vectors of shape {vectors.shape}; expected one row for each id")
    if len(set(ids)) != len(ids):
        raise BadInput("got the same id twice in one batch; expected distinct ids")
    lengths = np.linalg.norm(vectors, axis=1)
    wrong = np.flatnonzero(~(np.abs(lengths - 1.0) < 1e-3))
    if len(wrong):
        raise BadInput(f"got a vector of length {lengths[wrong[0]]:.4f} for {ids[wrong[0]]!r}; expected unit length")
    if len(ids) and dim is not None and vectors.shape[1] != dim:
        raise BadInput(f"got vectors of dimension {vectors.shape[1]}; this index holds {dim}")


def check_query(vector: Vector, dim: int) -> None:
    """Raise `BadInput` unless a query is one vector as long as those of an index."""
    if vector.shape != (dim,):
        raise BadInput(f"got a query of shape {vector.shape}; this index holds vectors of dimension {dim}")


def check_maker(collection: str, made_by: tuple[object, object], own: tuple[str, int]) -> None:
    """Raise `EmbedderMismatch` unless the embedder (model, dimension) that made a collection is the configured one."""
    if made_by != own:
        raise EmbedderMismatch(
            f"collection {collection!r} was made by embedder {made_by[0]!r} (dimension {made_by[1]!r}), but {own[0]!r} "
            f"(dimension {own[1]}) is configured; set the old embedder again, or run `evolve memory reindex` to embed "
            "everything anew"
        )
