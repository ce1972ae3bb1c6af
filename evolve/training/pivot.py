"""Pivot of a failed episode: the wrong step, and what to do instead. Finders are in `evolve/training/pivots`."""

from __future__ import annotations

from typing import Protocol

from memory.records import Frozen, Trajectory
from policies.protocols import Policy, Reply, SamplingParams


class Pivot(Frozen):
    """The step to retry from, and the guidance."""

    step: int
    """Index of the first step to be done anew."""
    lessons: tuple[str, ...]
    """What the agent is told, a text each; never empty."""
    reflection: Reply | None = None
    """The reply that said so, where a model did: it is trained on too."""


class PivotFinder(Protocol):
    """Who reflects on a failed episode."""

    async def __call__(self, trajectory: Trajectory, policy: Policy, params: SamplingParams, /) -> Pivot | None:
        """Return the pivot, None where none was found; `policy` is the one that acted. Raises what it raises."""
        ...
