"""Contents of a foreign file: skills, texts that carry no code, and what was refused or bent, each said in a sentence.

Skills may not know playbooks, so texts leave here as plain records; `evolve.archive.interchange` makes operations of
them.
"""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import ValidationError

from memory.errors import BadInput, NotFound
from memory.records import Frozen
from skills.record import Skill

MAX_FILE = 1_000_000
"""Most bytes of a file that is read."""

_FENCED = re.compile(r"^```(?:python|py)[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE | re.IGNORECASE)


class Instruction(Frozen):
    """A text that tells how to do something, without code that could be called."""

    name: str
    text: str
    when: str = ""
    """When it applies, in words."""
    general: bool = False
    """True for a rule that is bound to no kind of task."""


class Mistake(Frozen):
    """A mistake that others saw, in SkillRL's three parts (arXiv 2602.08234)."""

    name: str
    description: str
    why: str
    avoid: str


class Found(Frozen):
    """All that was read from one place."""

    skills: tuple[Skill, ...] = ()
    instructions: tuple[Instruction, ...] = ()
    mistakes: tuple[Mistake, ...] = ()
    refused: tuple[str, ...] = ()
    """One sentence for each item that was not taken."""
    warnings: tuple[str, ...] = ()
    """One sentence for each item that was taken although something is wrong with it."""

    def __add__(self, other: Found) -> Found:
        return Found(**{name: getattr(self, name) + getattr(other, name) for name in Found.model_fields})


def skill_or_reason(**fields: object) -> Skill | str:
    """Return the skill with these fields, or why they make none."""
    try:
        return Skill.model_validate(fields)
    except ValidationError as invalid:
        return str(invalid.errors(include_url=False)[0]["msg"]).removeprefix("Value error, ")


def code_blocks(text: str) -> tuple[str, ...]:
    """Return the fenced Python blocks of a Markdown text."""
    return tuple(_FENCED.findall(text))


def read_text(path: Path) -> str:
    """Return a file's text with its line breaks as they are.

    Raises `NotFound` without such a file, and `BadInput` for a link, a file too large and one that is no UTF-8.
    """
    if path.is_symlink() or path.parent.is_symlink():
        raise BadInput(f"{str(path)!r} is a link; put the file itself there")
    if not path.is_file():
        raise NotFound(f"no file {str(path)!r}; give the path of a file that exists")
    if path.stat().st_size > MAX_FILE:
        raise BadInput(f"{str(path)!r} has {path.stat().st_size} bytes; at most {MAX_FILE} are read: shorten it")
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{str(path)!r} is no UTF-8 text ({error}); save it as UTF-8") from error
