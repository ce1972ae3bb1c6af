"""Starts an episode with its skills defined: their sources run in its sandbox before the first action.

Defining counts as no step, and the world is not touched: a skill is imports and one `def`. Where they cannot be defined
together the episode starts anew and they are tried one by one: what fails is left out, with all that require it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evolve.protocols import Action, Environment, Episode
from evolve.usercode import begun
from memory.errors import EvolveError
from memory.records import Event, Record, Task, Trajectory
from memory.store import Store
from skills.library import Library

LEFT_OUT = "skills.left_out"
"""Event: skills of an episode could not be defined, and why."""


@dataclass(frozen=True)
class Started:
    """A fresh episode, and the skills that are defined in it."""

    episode: Episode
    skills: tuple[Record[Any], ...] = ()
    source: str = ""
    """What ran before the first action."""
    opening: str = ""
    """What the episode's opening shows, which is read before anything runs."""
    error: str | None = None
    """Why the skills were left out."""


async def start(environment: Environment, task: Task, seed: int, skills: Sequence[Record[Any]]) -> Started:
    """Return a fresh episode in which `skills`, callees first, are defined as far as they can be.

    Raises what the environment raises.
    """
    episode, opening = await begun(environment, task, seed)
    if not skills:
        return Started(episode, opening=opening)
    try:
        source = Library(skills).prelude(record.payload.name for record in skills)
    except EvolveError as unfit:
        return Started(episode, error=str(unfit), opening=opening)
    if await _defines(episode, source) is None:
        return Started(episode, tuple(skills), source, opening=opening)
    await episode.close()
    trial, _ = await begun(environment, task, seed)
    try:
        kept, error = await _apart(trial, skills)
    finally:
        await trial.close()
    episode, opening = await begun(environment, task, seed)
    source = Library(kept).prelude(record.payload.name for record in kept)
    again = await _defines(episode, source) if kept else None
    if again is None:
        return Started(episode, kept, source, error=error, opening=opening)
    await episode.close()
    episode, opening = await begun(environment, task, seed)
    return Started(episode, error=f"{error}; {again}", opening=opening)


async def _apart(episode: Episode, skills: Sequence[Record[Any]]) -> tuple[tuple[Record[Any], ...], str]:
    """Return the skills that can be defined one after the other, and why the others cannot."""
    kept: list[Record[Any]] = []
    wrong: dict[str, str] = {}
    for record in skills:
        lost = next((name for name in record.payload.requires if name in wrong), None)
        error = f"it calls {lost}" if lost else await _defines(episode, record.payload.source)
        if error is None:
            kept.append(record)
        else:
            wrong[record.payload.name] = error
    return tuple(kept), "; ".join(f"{name}: {error}" for name, error in wrong.items())


async def _defines(episode: Episode, source: str) -> str | None:
    """Run definitions; return why they failed."""
    try:
        result = await episode.step(Action(text=source))
    except BaseException:
        await episode.close()
        raise
    return result.error or ("the episode ended" if result.done else None)


def left_out(store: Store, trajectory: Trajectory, skills: Sequence[Record[Any]]) -> None:
    """Journal which of the skills of an episode could not be defined."""
    given = {item.record_id for item in trajectory.injected}
    gone = [f"{record.id}@{record.version}" for record in skills if record.id not in given]
    data = {"skills": gone, "reason": trajectory.prelude_error}
    store.append(Event(type=LEFT_OUT, run_id=trajectory.run_id, subject=trajectory.id, data=data))
