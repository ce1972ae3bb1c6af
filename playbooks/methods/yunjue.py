"""Parallel batch evolution (Yunjue, arXiv 2601.18226): a batch learns side by side, then its lessons are absorbed.

Every episode of a batch works from the same knowledge and draws lessons of its own; after the batch alike ones are
clustered, one of each cluster joins what is known. Convergence is EGL, new records / tasks, which goes to 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from memory.protocols import Embedder, KnowledgeView
from memory.records import DeltaOp, Frozen, Op, Reflection, Trust
from playbooks.lessons import Known, Lesson, collect, direct_op, tag_ops
from playbooks.similarity import contradicts

SIMILARITY = 0.8
"""Cosine from which two lessons of a batch are one."""


class Growth(Frozen):
    """What one batch proposed to add."""

    new: int
    tasks: int

    @property
    def egl(self) -> float:
        """Return new records / tasks; 0.0 without tasks."""
        return self.new / self.tasks if self.tasks else 0.0


def absorbed(lessons: Sequence[Lesson], embedder: Embedder) -> tuple[Lesson, ...]:
    """Return one lesson of each cluster, with the origins of all: greedy, the earliest is kept.

    Lessons that contradict each other stay apart, however near they are.
    """
    if not lessons:
        return ()
    vectors = embedder.embed([lesson.insight.content for lesson in lessons])
    kept: list[int] = []
    origins: dict[int, list[int]] = {}
    for at, lesson in enumerate(lessons):
        near = [
            first
            for first in kept
            if float(np.round(vectors[at] @ vectors[first], 6)) >= SIMILARITY
            and not contradicts(lesson.insight.content, lessons[first].insight.content)
        ]
        origins.setdefault(near[0] if near else at, []).append(at)
        kept += [] if near else [at]
    return tuple(_joined([lessons[at] for at in origins[first]]) for first in kept)


class BatchCurator:
    """Absorbs a batch's lessons. Implements `playbooks.protocols.Curator`; no model is asked.

    The batch's growth is handed to `record`, with the ids of its episodes.
    """

    name = "batch"

    def __init__(
        self,
        embedder: Embedder,
        *,
        trust: Trust = Trust.SELF_JUDGED,
        record: Callable[[Growth, Sequence[str]], object] = lambda *_: None,
    ) -> None:
        self._embedder = embedder
        self._trust = trust
        self._record = record

    async def curate(self, reflections: Sequence[Reflection], view: KnowledgeView) -> tuple[DeltaOp, ...]:
        """Return the reflections' tags, then one op for each cluster of lessons."""
        known = Known(view)
        ops = [direct_op(lesson, known, self._trust) for lesson in absorbed(collect(reflections), self._embedder)]
        unique = {op.op_id: op for op in ops if op is not None}
        new = sum(op.op is Op.ADD for op in unique.values())
        if reflections:
            self._record(Growth(new=new, tasks=len(reflections)), tuple(r.trajectory_id for r in reflections))
        return (*tag_ops(reflections, view), *unique.values())


def _joined(group: Sequence[Lesson]) -> Lesson:
    def union(lists: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(item for items in lists for item in items))

    return group[0].model_copy(
        update={
            "trajectory_ids": union([lesson.trajectory_ids for lesson in group]),
            "task_ids": union([lesson.task_ids for lesson in group]),
            "harmful": union([lesson.harmful for lesson in group]),
        }
    )
