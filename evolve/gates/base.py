"""What the gates that run tasks share: which ops are measured, under which seed, and that nothing runs for nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from evolve.gates.purse import OutOfCalls
from evolve.gates.rounds import verdict_of
from evolve.seeds import seed_for
from evolve.statistics.decision import Decision, Evaluate, changes, unmeasured
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Trajectory, Verdict


class MeasuringGate(ABC):
    """Runs tasks through `evaluate` and decides about all changes of a batch together."""

    name: ClassVar[str]

    def __init__(self, evaluate: Evaluate, seed: int) -> None:
        self._evaluate, self._seed = evaluate, seed

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Verdict:
        """Return one verdict for all changes among the ops; without any, nothing is run and no look is spent.

        All wait when the runs cannot be afforded.
        """
        changed = changes(ops)
        if not changed:
            return unmeasured(self.name, ops)
        seed = seed_for(self._seed, self.name, *(op.op_id for op in changed))
        try:
            decision = await self._measure(changed, trajectories, seed)
        except OutOfCalls as short:
            return verdict_of(self.name, ops, (), dict.fromkeys((op.op_id for op in changed), str(short)))
        return decision.verdict(self.name, ops)

    @abstractmethod
    async def _measure(self, changed: Sequence[DeltaOp], trajectories: Sequence[Trajectory], seed: int) -> Decision: ...
