"""State of the graph (ids only) and the context of its nodes (objects, never stored)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, TypedDict

from evolve.config.model import Config
from evolve.episode.rollout import RolloutConfig
from evolve.gates.call_budget import CallBudget
from evolve.loop.batch import Batch, Stream
from evolve.progress import Observers, Tally
from evolve.protocols import Environment
from memory.protocols import Gate
from memory.records import Trust
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

    held: dict[object, Batch] = field(default_factory=dict[object, Batch])
    """The batch that is under way (`batch`)."""

    def batch(self, index: int) -> Batch:
        """Return a batch as the node before left it; read anew when the run was resumed, or somebody else wrote."""
        key = self.stream.key(index), self.store.stamp()
        if key not in self.held:
            self.held.clear()
            self.held[key] = Batch(self.store, self.namespace, self.stream, index)
        return self.held[key]

    @property
    def policy(self) -> Policy:
        """Return the acting policy."""
        return self.policies.acting

    @property
    def namespace(self) -> str:
        return self.config.memory.namespace
