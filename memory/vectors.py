"""Vectors at rest and at the door: bytes for SQLite, the check every index makes, the name of a collection."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memory.errors import BadInput
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


def check_vectors(ids: Sequence[str], vectors: Vector) -> None:
    """Raise `BadInput` unless there is one finite vector of unit length for each distinct id."""
    if vectors.ndim != 2 or len(ids) != len(vectors):
        raise BadInput(f"got {len(ids)} ids and vectors of shape {vectors.shape}; expected one row for each id")
    if len(set(ids)) != len(ids):
        raise BadInput("got the same id twice in one batch; expected distinct ids")
    lengths = np.linalg.norm(vectors, axis=1)
    wrong = np.flatnonzero(~(np.abs(lengths - 1.0) < 1e-3))
    if len(wrong):
        raise BadInput(f"got a vector of length {lengths[wrong[0]]:.4f} for {ids[wrong[0]]!r}; expected unit length")
