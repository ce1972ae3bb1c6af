"""Contracts of the playbook floor: both roles only return records; nothing here changes state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from memory.protocols import KnowledgeView
from memory.records import DeltaOp, Record, Reflection, Trajectory


class Reflector(Protocol):
    """Reads one trajectory and says what it teaches."""

    @property
    def name(self) -> str: ...

    async def reflect(
        self, trajectory: Trajectory, injected: Sequence[Record[Any]], *, label_free: bool = False
    ) -> Reflection:
        """Return a reflection. With `label_free`, the outcome is never read: only the steps' own feedback is.

        Unparsable model output gives `parsed=False` with the raw text, never an exception and never an empty lesson.
        """
        ...


class Curator(Protocol):
    """Turns reflections into proposed deltas against what is already known."""

    @property
    def name(self) -> str: ...

    async def curate(self, reflections: Sequence[Reflection], view: KnowledgeView) -> tuple[DeltaOp, ...]:
        """Return ops in the order they should be applied. Never changes state."""
        ...
