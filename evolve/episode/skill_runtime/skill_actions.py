"""Actions of the agent on skills beside calling them: it reads one, saves its own, changes or deletes one.

A reply that holds `<save_skill>name</save_skill>` (or `show`, `update`, `delete`) is no action of the world, like a
search. Nothing is changed here: what was asked for stands in the trajectory as a step, and
`evolve.episode.skill_runtime.skill_proposals` makes proposals of it. What a skill may not be is said at once, so that
the agent can mend it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from memory.records import Outcome, Record, Step, Task, Trajectory
from playbooks.render import neutral
from policies.protocols import Reply
from skills.extract import extracted
from skills.record import Skill
from skills.skill_gate import objections

Verb = Literal["show", "save", "update", "delete"]
_ASKED = re.compile(r"<(show|save|update|delete)_skill>\s*([^<>\s]{1,80})\s*</\1_skill>")
_NOTED = "Noted. It is checked before later tasks see it."


class Asked(NamedTuple):
    """One wish about a skill."""

    verb: Verb
    name: str

    @property
    def action(self) -> str:
        """Return it as a step's action."""
        return f"{self.verb}_skill({self.name!r})"


def asked(reply: str) -> Asked | None:
    """Return what a reply asks for; None when it is no such reply. Of several wishes the first counts."""
    match = _ASKED.search(reply)
    return Asked(match[1], match[2]) if match else None  # pyright: ignore[reportArgumentType] - the pattern's verbs


def granted(step: Step) -> Asked | None:
    """Return what a step of a trajectory asked for and was not refused; None for every other step."""
    found = asked(step.reply)
    return found if found and step.error is None and step.action == found.action else None


def answered(
    wish: Asked, reply: Reply, task: Task, steps: Sequence[Step], shown: Sequence[Record[Any]], described: str = ""
) -> Step:
    """Return the step that answers a wish: its observation is what the agent reads next.

    `described` is what the gate is told of the world: the host functions there are, and words that skills may hold.
    """
    known = {record.payload.name: record.payload for record in shown}
    own = written(task, steps, tuple(known.values()))
    refusal, text = _answer(wish, own, known) or ("", _NOTED)
    if not refusal and wish.verb in ("save", "update"):
        saved = [done.name for step in steps if (done := granted(step)) is not None and done.verb == "save"]
        refusal = "; ".join(objections(own[wish.name], described, {*known, *saved}))
    said = f"error: {refusal}" if refusal else text
    return Step(
        index=len(steps),
        action=wish.action,
        reply=reply.text,
        observation=said,
        error=refusal or None,
        usage=reply.usage,
    )


def written(task: Task, steps: Sequence[Step], known: Sequence[Skill]) -> dict[str, Skill]:
    """Return the functions that the agent wrote and used in the steps so far, callees first, whatever came of them.

    `known` are the skills it was shown: one that is the same to the byte was not written here.
    """
    so_far = Trajectory(task=task, steps=tuple(steps), outcome=Outcome(success=True, reward=1.0))
    return {skill.name: skill for skill in extracted(so_far, known)}


def _answer(wish: Asked, own: dict[str, Skill], shown: dict[str, Skill]) -> tuple[str, str] | None:
    """Return why a wish is refused, and what is said otherwise; None = it is noted."""
    verb, name = wish
    known = ", ".join(shown) or "there are none"
    if verb == "show":
        skill = shown.get(name) or own.get(name)
        return ("", neutral(skill.source.strip())) if skill else (f"no skill {name!r}; {known}", "")
    if verb in ("update", "delete") and name not in shown:
        return f"no skill {name!r} to {verb}; {known}", ""
    if verb == "save" and name in shown:
        return f"{name!r} is a skill already; to change it reply with <update_skill>{name}</update_skill>", ""
    if verb != "delete" and name not in own:
        return f"no function {name!r} that you defined and called here without an error; do that first", ""
    return None
