"""Decisions of gates that measure, and how tasks are run for them. Decides and runs nothing itself."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from evolve.statistics.paired import Passed
from memory.records import DeltaOp, Frozen, Op, Status, Task, Verdict
from playbooks.kinds.exemplar import Exemplar

Evaluate = Callable[[Sequence[DeltaOp] | None, Sequence[Task], int], Awaitable[Passed]]
"""Runs tasks with a seed: under the knowledge as it is (None), or as the ops would make it. Changes nothing."""


class Decision(Frozen):
    """A decision about one change, with all it rests on: `replay(evidence)` of the gate's module gives it again."""

    accepted: bool
    reason: str
    status: Status
    """What the change becomes: `active`, `provisional` (also: not decided yet, the test goes on) or `rejected`."""
    evidence: dict[str, Any]
    """Plain JSON: `trial` (what was observed), `rules` (the settings) and `statistics` (what was computed)."""

    def verdict(self, gate: str, ops: Sequence[DeltaOp]) -> Verdict:
        """Return the verdict over `ops`, which stand or fall together; TAGs are counters and pass in any case."""
        refused = () if self.accepted else changes(ops)
        rejected = {op.op_id: self.reason for op in refused}
        accepted = tuple(op.op_id for op in ops if op.op_id not in rejected)
        status = self.status if self.accepted else Status.PROVISIONAL
        return Verdict(gate=gate, accepted=accepted, rejected=rejected, status=status, evidence=self.evidence)


def differing(
    evaluate: Evaluate, before: Sequence[DeltaOp], ops: Sequence[DeltaOp], tasks: Sequence[Task]
) -> Sequence[Task]:
    """Return the tasks that `ops` on top of `before` can change: all, unless `evaluate.differ` knows better."""
    differ = getattr(evaluate, "differ", None)
    return tasks if differ is None else differ(before, ops, tasks)


def changes(ops: Sequence[DeltaOp]) -> tuple[DeltaOp, ...]:
    """Return the ops that change what is recalled as text or code: no TAG, and no exemplar, which has its own gate."""
    return tuple(op for op in ops if op.op is not Op.TAG and op.kind != Exemplar.kind)


def drawn_by(ops: Sequence[DeltaOp]) -> tuple[str, ...]:
    """Return what a trial's random numbers are derived from: what each op says, and the tasks that taught it.

    Its id follows from episodes, which are of one run: two runs that learn the same try it on the same tasks.
    """
    return tuple(json.dumps([op.op, op.kind, op.payload, op.provenance.task_ids], sort_keys=True) for op in ops)


def apart(ops: Sequence[DeltaOp], kind: str) -> tuple[tuple[DeltaOp, ...], ...]:
    """Return the ops of other kinds, then those of `kind`, without what is empty: they are measured by themselves."""
    own = tuple(op for op in ops if op.kind == kind)
    rest = tuple(op for op in ops if op.kind != kind)
    return tuple(group for group in (rest, own) if group)
