"""Speed-up of a batch of eight at concurrency 8 over 1, with a policy that takes half a second per call.

    python benchmarks/parallel.py [--tasks 16] [--latency 0.5]

Scripted replies in an instant world, learning on. The outcome is compared too: it must be identical.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from evolve.config.model import Config
from evolve.loop.session import Parts, arun
from evolve.protocols import Action, ActionFormat, StepResult
from memory.records import Outcome, Task
from policies.protocols import Message, SamplingParams, ToolSpec
from policies.scripted import ScriptedPolicy


class Greeting:
    """Wants to be greeted with the word of the task; two steps each."""

    name = "greeting"
    action_format: ActionFormat = "code"
    tools: tuple[ToolSpec, ...] = ()

    def __init__(self, tasks: int) -> None:
        self.count = tasks

    def describe(self, profile: str) -> str:
        return ""

    def tasks(self, split: str) -> Sequence[Task]:
        texts = [f"Greet number {at}." for at in range(self.count)]
        return [Task(id=f"{split}-{at}", instruction=text, split=split) for at, text in enumerate(texts)]

    def start(self, task: Task, seed: int = 0) -> _Episode:
        return _Episode()


class _Episode:
    steps = 0

    async def step(self, action: Action) -> StepResult:
        self.steps += 1
        error = "greet twice" if self.steps == 1 else None
        return StepResult(observation=error or "ok", error=error, done=error is None)

    async def grade(self) -> Outcome:
        return Outcome(success=True, reward=1.0)

    async def close(self) -> None:
        pass


def _reply(messages: Sequence[Message], params: SamplingParams) -> str:
    role = messages[0].content.partition("\n")[0]
    if role == "reflect":
        return '{"insights": ["greet twice"], "harmful": []}'
    return '{"op": "NONE", "target": 1}' if role == "curate" else "greet()"


def measure(tasks: int, latency: float, concurrency: int) -> tuple[float, Any]:
    """Return (seconds of the run, success per task)."""
    with tempfile.TemporaryDirectory() as folder:
        sections = {
            "run": {"batch_size": 8, "concurrency": concurrency},
            "memory": {"index": "exact"},
            "controls": {"no_memory": 0},
        }
        config = Config.model_validate({"root": folder, **sections})
        policy = ScriptedPolicy(_reply, profile="compact", version="p", latency_s=latency)
        started = time.perf_counter()
        result = asyncio.run(arun(config, parts=Parts(policy=policy, environment=Greeting(tasks))))
        metrics = result.metrics
        return time.perf_counter() - started, metrics and (metrics.tgc, metrics.steps, metrics.injected)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=16, help="tasks of the stream")
    parser.add_argument("--latency", type=float, default=0.5, help="seconds per call")
    options = parser.parse_args()
    measure(1, 0.0, 1)  # imports and compiled templates are start-up
    (slow, one), (fast, eight) = (measure(options.tasks, options.latency, n) for n in (1, 8))
    print("| concurrency 1 s | concurrency 8 s | faster | same outcome |")
    print("|---|---|---|---|")
    print(f"| {slow:.2f} | {fast:.2f} | {slow / fast:.1f} x | {one == eight} |")


if __name__ == "__main__":
    main()
