"""A world whose questions name formulas that nobody can guess, and a policy that knows one that an earlier turn shows.

Beside that it is right by luck: at temperature 0 about questions with a lucky number, above it with every other seed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from evolve.config.model import Config
from evolve.protocols import Action, ActionFormat, StepResult
from memory.records import Outcome, Task
from policies.protocols import Message, SamplingParams, ToolSpec
from policies.scripted import ScriptedPolicy

FORMULAS = {
    "margin": "a minus b over a",
    "spread": "twice a less half of b",
    "yield": "b plus ten over a",
    "drift": "a squared less b",
}
LUCKY = {"10", "15", "20", "25", "100", "310"}
WORDY = "Let me think about it for quite a while first. "


def right(name: str, a: str, b: str) -> str:
    """Return the answer that solves a question."""
    return f"{FORMULAS[name]} at {a}, {b}"


@dataclass
class Question:
    """One question; the first action is the answer."""

    wanted: str
    answered: str = ""
    said: str = "right"

    async def step(self, action: Action) -> StepResult:
        self.answered = action.text.removeprefix(WORDY)
        if self.answered == self.wanted:
            return StepResult(observation=self.said, done=True)
        return StepResult(observation="error: no such formula", error="no such formula", done=True)

    async def grade(self) -> Outcome:
        success = self.answered == self.wanted
        return Outcome(success=success, reward=float(success))

    async def close(self) -> None:
        """Holds nothing."""


class Formulas:
    """Train questions over all formulas, held-out ones with other numbers; more of either can be given."""

    name = "formulas"
    action_format: ActionFormat = "text"
    tools: tuple[ToolSpec, ...] = ()

    def __init__(self, more: Sequence[Task] = (), *, said: str = "right") -> None:
        self.more, self.said = tuple(more), said

    def describe(self, profile: str) -> str:
        return "Say which formula answers the question."

    def tasks(self, split: str) -> Sequence[Task]:
        first = {"train": 0, "dev": 300, "test_normal": 600}.get(split)
        if first is None:
            return ()
        count = 16 if split == "train" else 8
        numbers = [(FORMULAS_BY_PLACE[at % 4], first + 10 + at, first + 50 + at) for at in range(count)]
        made = [question(f"{split}-{at}", *each, split=split) for at, each in enumerate(numbers)]
        return [*made, *(task for task in self.more if task.split == split)]

    def start(self, task: Task, seed: int = 0) -> Question:
        return Question(right(*asked(task.instruction)), said=self.said)


FORMULAS_BY_PLACE = tuple(FORMULAS)


def question(task_id: str, name: str, a: int, b: int, *, split: str = "train", before: str = "What") -> Task:
    """Return one question."""
    return Task(id=task_id, instruction=f"{before} is the {name} of {a} and {b}?", scenario=task_id, split=split)


def asked(text: str) -> tuple[str, str, str]:
    """Return formula and numbers of a question."""
    found = re.search(r"is the (\w+) of (\d+) and (\d+)\?", text)
    assert found, text
    return found[1], found[2], found[3]


def replies(messages: Sequence[Message], params: SamplingParams) -> str:
    """Answer the last question: as an earlier turn did that asked for the same formula, or by luck."""
    name, a, b = asked(messages[-1].content)
    wordy = WORDY if messages[-1].content.startswith("Please") else ""
    turns = [(before.content, m.content) for before, m in pairwise(messages) if m.role == "assistant"]
    known = [said for task, said in turns if f"is the {name} of" in task]
    if known:
        return wordy + f"{known[-1].removeprefix(WORDY).split(' at ')[0]} at {a}, {b}"
    lucky = (params.seed or 0) % 2 == 0 if params.temperature else a in LUCKY
    return wordy + (right(name, a, b) if lucky else f"guess at {a}, {b}")


def unlucky(messages: Sequence[Message], params: SamplingParams) -> str:
    """Answer as an earlier turn did, and know nothing else."""
    return replies(messages, params) if "solved before" in messages[0].content else "guess at 1, 2"


def formulas_policy(section: object = None) -> ScriptedPolicy:
    """Return the policy that plays formulas; a configuration can name it."""
    return ScriptedPolicy(replies, name="formulas")


def formulas_config(root: Path, **sections: dict[str, object]) -> Config:
    """Return a configuration with exemplars and nothing else to learn, in `root`."""
    basis: dict[str, dict[str, object]] = {
        "memory": {"index": "exact"},
        "playbook": {"reflector": "none", "curator": "direct"},
        "exemplars": {"enabled": True},
        "controls": {"no_memory": 0.0},
    }
    merged = {name: {**basis.get(name, {}), **sections.get(name, {})} for name in {*basis, *sections}}
    return Config.model_validate({"root": root, **merged})
