"""An environment of one's own in one file: a depot whose rules are in no manual.

    cd examples/own_environment && evolve run        # settings: evolve.toml; tasks: tasks.jsonl

An action is one line such as `ship(item='bolts', kilos=3)`. The depot refuses to ship what was not weighed, and counts
in grams. `Depot` is all that evolve needs: a name, a description, tasks, and episodes that are stepped and graded.
`clerk` stands for your model, so that the example runs anywhere; put your own under [policy] in evolve.toml.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from evolve import Action, Check, Message, Outcome, SamplingParams, ScriptedPolicy, StepResult, Task


@dataclass
class Shift:
    """One episode: the goods of one task, and what has been done with them."""

    item: str
    kilos: int
    weighed: set[str] = field(default_factory=lambda: set[str]())
    shipped: dict[str, int] = field(default_factory=lambda: dict[str, int]())
    refused: int = 0

    async def step(self, action: Action) -> StepResult:
        """Perform one call. A mistake is an observation with `error`, never an exception."""
        try:
            name, arguments = read(action.text)
            answer = self._call(name, **arguments)
        except (SyntaxError, ValueError, TypeError, PermissionError) as error:
            self.refused += 1
            text = f"{type(error).__name__}: {error}"
            return StepResult(observation=text, error=text)
        return StepResult(observation=answer, done=bool(self.shipped))

    def _call(self, name: str, item: str, **more: Any) -> str:
        if name == "weigh":
            self.weighed.add(item)
            return f"{item}: {self.kilos * 1000} g"
        if name != "ship":
            raise ValueError(f"no function {name}; there are weigh and ship")
        if item not in self.weighed:
            raise PermissionError("weigh must be called before ship")
        if set(more) != {"grams"}:
            raise ValueError("ship wants grams, not kilos")
        self.shipped[item] = more["grams"]
        return "on its way"

    async def grade(self) -> Outcome:
        """Compare what left the depot with the task; a refused call fails it too, as it wakes the foreman."""
        checks = (
            Check(
                name="shipped", passed=self.shipped == {self.item: self.kilos * 1000}, detail=f"left: {self.shipped}"
            ),
            Check(name="undisturbed", passed=not self.refused, detail=f"{self.refused} calls were refused"),
        )
        success = all(check.passed for check in checks)
        return Outcome(success=success, reward=float(success), checks=checks)

    async def close(self) -> None:
        """Holds nothing."""


class Depot:
    """The world. Its tasks come from tasks.jsonl; their public facts are in `metadata`."""

    name = "depot"
    action_format = "text"
    tools = ()

    def describe(self, profile: str) -> str:
        return "You work in a depot. Answer with one call: weigh(item=...) or ship(item=..., kilos=...)."

    def tasks(self, split: str) -> Sequence[Task]:
        return ()

    def start(self, task: Task, seed: int = 0) -> Shift:
        return Shift(task.metadata["item"], task.metadata["kilos"])

    def gold(self, task: Task) -> Sequence[Action]:
        """Return a right solution. Optional: with it, `evolve env check` proves the grader."""
        item, kilos = task.metadata["item"], task.metadata["kilos"]
        return [Action(text=f"weigh(item='{item}')"), Action(text=f"ship(item='{item}', grams={kilos * 1000})")]


def read(text: str) -> tuple[str, dict[str, Any]]:
    """Return name and arguments of one call with constant arguments. Nothing is evaluated."""
    node = ast.parse(text.strip(), mode="eval").body
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args:
        raise ValueError("expected one call like ship(item='bolts', kilos=3)")
    return node.func.id, {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}


def clerk(section: object) -> ScriptedPolicy:
    """Return a stand-in for a model: does as it was told at first, and heeds what it has read since."""
    return ScriptedPolicy(script, name="clerk", version="1")


def script(messages: Sequence[Message], params: SamplingParams) -> str:
    """Answer from the conversation alone."""
    said = "\n".join(message.content for message in messages)
    kilos, item = re.findall(r"Ship (\d+) kilos of (\w+)", said)[-1]
    if "weigh must" in said and not any(m.content.startswith("weigh(") for m in messages if m.role == "assistant"):
        return f"weigh(item='{item}')"
    return f"ship(item='{item}', grams={kilos}000)" if "grams" in said else f"ship(item='{item}', kilos={kilos})"
