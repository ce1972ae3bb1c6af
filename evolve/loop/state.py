"""What travels through the graph (ids only) and what its nodes work with (objects, never stored)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, TypedDict

from evolve.config.model import Config
from evolve.episode.arms import AA
from evolve.episode.rollout import RolloutConfig
from evolve.gates.call_budget import CallBudget
from evolve.progress import Observers, Tally
from evolve.protocols import Environment
from evolve.seeds import id_for, seed_for
from memory.protocols import Gate
from memory.records import Task, Trust
from memory.store import Store
from playbooks.protocols import Curator, Reflector
from policies.protocols import Policy
from policies.roles import Policies

Turn = Callable[[], Awaitable[None]]
"""Hands the machine on to the next of several runs and waits until it comes round again (`evolve.compare.conduct`)."""


def gather_ids(old: list[str] | None, new: list[str] | None) -> list[str]:
    """Reducer of the fan-in: None empties the list for the next batch."""
    return [] if new is None else [*(old or ()), *new]


class State(TypedDict, total=False):
    """One run's position. Everything else is in the journal under ids derived from (run, batch, task)."""

    batch: int
    core: list[str]
    """Record ids of the core."""
    core_at: int | None
    """Tasks done when the core was chosen."""
    episodes: Annotated[list[str], gather_ids]
    """Trajectory ids of this batch, in order of completion."""
    reflections: list[str]


def batch_of(state: State) -> int:
    """Return which batch of the pass it is, from 0."""
    return state.get("batch", 0)


class EpisodeJob(TypedDict):
    """What one `act` gets."""

    batch: int
    task_id: str
    arm: str


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


@dataclass(frozen=True)
class RunContext:
    """Everything a node may use. Built in `evolve.loop.assembly`; nodes change the world through `store` alone."""

    config: Config
    store: Store
    environment: Environment
    policies: Policies
    acting: RolloutConfig
    reflector: Reflector
    curator: Curator
    gates: tuple[Gate, ...]
    stream: Stream
    tally: Tally
    observers: Observers = field(default_factory=Observers)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(4))
    turn: Turn | None = None
    """Awaited between batches, and between groups of `concurrency` tasks of an evaluation; None = nobody else runs."""
    purse: CallBudget = field(default_factory=lambda: CallBudget(float("inf")))
    """What the gates may spend."""
    reporter: Trust = Trust.VERIFIED
    """Who says what became of the tasks; what somebody outside reports has no weight against what was verified."""

    @property
    def policy(self) -> Policy:
        """Return the acting policy."""
        return self.policies.acting

    @property
    def namespace(self) -> str:
        return self.config.memory.namespace
