"""What a LangChain conversation says of an episode: pure functions on its messages."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage

from evolve.environments.tool_errors import reports_error
from evolve.episode.prompting import learned, opening_messages
from evolve.episode.rollout import call_text
from memory.errors import BadInput
from memory.records import Step, Task, Usage
from policies.langchain_wire import to_reply
from policies.protocols import Profile


def task_message(messages: Sequence[AnyMessage]) -> HumanMessage:
    """Return the message that asks for the work: the last one of a person. Raises `BadInput` where there is none."""
    for message in reversed(messages):
        if isinstance(message, HumanMessage) and message.text.strip():
            return message
    raise BadInput(f"got {len(messages)} messages and none of a person with text; the last such one is the task")


def after(messages: Sequence[AnyMessage], message_id: str) -> list[AnyMessage]:
    """Return the messages that follow one; all where it is not among them."""
    at = next((at for at, message in enumerate(messages) if message.id == message_id), -1)
    return list(messages[at + 1 :])


def steps_of(messages: Sequence[AnyMessage]) -> tuple[Step, ...]:
    """Return one step per tool call, with what the tool answered, and one for words without a call."""
    answers = {message.tool_call_id: message for message in messages if isinstance(message, ToolMessage)}
    steps: list[Step] = []
    for message in messages:
        if not isinstance(message, AIMessage):
            continue
        reply = to_reply(message, "")
        if not reply.tool_calls:
            steps.append(Step(index=len(steps), action=reply.text, usage=reply.usage))
        for at, call in enumerate(reply.tool_calls):
            answer = answers.get(call.id)
            said = str(answer.text) if answer else ""
            steps.append(
                Step(
                    index=len(steps),
                    action=call_text(call),
                    reply="" if at else reply.text,
                    observation=said,
                    error=said if answer and (answer.status == "error" or reports_error(said)) else None,
                    tool_calls=(call,),
                    usage=Usage() if at else reply.usage,
                )
            )
    return tuple(steps)


def with_knowledge(system: SystemMessage | None, rules: str) -> SystemMessage | None:
    """Return the system message with a section of what was learned; as it is where nothing was."""
    if not rules:
        return system
    section = learned(rules)
    if system is None:
        return SystemMessage(section)
    if isinstance(system.content, str):
        return SystemMessage(f"{system.content}\n\n{section}")
    return SystemMessage([*system.content, {"type": "text", "text": section}])


def with_opening(messages: Sequence[AnyMessage], message_id: str, task: Task, rules: str) -> list[AnyMessage]:
    """Return the messages with the task written as the compact dialect does: rules first, then the task."""
    profile: Profile = "compact"
    (opening,) = opening_messages(task, rules, profile, "")
    return [HumanMessage(opening.content, id=m.id) if m.id == message_id else m for m in messages]
