"""What the gates that run tasks share: which ops are measured, under which seed, and that nothing runs for nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from evolve.gates.ablation import Ablation, Seen
from evolve.gates.call_budget import OutOfCalls
from evolve.gates.decisions import Round, verdict_of
from evolve.seeds import seed_for
from evolve.statistics.decision import Decision, Evaluate, apart, changes
from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Trajectory, Trust, Verdict
from skills.record import Skill


class MeasuringGate(ABC):
    """Runs tasks through `evaluate` and decides about all texts of a batch together, and about all skills.

    Of what it accepts, what is not missed when it is left out stays out (`evolve.gates.ablation`).
    """

    name: ClassVar[str]

    def __init__(self, evaluate: Evaluate, seed: int, floor: Trust) -> None:
        self._evaluate, self._seed, self._floor = evaluate, seed, floor

    async def judge(self, ops: Sequence[DeltaOp], view: KnowledgeView, trajectories: Sequence[Trajectory]) -> Verdict:
        """Return the verdict on the changes among the ops; without any, nothing is run and no look is spent.

        Those wait whose runs cannot be afforded.
        """
        rounds, ablated = list[Round](), list[Round]()
        waiting: dict[str, str] = {}
        ablation = Ablation(self._evaluate, view, trajectories, floor=self._floor)
        for changed in apart(changes(ops), Skill.kind):
            ids = tuple(op.op_id for op in changed)
            seed = seed_for(self._seed, self.name, *ids)
            try:
                decision = await self._measure(changed, trajectories, seed)
            except OutOfCalls as short:
                waiting |= dict.fromkeys(ids, str(short))
                continue
            rounds.append(Round(ids, decision))
            if decision.accepted:
                found = await ablation.judge((), changed, self._seen(decision), seed)
                ablated, waiting = [*ablated, *found.rounds], waiting | found.waiting
        return verdict_of(self.name, ops, rounds, waiting, ablated)

    @abstractmethod
    def _seen(self, decision: Decision) -> Seen:
        """Return the tasks that a decision rests on, and which of them moved."""

    @abstractmethod
    async def _measure(self, changed: Sequence[DeltaOp], trajectories: Sequence[Trajectory], seed: int) -> Decision: ...
