"""Cost of the framework itself: an instant policy in a tiny world, with 10 to 10,000 bullets in the workspace.

    python benchmarks/overhead.py [--tasks 60] [--bullets 10 100 1000 10000]

`step` is the wall time of one agent step minus policy and environment, i.e. prompt, parsing, journalling the reply.
`task` is the wall time from the end of one task to the end of the next, i.e. recall, graph, checkpoints, credit and
journal as well; `cpu` is the processor time of the same. Milliseconds; batch 1, concurrency 1, exact index, six steps a
task. Run it on an idle machine, with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any

from evolve.config.model import Config
from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, arun
from evolve.progress import Progress, TaskDone
from evolve.protocols import Action, ActionFormat, StepResult
from memory.records import DeltaOp, Op, Outcome, Reflection, Task, Trajectory
from policies.protocols import Message, SamplingParams, ToolSpec
from policies.scripted import ScriptedPolicy

STEPS = 6
WORDS = ("ledger", "invoice", "room", "mail", "folder", "budget", "calendar", "contact", "payment", "archive", "team")


class Clock:
    """Takes the time at both ends of the framework's part of a step: from an observation to the next action."""

    def __init__(self) -> None:
        self.left = 0.0
        self.steps: list[float] = []

    def leave(self) -> None:
        self.left = time.perf_counter()

    def enter(self) -> None:
        if self.left:
            self.steps.append(time.perf_counter() - self.left)
        self.left = 0.0


class Instant:
    """An environment whose every step is instant."""

    name = "instant"
    action_format: ActionFormat = "code"
    tools: tuple[ToolSpec, ...] = ()

    def __init__(self, tasks: int, clock: Clock) -> None:
        self.count, self.clock = tasks, clock

    def describe(self, profile: str) -> str:
        return ""

    def tasks(self, split: str) -> Sequence[Task]:
        texts = [f"{WORDS[at % 11]} {WORDS[at % 7]} {at}" for at in range(self.count)]
        return [Task(id=f"{split}-{at}", instruction=text, split=split) for at, text in enumerate(texts)]

    def start(self, task: Task, seed: int = 0) -> _Episode:
        return _Episode(self.clock)


class _Episode:
    def __init__(self, clock: Clock) -> None:
        self.clock, self.left = clock, STEPS

    async def step(self, action: Action) -> StepResult:
        self.clock.enter()
        self.left -= 1
        result = StepResult(observation="ok", done=self.left == 0)
        if not result.done:
            self.clock.leave()
        return result

    async def grade(self) -> Outcome:
        return Outcome(success=True, reward=1.0)

    async def close(self) -> None:
        pass


class Silent:
    """A reflector that learns nothing, so that the number of bullets stays what it is."""

    name = "silent"

    async def reflect(self, trajectory: Trajectory, injected: Any, *, label_free: bool = False) -> Reflection:
        return Reflection(trajectory_id=trajectory.id, task_id=trajectory.task.id)


def fill(config: Config, bullets: int) -> None:
    """Put so many different bullets into the workspace."""
    with open_store(config) as store:
        for start in range(0, bullets, 500):
            ops = [
                DeltaOp(op=Op.ADD, payload={"content": f"{WORDS[n % 11]} {n} comes before {WORDS[n % 7]} {n * 7}"})
                for n in range(start, min(start + 500, bullets))
            ]
            store.commit("default", ops, actor="benchmark")


@dataclass
class Overhead:
    """Times of one run, in milliseconds."""

    steps: list[float]
    tasks: list[float]
    """Wall time of each task but the first, which bears the start."""
    cpu: list[float]
    """Processor time of the same."""

    def per_step(self, times: Sequence[float]) -> float:
        """Return the median of task times, divided by the steps of a task."""
        return statistics.median(times) / STEPS


class TaskClock:
    """An observer that takes the time whenever a task is done."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, float]] = []

    def notify(self, event: Progress) -> None:
        if isinstance(event, TaskDone):
            self.marks.append((time.perf_counter(), time.process_time()))


def measure(tasks: int, bullets: int) -> Overhead:
    """Return what a run of so many tasks costs with so many bullets."""
    import_module("evolve.loop.graph")  # its import is start-up, not overhead

    clock, marks = Clock(), TaskClock()
    with tempfile.TemporaryDirectory() as folder:
        config = Config.model_validate(
            {
                "root": folder,
                "run": {"batch_size": 1, "concurrency": 1},
                "memory": {"index": "exact"},
                "controls": {"no_memory": 0},
            }
        )
        fill(config, bullets)
        script = ScriptedPolicy(_reply, profile="compact", version="i")
        parts = Parts(policy=script, environment=Instant(tasks, clock), reflector=Silent())
        asyncio.run(arun(config, parts=parts, observers=[marks]))
    pairs = list(pairwise(marks.marks))
    return Overhead(
        steps=[1e3 * seconds for seconds in clock.steps],
        tasks=[1e3 * (new[0] - old[0]) for old, new in pairs],
        cpu=[1e3 * (new[1] - old[1]) for old, new in pairs],
    )


def _reply(messages: Sequence[Message], params: SamplingParams) -> str:
    return f"print({len(messages)})"


def row(bullets: int, found: Overhead) -> list[str]:
    """Return one row of the table."""
    p50, p95 = statistics.median(found.steps), statistics.quantiles(found.steps, n=20)[-1]
    task, cpu = statistics.median(found.tasks), statistics.median(found.cpu)
    return [str(bullets), *(f"{ms:.2f}" for ms in (p50, p95, task, cpu, found.per_step(found.tasks)))]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=60, help="tasks per row")
    parser.add_argument("--bullets", type=int, nargs="+", default=[10, 100, 1000, 10000], help="rows")
    options = parser.parse_args()
    print("| bullets | step p50 | step p95 | task p50 | task cpu p50 | task p50 per step |")
    print("|---|---|---|---|---|---|")
    for bullets in options.bullets:
        print("| " + " | ".join(row(bullets, measure(options.tasks, bullets))) + " |", flush=True)


if __name__ == "__main__":
    main()
