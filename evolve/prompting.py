"""Builds what the policy reads in one step, and reads what it wrote. Pure: no model, no store, no clock.

Two profiles carry the same fields. `full` is for general models: a system message with the world and what was learned,
then the task. `compact` is the pocket model's dialect: one user message `rules: ... task: ...`, then code and
observations alternate, with no other words. Knowledge stands in a stable order, core records before recalled ones, each
by its number, so that a prompt cache survives learning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from evolve.protocols import Action, ActionFormat, Environment
from memory.records import Record, Step, Task
from policies.prompts import render
from policies.protocols import Message, Profile, Reply

_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)

NO_CODE = "No code was found. Reply with one ```python block."
"""Observation for a reply of the full profile that holds no code block."""


def knowledge_lines(core: Sequence[Record[Any]], recalled: Sequence[Record[Any]]) -> list[str]:
    """Return one `[number] text` entry per record: core first, then recalled, each in order of number.

    A record that is both is shown once, as core. Further lines of a text are indented, so that learned text can never
    imitate a heading or another entry.
    """
    shown = {record.id for record in core}
    ordered = [
        *sorted(core, key=lambda record: record.number),
        *sorted((record for record in recalled if record.id not in shown), key=lambda record: record.number),
    ]
    return [f"[{record.number}] {_indented(record.payload.text())}" for record in ordered]


def act_messages(
    task: Task,
    core: Sequence[Record[Any]],
    recalled: Sequence[Record[Any]],
    steps: Sequence[Step],
    profile: Profile,
    describe: str,
) -> list[Message]:
    """Return the whole conversation of an episode so far, ready for the policy.

    `describe` is what `briefing` returns. Without knowledge, the compact profile still holds the line `rules:`.
    """
    rules = knowledge_lines(core, recalled)
    if profile == "compact":
        first = render("evolve", "act_compact", world=describe, rules=rules, task=task.instruction)
        opening = [Message(role="user", content=first)]
    else:
        system = render("evolve", "act", world=describe, rules=rules)
        opening = [Message(role="system", content=system), Message(role="user", content=task.instruction)]
    return [*opening, *(message for step in steps for message in step_messages(step))]


def step_messages(step: Step) -> tuple[Message, Message]:
    """Return what one step adds to the conversation: what the policy said and what it was answered."""
    said = Message(role="assistant", content=step.reply or step.action, tool_calls=step.tool_calls)
    if step.tool_calls:
        return said, Message(role="tool", content=step.observation, tool_call_id=step.tool_calls[0].id)
    return said, Message(role="user", content=step.observation)


def briefing(environment: Environment, profile: Profile) -> str:
    """Return what the agent is told before any task: the world, and in the full profile how an action is written."""
    world = environment.describe(profile)
    if profile == "compact":
        return world
    return render("evolve", f"act_{environment.action_format}", world=world)


def actions_of(reply: Reply, action_format: ActionFormat, profile: Profile) -> tuple[Action, ...]:
    """Return the actions a reply asks for, in order; empty when it asks for none.

    Native tool calls are performed one per step. In the compact profile the whole reply is the code.
    """
    if action_format == "tools" and reply.tool_calls:
        return tuple(Action(text=reply.text, tool_calls=(call,)) for call in reply.tool_calls)
    if action_format != "code" or profile == "compact":
        return (Action(text=reply.text),)
    blocks: list[str] = _FENCE.findall(reply.text)
    return (Action(text="\n".join(blocks)),) if blocks else ()


def _indented(text: str) -> str:
    return "\n    ".join(text.strip().splitlines())
