"""Builds what the policy reads in one step, and reads what it wrote. Pure: no model, no store, no clock.

Two profiles carry the same fields. `full` is for general models: a system message with the world and what was learned,
then the task. `compact` is the pocket model's dialect: one user message `rules: ... task: ...`, then code and
observations alternate, with no other words. Knowledge stands in a stable order, core records before recalled ones, each
group by number, so that a prompt cache survives learning.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evolve.episode import prompts
from evolve.protocols import Action, ActionFormat, Demonstration, Environment, HasDemonstration, StepResult
from evolve.usercode import ask
from memory.records import Record, Step, Task
from playbooks.kinds.bullet import one_line
from playbooks.render import neutral
from playbooks.render import render as render_knowledge
from policies.protocols import Message, Profile, Reply
from policies.templates import render
from skills.names import parsed

_FENCE = re.compile(r"```(?:python3?|py)?[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL | re.IGNORECASE)

NO_CODE = "error: no code was found; reply with one ```python block"
"""Observation for a reply of the full profile that holds no code block."""
AGAIN = "This very action failed in the same way before: change it."
"""Stands under the error of an action that is repeated, in the full profile."""
FORGOTTEN = "[an earlier observation, left out since the conversation is long]"
"""Stands in for an observation where the conversation would be longer than `environment.history_chars`."""


def knowledge(core: Sequence[Record[Any]], recalled: Sequence[Record[Any]], profile: Profile) -> str:
    """Return the knowledge section: core first, then recalled, each in order of number; empty without records.

    A record that is both is shown once, as core.
    """
    ordered = [*core, *sorted(recalled, key=lambda record: record.number)]
    return render_knowledge(ordered, profile, core={record.id for record in core})


@dataclass(frozen=True)
class SkillList:
    """What a prompt says of skills."""

    text: str
    """The catalogue, empty where none is known yet."""
    saves: bool = True
    """A function that the agent defines may be kept, so it is told how (full profile)."""


def opening_messages(
    task: Task, rules: str, profile: Profile, describe: str, skills: SkillList | None = None, guidance: str = ""
) -> list[Message]:
    """Return the conversation before the first action; `rules` is what `knowledge` returns.

    Without `skills` the agent does not work with them. `guidance` (what `guiding` returns) only adds text: lines after
    the rules (compact), or a message after the task.
    """
    listed = skills or SkillList("", saves=False)
    told = {"world": describe, "skills": listed.text}
    if profile == "compact":
        rules = "\n".join(filter(None, (rules, guidance)))
        content = render(prompts, "act_compact", **told, able=skills is not None, rules=rules, task=task.instruction)
        return [Message(role="user", content=content)]
    system = render(prompts, "act", **told, saves=listed.saves, learned=learned(rules) if rules else "").strip()
    opening = [Message(role="system", content=system), Message(role="user", content=task.instruction)]
    return [*opening, Message(role="user", content=guidance)] if guidance else opening


def guiding(lessons: Sequence[str], profile: Profile) -> str:
    """Return what an agent is told of its failed attempt: one line a lesson.

    In the compact profile as rules under the mark of a guess: no record stands behind them, and an agent that has never
    seen them would cite them so.
    """
    told = [one_line(neutral(lesson)) for lesson in lessons]
    if profile == "compact":
        return "\n".join(f"- {lesson} [?]" for lesson in told)
    return render(prompts, "guidance", lessons=told).removesuffix("\n")


def learned(rules: str) -> str:
    """Return the section of a full prompt that says what the rules are: experience, and no orders."""
    return render(prompts, "learned", rules=rules).removesuffix("\n")


def step_messages(step: Step, reply: Reply | None = None) -> tuple[Message, Message]:
    """Return what one step adds to the conversation: what the policy said and what it was answered.

    Where that was this whole reply, its token ids go along, for engines that work on ids.
    """
    content = step.reply or step.action
    ids = reply.token_ids if reply and reply.text == content and not step.tool_calls else None
    said = Message(role="assistant", content=content, tool_calls=step.tool_calls, token_ids=ids)
    if step.tool_calls:
        return said, Message(role="tool", content=step.observation, tool_call_id=step.tool_calls[0].id)
    return said, Message(role="user", content=step.observation)


def shortened(text: str, limit: int) -> tuple[str, int]:
    """Return a text cut to about `limit` characters, which says where it was cut, and how many were left out."""
    if len(text) <= limit:
        return text, 0
    half = limit // 2
    omitted = len(text) - 2 * half
    return f"{text[:half]}\n[... {omitted} characters left out ...]\n{text[-half:]}", omitted


def forget_oldest(messages: list[Message], opening: int, limit: int) -> int:
    """Replace the oldest observations, in place, until the conversation has at most `limit` characters; count them.

    The first `opening` messages and the last answer stay. Where they alone are longer, everything between is replaced.
    """
    total = sum(len(message.content) for message in messages)
    forgotten = 0
    for at in range(opening + 1, len(messages) - 1, 2):
        if total <= limit:
            break
        if messages[at].content != FORGOTTEN:
            total -= len(messages[at].content) - len(FORGOTTEN)
            messages[at] = messages[at].model_copy(update={"content": FORGOTTEN})
            forgotten += 1
    return forgotten


def briefing(environment: Environment, profile: Profile) -> str:
    """Return what the agent is told before any task: the world, and in the full profile how an action is written."""
    world = environment.describe(profile)
    if profile == "compact":
        return world
    more = {"imports": tuple(getattr(environment, "imports", ()))} if environment.action_format == "code" else {}
    return render(prompts, f"act_{environment.action_format}", world=world.strip(), **more).strip()


def demonstrated(environment: Environment, profile: Profile) -> Demonstration | None:
    """Return the world's worked example; None where it has none, or the profile is compact and has no such turns."""
    if profile != "full" or not isinstance(environment, HasDemonstration):
        return None
    return ask(environment, "demonstration", Demonstration)


