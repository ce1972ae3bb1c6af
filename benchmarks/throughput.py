"""Workload of claim scale_3: a world that costs nothing, a model that takes a second, writers of a workspace.

A configuration can name the world and the model, so that workers on other machines make their own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from benchmarks.kills import processes
from evolve.config.model import Config
from evolve.loop.assembly import open_store
from evolve.loop.session import arun
from evolve.progress import Learned, Progress, TaskDone
from evolve.protocols import Action, ActionFormat, StepResult
from memory.records import DeltaOp, Op, Outcome, Provenance, Status, Task
from policies.protocols import Message, SamplingParams, ToolSpec
from policies.scripted import ScriptedPolicy

if TYPE_CHECKING:
    from evolve.config.model import PolicySection

STEPS = 4
"""Calls of an episode."""
HELD_OUT = "test_normal"
ADDED = 500
"""Records of a commit that fills a workspace."""


class Counting:
    """Tasks without end; each wants `STEPS` words, whichever they are, and the second is answered with an error."""

    name = "counting"
    action_format: ActionFormat = "text"
    tools: tuple[ToolSpec, ...] = ()

    def __init__(self, tasks: int) -> None:
        self.count = tasks

    def describe(self, profile: str) -> str:
        return "Say a word."

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in ("train", HELD_OUT):
            return ()
        numbers = range(self.count)
        return [Task(id=f"{split}-{at}", instruction=f"Count to {STEPS} for {at}.", split=split) for at in numbers]

    def start(self, task: Task, seed: int = 0) -> CountingEpisode:
        return CountingEpisode(task.id)

    def outside(self, episode: Any) -> Sequence[str]:
        return ()


class CountingEpisode:
    """Single use."""

    def __init__(self, task_id: str) -> None:
        self._task_id, self._steps = task_id, 0

    async def step(self, action: Action) -> StepResult:
        self._steps += 1
        error = f"WordError: {self._task_id} wants another word" if self._steps == 2 else None
        return StepResult(observation=error or "ok", error=error, done=self._steps == STEPS)

    async def grade(self) -> Outcome:
        return Outcome(success=True, reward=1.0)

    async def close(self) -> None:
        """Holds nothing."""


def slow_model(section: PolicySection) -> ScriptedPolicy:
    """Return a model that answers after so many seconds (`section.model`)."""
    return ScriptedPolicy(_word, name="slow", version="1", profile="compact", latency_s=float(section.model))


def _word(messages: Sequence[Message], params: SamplingParams) -> str:
    return f"word {len(messages)}"


def settings(root: Path, database: str, tasks: int, latency: float, **run: Any) -> Config:
    """Return the configuration of a run in that world."""
    return Config.model_validate(
        {
            "root": root,
            "run": {"eval_splits": [HELD_OUT], "tasks": tasks, **run},
            "environment": {"name": "benchmarks.throughput:Counting", "tasks": tasks},
            "policy": {"name": "benchmarks.throughput:slow_model", "model": str(latency)},
            "memory": {"index": "exact", "database": database},
            "playbook": {"reflector": "rules", "curator": "direct"},
            "gate": {"names": ["static"]},
            "controls": {"no_memory": 0.0},
        }
    )


@dataclass
class Clock:
    """When the episodes of a run ended, and its batches; seconds on this machine's clock."""

    episodes: list[float]
    batches: list[float]

    def notify(self, event: Progress) -> None:
        """Note the moment."""
        if isinstance(event, TaskDone):
            self.episodes.append(time.perf_counter())
        elif isinstance(event, Learned):
            self.batches.append(time.perf_counter())


def share_of_ideal(config: Config, latency: float) -> tuple[float, float]:
    """Return episodes per second of a frozen run, and that as a share of what the model alone would allow.

    Measured from the end of the first episode that ended to that of the last: starting the workers is left out. Ideal
    are as many episodes at a time as `run.concurrency` says, each of `STEPS` calls.
    """
    clock = Clock([], [])
    asyncio.run(arun(config, observers=[clock]))
    ended = sorted(clock.episodes)
    waves = -(-len(ended) // config.run.concurrency)
    seconds = ended[-1] - ended[0]
    rate = (len(ended) - config.run.concurrency) / seconds
    ideal = (waves - 1) * STEPS * latency
    return rate, ideal / seconds


def filled(config: Config, records: int) -> None:
    """Put so many records into the namespace of a workspace."""
    with open_store(config) as store:
        for start in range(0, records, ADDED):
            numbers = range(start, min(start + ADDED, records))
            store.commit(config.memory.namespace, [added(str(at)) for at in numbers], actor="benchmark")


def added(name: str) -> DeltaOp:
    """Return the addition of a bullet that nobody else adds."""
    words = f"rule {name}: item{crc32(name.encode()) % 1013} must hold value before service {name} is called"
    return DeltaOp(
        op=Op.ADD, payload={"content": words}, status=Status.ACTIVE, provenance=Provenance(run_id="benchmark")
    )


def committing(config: Config) -> list[float]:
    """Learn; return for each batch the seconds from the end of its last episode until it was committed."""
    clock = Clock([], [])
    asyncio.run(arun(config, observers=[clock]))
    size = config.run.batch_size
    lasts = [max(clock.episodes[at : at + size]) for at in range(0, len(clock.episodes), size)]
    return [done - last for last, done in zip(lasts, clock.batches, strict=True)]


@dataclass(frozen=True)
class Written:
    """What writers of a workspace came to."""

    commits: int
    seconds: float
    lost: int
    """Additions of which the journal has no record."""


def written(config: Config, writers: int, turns: int, *, apart: bool) -> Written:
    """Let so many processes commit one addition `turns` times each, in one namespace or each in its own."""
    names = [f"writer-{number}" for number in range(writers)]
    spaces = {name: name if apart else "default" for name in names}
    with open_store(config):  # whoever comes first makes the tables
        pass
    gate = processes.Barrier(writers + 1, timeout=120)
    children = [
        processes.Process(target=write, args=(config, spaces[name], name, turns, gate), daemon=True) for name in names
    ]
    for child in children:
        child.start()
    gate.wait()
    begun = time.perf_counter()
    for child in children:
        child.join()
    seconds = time.perf_counter() - begun
    with open_store(config, read_only=True) as store:
        found = sum(len(store.records(space)) for space in set(spaces.values()))
    return Written(writers * turns, seconds, writers * turns - found)


def write(config: Config, namespace: str, name: str, turns: int, gate: Any) -> None:
    """Commit one addition after the other, when all writers are there."""
    with open_store(config, owner=False) as store:
        gate.wait()
        for turn in range(turns):
            store.commit(namespace, [added(f"{name}-{turn}")], actor=name)
