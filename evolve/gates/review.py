"""Gate `review`: a person decides. No change is applied in the run; each waits until `evolve review` answers.

The answer is not this gate's verdict: it is an event of its own in the journal (`evolve.gates.review_queue`).
"""

from __future__ import annotations

from collections.abc import Sequence

from evolve.gates.context import GateContext
from evolve.statistics.decision import changes
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Trajectory, Verdict

WAITS = "waits for a person; answer with `evolve review`"


class ReviewGate:
    """Lets counters (TAG) pass and holds everything else back. The last of all gates: a person reads what they left."""

    name = "review"

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Verdict:
        """Return a verdict that refuses, for now, every change."""
        held = {op.op_id: WAITS for op in changes(ops)}
        accepted = tuple(op.op_id for op in ops if op.op_id not in held)
        return Verdict(gate=self.name, accepted=accepted, rejected=held)


def make(context: GateContext) -> ReviewGate:
    """Return the gate."""
    return ReviewGate()


MEMBER = make
