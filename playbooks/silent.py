"""The Reflector that says nothing: it hands an episode on, for curators that read episodes themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory.records import Record, Reflection, Trajectory


class SilentReflector:
    """Names the episode and no lesson. Implements `playbooks.protocols.Reflector`; no model is asked."""

    name = "none"

    def reads(self, trajectory: Trajectory, *, label_free: bool = False) -> str:
        """Return nothing."""
        return ""

    async def reflect(
        self, trajectory: Trajectory, injected: Sequence[Record[Any]], *, label_free: bool = False
    ) -> Reflection:
        """Return an empty reflection; nothing of the trajectory is read but its ids."""
        return Reflection(trajectory_id=trajectory.id, task_id=trajectory.task.id, author=self.name)
