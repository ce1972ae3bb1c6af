"""Contracts of the playbook floor: both roles only return records; nothing here changes state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

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


@runtime_checkable
class TellsReading(Protocol):
    """Capability of a reflector or curator: it tells what it reads of an episode. Without it, that is all of it.

    A lesson whose author read what strangers can have written is trusted less than others.
    """

    def reads(self, trajectory: Trajectory, *, label_free: bool = False) -> str:
        """Return the text of the episode that is shown to the author; empty where it is none."""
        ...


class Curator(Protocol):
    """Turns reflections into proposed deltas against what is already known."""

    @property
    def name(self) -> str: ...

    async def curate(self, reflections: Sequence[Reflection], view: KnowledgeView) -> tuple[DeltaOp, ...]:
        """Return ops in the order they should be applied. Never changes state."""
        ...
