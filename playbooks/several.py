"""Several Curators over the same reflections: each proposes, in order; what they propose alike counts once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Reflection, Trajectory
from playbooks.protocols import Curator, TellsReading


class SeveralCurators:
    """Curators side by side, as for bullets and notes. Implements `playbooks.protocols.Curator`."""

    def __init__(self, members: Sequence[Curator]) -> None:
        self._members = tuple(members)

    @property
    def name(self) -> str:
        return "+".join(member.name for member in self._members)

    def reads(self, trajectory: Trajectory, *, label_free: bool = False) -> str:
        """Return what its members read together; a member that does not tell reads everything."""
        return "\n".join(
            member.reads(trajectory, label_free=label_free) if isinstance(member, TellsReading) else trajectory.text()
            for member in self._members
        )

    async def curate(self, reflections: Sequence[Reflection], view: KnowledgeView) -> tuple[DeltaOp, ...]:
        """Return the ops of all, those of the first one first."""
        proposed = await asyncio.gather(*(member.curate(reflections, view) for member in self._members))
        return tuple({op.op_id: op for ops in proposed for op in ops}.values())
