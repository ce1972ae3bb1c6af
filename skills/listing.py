"""The skills that an episode is shown, as its prompt lists them: one line each, the body on demand. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from memory.records import Record
from policies.protocols import Profile
from skills.record import Skill


def line(skill: Skill, profile: Profile) -> str:
    """Return `- name(signature): description` (full), or `- description: name(parameters)` (compact).

    The compact form names the call last, so that a small model finds the words of its task and copies what follows.
    """
    described = " ".join(skill.described().split())
    if profile == "full":
        return f"- {skill.name}{skill.signature}: {described}"
    arguments = skill.function.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return f"- {described}: {skill.name}({', '.join(names)})"


def catalogue(records: Sequence[Record[Skill]], profile: Profile) -> str:
    """Return a line for each skill; empty without any."""
    return "\n".join(line(record.payload, profile) for record in records)
