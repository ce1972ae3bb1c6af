"""Starts an episode with its skills defined: their sources run in its sandbox before the first action.

Defining counts as no step, and the world is not touched: a skill is imports and one `def`. What cannot be defined is
left out whole, and the episode starts anew without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evolve.protocols import Action, Environment, Episode
from memory.errors import EvolveError
from memory.records import Event, Record, Task, Trajectory
from memory.store import Store
from skills.library import Library

LEFT_OUT = "skills.left_out"
"""Event: the skills of an episode could not be defined, and why."""


@dataclass(frozen=True)
class Started:
    """A fresh episode, and the skills that are defined in it."""

    episode: Episode
    skills: tuple[Record[Any], ...] = ()
    source: str = ""
    """What ran before the first action."""
    error: str | None = None
    """Why the skills were left out."""


async def start(environment: Environment, task: Task, seed: int, skills: Sequence[Record[Any]]) -> Started:
    """Return a fresh episode in which `skills` are defined, or none of them. Raises what the environment raises."""
    episode = environment.start(task, seed)
    if not skills:
        return Started(episode)
    try:
        source = Library(skills).prelude(record.payload.name for record in skills)
    except EvolveError as unfit:
        return Started(episode, error=str(unfit))
    try:
        result = await episode.step(Action(text=source))
    except BaseException:
        await episode.close()
        raise
    if result.error is None and not result.done:
        return Started(episode, tuple(skills), source)
    await episode.close()
    return Started(environment.start(task, seed), error=result.error or "the episode ended")


def left_out(store: Store, trajectory: Trajectory, skills: Sequence[Record[Any]]) -> None:
    """Journal that the skills of an episode could not be defined."""
    data = {"skills": [f"{record.id}@{record.version}" for record in skills], "reason": trajectory.prelude_error}
    store.append(Event(type=LEFT_OUT, run_id=trajectory.run_id, subject=trajectory.id, data=data))
