"""Contracts called through this floor: `Embedder`, `Index`, `Gate`. Each has two implementations in the repository."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from memory.records import DeltaOp, Record, Trajectory, Verdict

Vector = NDArray[np.float32]


class Embedder(Protocol):
    """Turns text into unit vectors. Deterministic: the same text always gives the same vector."""

    @property
    def model(self) -> str:
        """Identity recorded with every collection; vectors of different models never mix."""
        ...

    @property
    def dim(self) -> int:
        """Length of a vector."""
        ...

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return float32 `(len(texts), dim)`, L2-normalised. A text that yields a zero vector raises `BadInput`."""
        ...


class Index(Protocol):
    """Nearest neighbours over record ids. Rebuildable: SQLite holds the vectors."""

    def upsert(self, collection: str, ids: Sequence[str], vectors: Vector) -> None:
        """Insert or replace vectors `(n, dim)`."""
        ...

    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """Forget ids; unknown ones are ignored."""
        ...

    def search(self, collection: str, vector: Vector, k: int) -> list[tuple[str, float]]:
        """Return up to `k` (id, cosine similarity in [-1, 1]), best first."""
        ...

    def count(self, collection: str) -> int:
        """Return how many vectors the collection holds."""
        ...

    def close(self) -> None:
        """Release files and locks."""
        ...


class KnowledgeView(Protocol):
    """Read-only sight of a namespace: what gates, reflectors and curators get."""

    @property
    def namespace(self) -> str: ...

    @property
    def version(self) -> int:
        """Namespace version that was read."""
        ...

    @property
    def kept(self) -> dict[str, Any]:
        """What was derived of the records, by name; the next view of the namespace is given it too."""
        ...

    def records(self, kind: str | None = None) -> tuple[Record[Any], ...]:
        """Return recallable records in order of creation."""
        ...

    def get(self, record_id: str) -> Record[Any] | None:
        """Return a record of any status."""
        ...


class Gate(Protocol):
    """Decides which proposed ops may be applied, and with what status. Never changes state itself."""

    @property
    def name(self) -> str: ...

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Verdict:
        """Return a verdict over all `ops`: each op_id is accepted, or rejected or deferred with a reason."""
        ...
