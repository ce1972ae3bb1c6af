"""Regime-targeted repair (ActiveGraph, arXiv 2606.10241): one class of failures at a time, the most frequent first.

A script sorts the batch's failures into regimes and names the most frequent one; only what was learned from its
episodes is proposed. The lessons of the others are dropped: they are drawn again from later failures. No model is asked
here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Frozen, Reflection, Trajectory, Trust
from playbooks.lessons import Known, collect, direct_op, tag_ops

OTHER = "other"
_HEAD = re.compile(r"[A-Za-z_][\w.]*(?: [A-Za-z_]\w*)?")


class Histogram(Frozen):
    """The failures of one batch by regime."""

    counts: dict[str, int]
    target: str
    """The most frequent one; the first in order of the tasks among equals."""


def regime_of(trajectory: Trajectory, *, label_free: bool = False) -> str | None:
    """Return the regime of a failed episode; None for one that did not fail.

    It is what the first failed check is about (its detail's first words, `payments.send amount`, else its name), or the
    first words of the first error. Label-free, an episode that met an error counts as failed.
    """
    error = next((step.error for step in trajectory.steps if step.error), None)
    if label_free:
        return None if error is None else _head(error)
    if trajectory.success:
        return None
    checks = trajectory.outcome.checks if trajectory.outcome is not None else ()
    failed = next((check for check in checks if not check.passed), None)
    if failed is not None:
        return _head(failed.detail) if failed.detail else failed.name
    return OTHER if error is None else _head(error)


def histogram(regimes: Sequence[str]) -> Histogram | None:
    """Return the counts and the target; None without failures."""
    if not regimes:
        return None
    counts = Counter(regimes)
    target = max(counts, key=lambda regime: (counts[regime], -regimes.index(regime)))
    return Histogram(counts=dict(counts), target=target)


class RegimesCurator:
    """Proposes the lessons of the most frequent regime. Implements `playbooks.protocols.Curator`.

    Each batch's histogram is handed to `record`, with the ids of the episodes that it was made of.
    """

    name = "regimes"

    def __init__(
        self,
        episodes: Callable[[str], Trajectory | None],
        *,
        label_free: bool = False,
        record: Callable[[Histogram, Sequence[str]], object] = lambda *_: None,
    ) -> None:
        self._episodes = episodes
        self._label_free = label_free
        self._record = record

    async def curate(self, reflections: Sequence[Reflection], view: KnowledgeView) -> tuple[DeltaOp, ...]:
        """Return the reflections' tags, then one op for each lesson of the target regime."""
        found = {r.trajectory_id: self._regime(r.trajectory_id) for r in reflections}
        failures = histogram([regime for regime in found.values() if regime is not None])
        if failures is None:
            return tag_ops(reflections, view)
        self._record(failures, tuple(found))
        targeted = [r for r in reflections if found[r.trajectory_id] == failures.target]
        known, trust = Known(view), Trust.SELF_JUDGED if self._label_free else Trust.VERIFIED
        ops = [direct_op(lesson, known, trust) for lesson in collect(targeted)]
        return tuple({op.op_id: op for op in (*tag_ops(reflections, view), *ops) if op is not None}.values())

    def _regime(self, trajectory_id: str) -> str | None:
        trajectory = self._episodes(trajectory_id)
        return OTHER if trajectory is None else regime_of(trajectory, label_free=self._label_free)


def _head(text: str) -> str:
    match = _HEAD.search(text)
    return match[0] if match else OTHER
