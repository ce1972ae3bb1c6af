"""The batch as the learning nodes see it: main-arm episodes in task order, whatever order they were completed in."""

from __future__ import annotations

from collections.abc import Sequence

from evolve.episode.arms import MAIN
from evolve.loop.state import RunContext, State, batch_of
from memory.episodes import find
from memory.errors import NotFound
from memory.records import Reflection, Trajectory


def batch_episodes(state: State, context: RunContext) -> tuple[Trajectory, ...]:
    """Return the trajectories to learn from. Raises `NotFound` when the journal lost one."""
    found: list[Trajectory] = []
    for task in context.stream.batch(batch_of(state)):
        episode_id = context.stream.episode_id(task.id, MAIN)
        trajectory = context.store.trajectory(episode_id)
        if trajectory is None:
            raise NotFound(f"trajectory {episode_id!r} of task {task.id!r} is not in the journal; start the run anew")
        if not trajectory.erased:
            found.append(trajectory)
    return tuple(found)


def batch_reflections(ids: Sequence[str], context: RunContext) -> tuple[Reflection, ...]:
    """Return stored reflections in the order of their ids."""
    return tuple(item for key in ids for item in find(context.store.journal, Reflection, "reflections", id=key))
