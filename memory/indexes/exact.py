"""Exact nearest neighbours in numpy: the oracle, the reader of other processes, and faster than a graph below 10k.

Lives in memory only; whoever owns one fills it from the vectors that SQLite holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock

import numpy as np

from memory.errors import BadInput
from memory.protocols import Vector
from memory.vectors import check_vectors, ranked

_DIGITS = 6
"""Similarities are rounded here, so that equal vectors tie whatever row they stand in."""


class ExactIndex:
    """Exact cosine search over unit vectors, one matrix per collection. Safe to share between threads."""

    def __init__(self) -> None:
        self._matrices: dict[str, _Matrix] = {}
        self._lock = RLock()

    def upsert(self, collection: str, ids: Sequence[str], vectors: Vector) -> None:
        """Insert or replace vectors `(n, dim)`. Raises `BadInput` on a zero vector or another dimension."""
        check_vectors(ids, vectors)
        if not ids:
            return
        with self._lock:
            matrix = self._matrices.get(collection)
            if matrix is None:
                matrix = self._matrices[collection] = _Matrix(vectors.shape[1])
            matrix.upsert(ids, vectors)

    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """Forget ids; unknown ones are ignored."""
        with self._lock:
            matrix = self._matrices.get(collection)
            if matrix is not None:
                matrix.remove(ids)

    def search(self, collection: str, vector: Vector, k: int) -> list[tuple[str, float]]:
        """Return up to `k` (id, cosine in [-1, 1]), best first; equal ones by id."""
        with self._lock:
            matrix = self._matrices.get(collection)
            return matrix.search(vector, k) if matrix is not None and k > 0 else []

    def count(self, collection: str) -> int:
        """Return how many vectors the collection holds."""
        matrix = self._matrices.get(collection)
        return len(matrix.ids) if matrix is not None else 0

    def close(self) -> None:
        """Drop everything."""
        with self._lock:
            self._matrices.clear()


class _Matrix:
    """Rows that grow by doubling; a removed row is filled by the last one."""

    def __init__(self, dim: int) -> None:
        self.ids: list[str] = []
        self._rows: dict[str, int] = {}
        self._data = np.zeros((64, dim), dtype=np.float32)

    def upsert(self, ids: Sequence[str], vectors: Vector) -> None:
        if vectors.shape[1] != self._data.shape[1]:
            raise BadInput(f"got vectors of dimension {vectors.shape[1]}; this collection holds {self._data.shape[1]}")
        fresh = [name for name in ids if name not in self._rows]
        needed = len(self.ids) + len(fresh)
        if needed > len(self._data):
            grown = np.zeros((max(needed, 2 * len(self._data)), self._data.shape[1]), dtype=np.float32)
            grown[: len(self.ids)] = self._data[: len(self.ids)]
            self._data = grown
        for name in fresh:
            self._rows[name] = len(self.ids)
            self.ids.append(name)
        self._data[[self._rows[name] for name in ids]] = vectors

    def remove(self, ids: Sequence[str]) -> None:
        for name in ids:
            row = self._rows.pop(name, None)
            if row is None:
                continue
            last = self.ids.pop()
            if last != name:
                self.ids[row] = last
                self._rows[last] = row
                self._data[row] = self._data[len(self.ids)]

    def search(self, vector: Vector, k: int) -> list[tuple[str, float]]:
        if vector.shape != (self._data.shape[1],):
            raise BadInput(f"got a query of shape {vector.shape}; this collection holds {self._data.shape[1]} columns")
        scores = np.round(self._data[: len(self.ids)] @ vector, _DIGITS)
        if k < len(scores):
            edge = np.partition(scores, len(scores) - k)[len(scores) - k]
            near = np.flatnonzero(scores >= edge)
        else:
            near = np.arange(len(scores))
        best = np.clip(scores[near], -1.0, 1.0).tolist()
        return ranked((self.ids[row], score) for row, score in zip(near, best, strict=True))[:k]


MEMBER = ExactIndex