def described(allow: Sequence[str], world: Environment | None) -> str:
    """Return what learned text may name: what an operator allowed, and what the environment says of itself."""
    said = [world.describe("full"), *(tool.model_dump_json() for tool in world.tools)] if world else []
    return "\n".join([*allow, *said])


def actions_of(reply: Reply, action_format: ActionFormat, profile: Profile) -> tuple[Action, ...]:
    """Return the actions a reply asks for, in order; empty when it asks for none.

    Native tool calls are performed one per step; a reply of words alone is an action too, and the environment decides
    what it means (usually: finished). Code is what stands in fenced blocks. Where there is none, the whole reply is the
    code in the compact profile, in the full one only if it is a program as it stands.
    """
    if action_format == "tools" and reply.tool_calls:
        return tuple(Action(text=reply.text, tool_calls=(call,)) for call in reply.tool_calls)
    blocks: list[str] = _FENCE.findall(reply.text) if action_format == "code" else []
    if action_format != "code" or (profile == "compact" and not blocks):
        return (Action(text=reply.text),)
    if not blocks and _does_something(reply.text.strip()):
        blocks = [reply.text.strip()]
    return (Action(text="\n".join(blocks)),) if blocks else ()


def _does_something(text: str) -> bool:
    """Tell whether a text is a program: Python, and not only names, numbers or the like, as a word or an answer is."""
    tree = parsed(text)
    said = [node.value if isinstance(node, ast.Expr) else node for node in tree.body] if tree else []
    return any(isinstance(node, ast.Call | ast.stmt) and getattr(node, "value", node) is not None for node in said)


def answered(action: str, result: StepResult, steps: Sequence[Step], profile: Profile) -> str:
    """Return what the agent reads of a result: also, in the full profile, that an earlier step failed just so.

    That stands under the error, not under what the world says after it: a small model copies what it read last.
    """
    again = result.error and any((step.action, step.error) == (action, result.error) for step in steps)
    if not again or profile != "full":
        return result.observation
    before, error, after = result.observation.rpartition(result.error or "")
    return f"{before}{error}\n{AGAIN}{after}" if error else f"{result.observation}\n{AGAIN}"
