"""The tasks of one pass in batches, and what the nodes of a batch hand on to each other.

Nothing of what is handed on is in a checkpoint: a run that was killed reads it from the journal when it is resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar, cast

from evolve.episode.arms import AA, MAIN, NO_MEMORY
from evolve.episode.injection import Shown, shown_again
from evolve.seeds import id_for, seed_for
from memory.errors import NotFound
from memory.records import Event, Injection, Reflection, Task, Trajectory
from memory.store import Store

T = TypeVar("T")


@dataclass(frozen=True)
class Stream:
    """The tasks of one pass and how they are grouped. `name` tells the passes of one run apart (`e0`, `e1`)."""

    run_id: str
    tasks: tuple[Task, ...]
    batch_size: int
    seed: int
    name: str = "e0"
    before: int = 0
    """Tasks done before this pass; they count for the compaction points."""
    control: frozenset[str] = frozenset()
    """Ids of the tasks that are also done without memory."""

    @property
    def batches(self) -> int:
        """Return how many batches there are."""
        return -(-len(self.tasks) // self.batch_size)

    def batch(self, index: int) -> tuple[Task, ...]:
        """Return the tasks of a batch."""
        return self.tasks[index * self.batch_size : (index + 1) * self.batch_size]

    def plan(self, index: int) -> list[tuple[Task, str]]:
        """Return the episodes of a batch as (task, arm): every task, then the control of those that have one."""
        tasks = self.batch(index)
        return [(task, MAIN) for task in tasks] + [(task, NO_MEMORY) for task in tasks if task.id in self.control]

    def done(self, batches: int) -> int:
        """Return how many tasks are done after so many batches of this pass."""
        return self.before + min(batches * self.batch_size, len(self.tasks))

    def key(self, *parts: object) -> str:
        """Return the journal subject of something in this pass."""
        return "/".join((self.run_id, self.name, *map(str, parts)))

    def episode_id(self, task_id: str, arm: str) -> str:
        """Return the id of the trajectory of a task in this pass."""
        return id_for("tr", self.run_id, self.name, task_id, arm)

    def episode_seed(self, task_id: str, arm: str) -> int:
        """Return the seed of an episode. The no-memory control shares that of the main arm; the A/A arm has its own."""
        return seed_for(self.seed, self.name, task_id, arm == AA)


class Batch:
    """One batch as its nodes hand it on: what the journal holds of it is read once, and what is added is kept.

    It lasts as long as nobody else writes (`RunContext.batch`): that could be a purge.
    """

    def __init__(self, store: Store, namespace: str, stream: Stream, index: int) -> None:
        self._store, self._namespace, self._stream = store, namespace, stream
        self.index, self.subject = index, stream.key(index)
        self._new: list[str] = []
        self._made: dict[Hashable, object] = {}

    @cached_property
    def _episodes(self) -> dict[str, Trajectory]:
        return self._read([self._stream.episode_id(task.id, arm) for task, arm in self._stream.plan(self.index)])

    def _read(self, ids: list[str]) -> dict[str, Trajectory]:
        return {trajectory.id: trajectory for trajectory in self._store.trajectories(ids=ids)}

    @cached_property
    def _events(self) -> list[Event]:
        return self._store.events(subject=self.subject)

    def add(self, trajectory: Trajectory) -> None:
        """Store an episode; it is read again with the others of the batch, as the journal keeps it."""
        self._store.add_trajectory(trajectory)
        self._new.append(trajectory.id)

    def __contains__(self, trajectory_id: str) -> bool:
        """Tell whether an episode is stored already."""
        return trajectory_id in self._episodes

    @property
    def episodes(self) -> tuple[Trajectory, ...]:
        """The episodes to learn from: of the main arm, in task order. Raises `NotFound` when the journal lost one."""
        found: list[Trajectory] = []
        if self._new:
            self._episodes.update(self._read(self._new))
            self._new = []
        for task in self._stream.batch(self.index):
            episode_id = self._stream.episode_id(task.id, MAIN)
            if episode_id not in self:
                raise NotFound(
                    f"trajectory {episode_id!r} of task {task.id!r} is not in the journal; start the run anew"
                )
            found.append(self._episodes[episode_id])
        return tuple(each for each in found if not each.erased)

    def reflections(self, ids: Sequence[str]) -> tuple[Reflection, ...]:
        """Return stored reflections in the order of their ids."""
        found = self.once(("reflections", *ids), partial(self._store.reflections, ids=list(ids))) if ids else ()
        return tuple(sorted(found, key=lambda reflection: ids.index(reflection.id)))

    def shown(self, injected: Sequence[Injection]) -> Shown:
        """Return what an injection list of the batch shows."""
        key = tuple((item.record_id, item.version, item.core) for item in injected)
        shown = self.once(key, partial(shown_again, self._store, injected))
        return replace(shown, injected=tuple(injected))

    def append(self, type: str, data: dict[str, Any]) -> Event:
        """Journal an event about the batch."""
        event = Event(type=type, namespace=self._namespace, run_id=self._stream.run_id, subject=self.subject, data=data)
        known = self._events
        known.append(self._store.append(event))
        return known[-1]

    def events(self, type: str) -> list[Event]:
        """Return the events of a type about the batch, in order."""
        return [event for event in self._events if event.type == type]

    def parsed(self, type: str, parse: Callable[[dict[str, Any]], T]) -> list[T]:
        """Return what `parse` makes of the events of a type; of each it is asked once."""
        return [self.once(event.seq, partial(parse, event.data)) for event in self.events(type)]

    def once(self, name: Hashable, make: Callable[[], T]) -> T:
        """Return what was made under a name before, or make it."""
        if name not in self._made:
            self._made[name] = make()
        return cast(T, self._made[name])
