"""A world as somebody else would write it: a first scene, tools of its own for each task, an agent that solves it."""

from __future__ import annotations

from collections.abc import Sequence

from evolve.config.model import PolicySection
from evolve.protocols import Action, StepResult
from memory.records import Outcome, Task, ToolCall, Usage
from policies.protocols import Message, Reply, SamplingParams, ToolSpec
from policies.scripted import ScriptedPolicy

MANUAL = "You work at the helpdesk of the Tidewater brewery. Close every ticket that you are given."
SCENE = "Ticket: the lamp of kettle four is out."
SENT = 5770
"""Prompt tokens that the policy says it read."""
TOOLS = tuple(
    ToolSpec(
        name=f"close_{kind}",
        description=f"Close a ticket about a {kind}. " + "Ask for nothing twice. " * 20,
        parameters={"type": "object", "properties": {"ticket": {"type": "string"}}},
    )
    for kind in ("lamp", "pump", "valve")
)


class Episode:
    """One ticket."""

    closed = False

    async def opening(self) -> str:
        return SCENE

    async def step(self, action: Action) -> StepResult:
        self.closed = any(call.name == "close_lamp" for call in action.tool_calls)
        return StepResult(observation="closed" if self.closed else "no such ticket", done=True)

    async def grade(self) -> Outcome:
        return Outcome(success=self.closed, reward=float(self.closed))

    async def close(self) -> None:
        """Hold nothing."""


class Helpdesk:
    """Tickets of a brewery. Each offers two of the three tools."""

    name = "helpdesk"
    action_format = "tools"
    tools = TOOLS

    def describe(self, profile: str) -> str:
        return MANUAL

    def tasks(self, split: str) -> Sequence[Task]:
        return [Task(id=f"{split}-{at}", instruction=f"Ticket {at}", scenario=f"{split}-{at}") for at in range(3)]

    def tools_for(self, task: Task) -> tuple[ToolSpec, ...]:
        return TOOLS[:2]

    def start(self, task: Task, seed: int = 0) -> Episode:
        return Episode()


def policy(section: PolicySection) -> ScriptedPolicy:
    """Return an agent that closes every lamp."""

    def script(messages: Sequence[Message], params: SamplingParams) -> Reply:
        call = ToolCall(id="call-1", name="close_lamp", arguments={"ticket": "4"})
        return Reply(text="", tool_calls=(call,), usage=Usage(prompt_tokens=SENT, completion_tokens=9, calls=1))

    return ScriptedPolicy(script, name="helper")
