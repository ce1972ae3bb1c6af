"""The `exemplar` kind: a task that was solved, with the turns that solved it, shown as earlier turns of a conversation.

A small model does more with a solved task than with a rule about it ("Teach Better or Show Smarter", arXiv 2406.15708).
What failed on the way and long observations are left out; what ended the episode is kept for readers, and not shown:
the agent of that episode never read it either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from memory.kinds import register
from memory.records import Frozen, Payload, Record, Step, ToolCall
from playbooks.render import neutral
from policies.protocols import Message

SAID_CHARS = 500
"""Longer replies are shown as their action alone."""
OBSERVED_CHARS = 400
"""Most characters of an observation; of a longer one the middle is left out."""


class Turn(Frozen):
    """One step that worked."""

    said: str
    """What the agent said: its whole reply, or its action where that was long."""
    calls: tuple[ToolCall, ...] = ()
    """Native tool calls, where it made them."""
    observed: str = ""
    """What it was answered."""


class Exemplar(Payload):
    """A task and how it was solved."""

    kind: ClassVar[str] = "exemplar"

    task: str
    """Its instruction."""
    opening: str = ""
    """What the world showed before the first action."""
    turns: tuple[Turn, ...] = Field(min_length=1)

    @property
    def asked(self) -> str:
        """Return the task as its agent read it."""
        return f"{self.task}\n\n{self.opening}" if self.opening else self.task

    def text(self) -> str:
        """Return the whole exemplar for readers."""
        lines = [f"Task: {self.asked}"]
        for turn in self.turns:
            lines += [f"Action: {_acted(turn)}", f"Result: {turn.observed}"]
        return "\n".join(lines)

    def texts(self) -> tuple[str, ...]:
        """Return each of its texts by itself."""
        return (self.task, self.opening, *(part for turn in self.turns for part in (_acted(turn), turn.observed)))

    def key(self) -> str:
        """Return what was asked: in many worlds, such as games, the tasks differ in their openings alone."""
        return self.asked

    def compared(self) -> str:
        """Return the same: what is told apart by it is found by it."""
        return self.asked


def shortened(task: str, opening: str, steps: Sequence[Step], chars: int = OBSERVED_CHARS) -> Exemplar | None:
    """Return the exemplar of an episode of which these steps are worth showing; None where none of them worked.

    Of an observation that is longer than `chars` characters the middle is left out.
    """
    worked = [step for step in steps if not step.error and (step.action.strip() or step.tool_calls)]
    turns = tuple(
        Turn(said=_said(step), calls=step.tool_calls, observed=_middle_out(step.observation, chars)) for step in worked
    )
    return Exemplar(task=task, opening=_middle_out(opening, chars), turns=turns) if turns else None


def messages(records: Sequence[Record[Exemplar]]) -> list[Message]:
    """Return exemplars as turns of a conversation, in the order given; learned text stays inside of its turn."""
    found: list[Message] = []
    for payload in (record.payload for record in records):
        found.append(Message(role="user", content=neutral(payload.asked)))
        for at, turn in enumerate(payload.turns, start=1):
            calls = tuple(call.model_copy(update={"arguments": _neutral(call.arguments)}) for call in turn.calls)
            found.append(Message(role="assistant", content=neutral(turn.said), tool_calls=calls))
            if turn.calls:  # a server wants an answer to each call
                answer = Message(role="tool", content=neutral(turn.observed), tool_call_id=turn.calls[0].id)
                found.append(answer)
            elif at < len(payload.turns):
                found.append(Message(role="user", content=neutral(turn.observed)))
    return found


def _neutral(value: Any) -> Any:
    """Return the arguments of a call with all texts in them made neutral."""
    if isinstance(value, str):
        return neutral(value)
    if isinstance(value, dict):
        return {neutral(str(key)): _neutral(each) for key, each in value.items()}
    return [_neutral(each) for each in value] if isinstance(value, list | tuple) else value


def shown_text(records: Sequence[Record[Exemplar]]) -> str:
    """Return the words of `messages`, by which the tokens of exemplars are counted."""
    return "\n".join(f"{each.content}{''.join(map(_called, each.tool_calls))}" for each in messages(records))


def _acted(turn: Turn) -> str:
    return "\n".join(filter(None, (turn.said, *map(_called, turn.calls))))


def _called(call: ToolCall) -> str:
    return f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"


def _said(step: Step) -> str:
    """Return the reply, or of a long one the action, in a block of code where it stood in one."""
    if step.tool_calls or not step.reply:
        return step.reply if step.tool_calls else step.action
    if len(step.reply) <= SAID_CHARS:
        return step.reply
    return f"```python\n{step.action}\n```" if "```" in step.reply else step.action


def _middle_out(text: str, chars: int) -> str:
    half = chars // 2
    return text if len(text) <= chars else f"{text[:half]}\n[...]\n{text[-half:]}"


MEMBER = register(Exemplar)
EXAMPLE = Exemplar(task="Ask Ada for 12 euros.", turns=(Turn(said="payments.request(amount=1200)", observed="done"),))
