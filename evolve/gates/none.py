"""Gate `none`: everything proposed is applied as provisional. For ablations, and where a person reviews each change."""

from __future__ import annotations

from collections.abc import Sequence

from evolve.gates.context import GateContext
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Trajectory, Verdict


class NoGate:
    """Accepts all ops."""

    name = "none"

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Verdict:
        """Return a verdict that accepts everything."""
        return Verdict(gate=self.name, accepted=tuple(op.op_id for op in ops))


def make(context: GateContext) -> NoGate:
    """Return the gate."""
    return NoGate()


MEMBER = make
