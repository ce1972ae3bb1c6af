"""A text game whose rules are in no manual: which tool opens what, and where a lamp is needed.

    evolve run --env examples.worlds.cellar:Cellar

The rules are drawn from a seed, so they can only be learned there. A second mistake fails an episode, a third ends it.
`player` stands for a model: it tries the tools one after the other, and heeds what it has read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from evolve import Action, Message, Outcome, SamplingParams, ScriptedPolicy, StepResult, Task

THINGS = ("oak door", "iron chest", "stone lid", "brass gate", "glass case", "old cupboard")
TOOLS = ("lever", "key", "rope", "oil")
TREASURES = ("ring map coin letter crown knife lute mask", "seal globe harp", "bell vase clock torch")
SPLITS = dict(zip(("train", "dev", "test_normal"), map(str.split, TREASURES), strict=True))
"""Split -> its treasures: each is once behind every thing."""
MOST_MISTAKES = 3


class Cellar:
    """Things to open. `seed` draws the rules."""

    name = "cellar"
    action_format = "text"
    tools = ()
    seedless = True
    max_steps = 8

    def __init__(self, seed: int = 0) -> None:
        draw = Random(f"cellar {seed}")
        self.opened_with = {thing: draw.choice(TOOLS) for thing in THINGS}
        self.dark = frozenset(draw.sample(THINGS, 2))

    def describe(self, profile: str) -> str:
        """Return how commands are written."""
        return "You explore a cellar. Say one command: `light lamp`, `open <thing> with <tool>` or `take <treasure>`."

    def tasks(self, split: str) -> Sequence[Task]:
        """Return one task for each thing and treasure of the split, in a drawn order."""
        pairs = [(thing, treasure) for treasure in SPLITS.get(split, []) for thing in THINGS]
        Random(split).shuffle(pairs)
        wanted = [f"Open the {thing} and take the {treasure}." for thing, treasure in pairs]
        return [Task(id=f"{split}-{at}", instruction=text, split=split) for at, text in enumerate(wanted)]

    def start(self, task: Task, seed: int = 0) -> Visit:
        """Return a visit to the cellar."""
        thing, treasure = re.findall(r"Open the (.+) and take the (.+)\.", task.instruction)[0]
        return Visit(self, thing, treasure)


@dataclass
class Visit:
    """One episode."""

    cellar: Cellar
    thing: str
    treasure: str
    done: list[str] = field(default_factory=lambda: [])
    mistakes: int = 0

    async def opening(self) -> str:
        """Return the scene."""
        return f"You stand before the {self.thing}. You carry a lamp, {', '.join(TOOLS)}."

    async def step(self, action: Action) -> StepResult:
        """Perform a command."""
        command = action.text.strip().lower()
        if error := self._refusal(command):
            self.mistakes += 1
            return StepResult(observation=error, error=error, done=self.mistakes == MOST_MISTAKES)
        self.done.append(command.partition(" ")[0])
        return StepResult(observation="Done.", done=command.startswith("take"))

    def _refusal(self, command: str) -> str:
        if command == "light lamp":
            return ""
        if command == f"take {self.treasure}":
            return "" if "open" in self.done else f"The {self.treasure} is out of reach."
        if not command.startswith(f"open {self.thing} with "):
            return "That makes no sense."
        if self.thing in self.cellar.dark and "light" not in self.done:
            return f"You must light the lamp before you open the {self.thing}."
        tool = command.rpartition(" ")[2]
        return "" if tool == self.cellar.opened_with[self.thing] else f"The {self.thing} does not move."

    async def grade(self) -> Outcome:
        """Ask for the treasure, with one mistake at most."""
        success = "take" in self.done and self.mistakes <= 1
        return Outcome(success=success, reward=float(success))

    async def close(self) -> None:
        """Hold nothing."""


def player(section: object = None) -> ScriptedPolicy:
    """Return a stand-in for a model."""
    return ScriptedPolicy(_play, name="player", version="1")


def _play(messages: Sequence[Message], params: SamplingParams) -> str:
    read = "\n".join(message.content for message in messages)
    spoken = [message.content for message in messages if message.role == "assistant"]
    thing, treasure = re.findall(r"Open the (.+) and take the (.+)\.", read)[-1]
    if messages[-1].content == "Done." and spoken[-1].startswith("open"):
        return f"take {treasure}"
    if f"light the lamp before you open the {thing}" in read and "light lamp" not in spoken:
        return "light lamp"
    known = re.findall(rf"Use `open {thing} with (\w+)`", read)
    answers = [message.content for message in messages if message.role == "user"][1:]
    stuck = {one for one, answer in zip(spoken, answers, strict=True) if "does not move" in answer}
    guesses = sorted(TOOLS, key=lambda tool: Random(f"{thing} {treasure} {tool}").random())
    return next(said for tool in (*known, *guesses) if (said := f"open {thing} with {tool}") not in stuck)
