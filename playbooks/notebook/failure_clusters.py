"""Failures grouped by what went wrong: agglomerative clustering of their embeddings. Deterministic, no model is asked.

The paper asks one model for labels of a whole batch and drops the batch when they cannot be parsed; here nothing can be
lost, and a failure like no other is a cluster of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from memory.protocols import Embedder, Vector
from memory.records import Frozen
from playbooks.notebook.failure_evidence import Failure

DISTANCE = 0.9
"""Mean cosine distance between two clusters from which they stay apart."""
MISTAKE_SHARE = 0.75
"""Weight of what went wrong; the rest is that of the task's words."""


class Cluster(Frozen):
    """Failures that one note is written from. Its id follows from their ids."""

    id: str
    failures: tuple[Failure, ...]

    @property
    def trajectory_ids(self) -> tuple[str, ...]:
        """Return the ids of the failed trajectories, in order."""
        return tuple(failure.trajectory_id for failure in self.failures)

    @property
    def task_ids(self) -> tuple[str, ...]:
        """Return the ids of their tasks, each once."""
        return tuple(dict.fromkeys(failure.task_id for failure in self.failures))


def cluster_id(trajectory_ids: Sequence[str]) -> str:
    """Return the name of a cluster, the same for the same members in any order."""
    return hashlib.sha256("\x1f".join(sorted(set(trajectory_ids))).encode()).hexdigest()[:12]


def batches(failures: Sequence[Failure], size: int) -> list[tuple[Failure, ...]]:
    """Return the failures in groups of `size`, in order; 1 is the streaming mode."""
    return [tuple(failures[at : at + size]) for at in range(0, len(failures), size)]


def cluster(failures: Sequence[Failure], embedder: Embedder, distance: float = DISTANCE) -> tuple[Cluster, ...]:
    """Return clusters whose mean cosine distance to each other is at least `distance`, in order of their first member.

    Average linkage; members keep their order. The order of `failures` decides the order of the clusters, and between
    ties which are joined first; nothing else is random.
    """
    if not failures:
        return ()
    labels = _labels(_vectors(failures, embedder), distance)
    groups: dict[int, list[Failure]] = {}
    for label, failure in zip(labels, failures, strict=True):
        groups.setdefault(label, []).append(failure)
    return tuple(
        Cluster(id=cluster_id([failure.trajectory_id for failure in group]), failures=tuple(group))
        for group in groups.values()
    )


def _vectors(failures: Sequence[Failure], embedder: Embedder) -> Vector:
    """Return unit vectors `(len(failures), dim)`: the mistake's and the task's, weighted."""
    mistakes = embedder.embed([failure.mistake() for failure in failures])
    tasks = embedder.embed([failure.instruction.strip() or failure.mistake() for failure in failures])
    mixed = MISTAKE_SHARE * mistakes + (1 - MISTAKE_SHARE) * tasks
    norms = np.linalg.norm(mixed, axis=1, keepdims=True)
    return np.where(norms > 1e-6, mixed / np.maximum(norms, 1e-6), mistakes).astype(np.float32)


def _labels(vectors: Vector, distance: float) -> list[int]:
    from sklearn.cluster import AgglomerativeClustering

    if len(vectors) < 2:
        return [0] * len(vectors)
    distances = np.clip(1.0 - vectors.astype(np.float64) @ vectors.T.astype(np.float64), 0.0, 2.0)
    np.fill_diagonal(distances, 0.0)
    model = AgglomerativeClustering(
        n_clusters=None,  # pyright: ignore[reportArgumentType] - its documented value beside distance_threshold
        metric="precomputed",
        linkage="average",
        distance_threshold=distance,
    )
    return [int(label) for label in model.fit_predict(distances)]
