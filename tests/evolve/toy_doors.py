"""A world small enough to reason about: coloured doors that open to a password, and a policy that can learn them.

A task names a door. Saying `open <colour>` without the password is an error that tells it; the task succeeds only when
no attempt failed. So cold success is 0, and a rule learned from one task solves every later task with the same door.
Run as a script it is the subprocess of the kill test: `python -m tests.evolve.toy_doors FOLDER run|resume`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evolve.config.model import Config
from evolve.errors import EnvironmentFailure
from evolve.protocols import Action, ActionFormat, StepResult
from memory.records import Check, Outcome, Task
from policies.protocols import Message, SamplingParams, ToolSpec
from policies.scripted import ScriptedPolicy

COLORS = ("red", "blue", "green", "white", "black")


def password(color: str) -> str:
    """Return the word that opens a door."""
    return f"{color[::-1]}x"


@dataclass
class DoorEpisode:
    """One door."""

    color: str
    failures: int = 0
    opened: bool = False

    async def step(self, action: Action) -> StepResult:
        if action.text == "crash":
            raise EnvironmentFailure("the door fell off")
        if action.text == f"open {self.color} {password(self.color)}":
            self.opened = True
            return StepResult(observation="ok", done=True)
        self.failures += 1
        error = f"the {self.color} door wants the word {password(self.color)}"
        return StepResult(observation=f"error: {error}", error=error)

    async def grade(self) -> Outcome:
        success = self.opened and not self.failures
        checks = (Check(name="opened", passed=self.opened), Check(name="politely", passed=not self.failures))
        return Outcome(success=success, reward=float(success), checks=checks)

    async def close(self) -> None:
        pass


class Doors:
    """`n` train tasks over five doors; dev and test_normal have one task per door."""

    name = "doors"
    action_format: ActionFormat = "code"
    tools: tuple[ToolSpec, ...] = ()

    def __init__(self, n: int = 20) -> None:
        self.n = n

    def describe(self, profile: str) -> str:
        return ""

    def tasks(self, split: str) -> Sequence[Task]:
        count = self.n if split == "train" else len(COLORS)
        doors = [COLORS[at % len(COLORS)] for at in range(count)]
        return [
            Task(id=f"{split}-{at}", instruction=f"Open the {color} door.", scenario=f"{split}-{color}", split=split)
            for at, color in enumerate(doors)
        ]

    def start(self, task: Task, seed: int = 0) -> DoorEpisode:
        return DoorEpisode(task.instruction.split()[2])


class ManyDoors(Doors):
    """Ten times as many dev tasks: enough that a look can prove a gain."""

    def tasks(self, split: str) -> Sequence[Task]:
        found = super().tasks(split)
        if split != "dev":
            return found
        return [task.model_copy(update={"id": f"{task.id}-{at}"}) for at in range(10) for task in found]


def replies(messages: Sequence[Message], params: SamplingParams) -> str:
    """Play the three roles, from the messages alone."""
    first = messages[0].content
    if first.startswith("reflect"):
        told = re.search(r"<< error: (the .+)", first)
        return json.dumps({"insights": [told.group(1)] if told else [], "harmful": []})
    if first.startswith("curate"):
        lesson = first.rsplit("lesson: ", 1)[1]
        return json.dumps({"op": "NONE" if lesson in first.split("lesson: ")[0] else "ADD"})
    color = re.findall(r"Open the (\w+) door", first)[-1]
    known = re.search(rf"the {color} door wants the word (\w+)", first + messages[-1].content)
    return f"open {color} {known.group(1)}" if known else f"open {color}"


def doors_policy(latency_s: float = 0.0) -> ScriptedPolicy:
    """Return the policy that plays doors."""
    return ScriptedPolicy(replies, name="doors", profile="compact", latency_s=latency_s)


def doors_config(root: Path, **sections: dict[str, object]) -> Config:
    """Return a configuration without Chroma, in `root`."""
    memory = {"index": "exact", **sections.pop("memory", {})}
    return Config.model_validate({"root": root, "memory": memory, **sections})


def _main(folder: Path, what: str) -> None:
    """Run or resume, noting each real model call in `calls.txt`, so that a killed run's calls can be counted."""
    from evolve.loop.session import Parts, resume, run

    def noted(messages: Sequence[Message], params: SamplingParams) -> str:
        with (folder / "calls.txt").open("a") as file:
            file.write(json.dumps([m.content for m in messages] + [params.seed]) + "\n")
        return replies(messages, params)

    policy = ScriptedPolicy(noted, name="doors", profile="compact", latency_s=0.01, version="noted")
    config = doors_config(folder, run={"batch_size": 3, "concurrency": 2})
    parts = Parts(policy=policy, environment=Doors())
    result = run(config, parts=parts) if what == "run" else resume(config, parts=parts)
    print(result.model_dump_json())


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2])
