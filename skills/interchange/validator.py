"""Whether a folder is a valid Agent Skill: the rules of agentskills.io, and of the stricter validator in circulation.

`complaints` follows the specification (skills-ref validate, agentskills 69ef37e). `ascii_only` adds what Anthropic's
`quick_validate` demands (a name in ASCII, no angle brackets in the description); what we export passes both.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from memory.errors import EvolveError
from skills.interchange.found import read_text
from skills.interchange.frontmatter import Malformed, Value, strict

FILE = "SKILL.md"
FIELDS = ("name", "description", "license", "allowed-tools", "metadata", "compatibility")
MAX_NAME, MAX_DESCRIPTION, MAX_COMPATIBILITY = 64, 1024, 500


def complaints(folder: Path, *, ascii_only: bool = False) -> tuple[str, ...]:
    """Return what is wrong with a skill folder, a sentence each; empty = valid."""
    if not folder.is_dir():
        return (f"{str(folder)!r} is no folder",)
    try:
        head, _ = strict(read_text(folder / FILE))
    except (Malformed, EvolveError) as error:
        return (str(error),)
    return head_complaints(head, folder.name, ascii_only=ascii_only)


def head_complaints(head: dict[str, Value], folder: str, *, ascii_only: bool = False) -> tuple[str, ...]:
    """Return what is wrong with the head of a SKILL.md that stands in `folder`."""
    unknown = sorted(set(head) - set(FIELDS))
    said = [f"unexpected fields: {', '.join(unknown)}; allowed are {', '.join(FIELDS)}"] if unknown else []
    said += _name(head.get("name"), folder, ascii_only)
    said += _description(head.get("description"), ascii_only)
    said += _optional(head)
    return tuple(said)


def _name(value: Value | None, folder: str, ascii_only: bool) -> list[str]:
    if not isinstance(value, str) or not value.strip():
        return ["`name` is missing; it must be a text that is not empty"]
    name = unicodedata.normalize("NFKC", value.strip())
    wrong = {
        f"`name` has {len(name)} characters; at most {MAX_NAME}": len(name) > MAX_NAME,
        f"`name` {name!r} must be lowercase": name != name.lower(),
        f"`name` {name!r} must not start or end with a hyphen": name.startswith("-") or name.endswith("-"),
        f"`name` {name!r} must not have two hyphens in a row": "--" in name,
        f"`name` {name!r} may hold letters, digits and hyphens only": not all(c.isalnum() or c == "-" for c in name),
        f"`name` {name!r} is not ASCII": ascii_only and re.fullmatch(r"[a-z0-9-]+", name) is None,
        f"folder {folder!r} must be called as the skill, {name!r}": unicodedata.normalize("NFKC", folder) != name,
    }
    return [text for text, holds in wrong.items() if holds]


def _description(value: Value | None, ascii_only: bool) -> list[str]:
    if not isinstance(value, str) or not value.strip():
        return ["`description` is missing; it must be a text that is not empty"]
    said: list[str] = []
    if len(value) > MAX_DESCRIPTION:
        said.append(f"`description` has {len(value)} characters; at most {MAX_DESCRIPTION}")
    if ascii_only and re.search("[<>]", value):
        said.append("`description` must not hold angle brackets")
    return said


def _optional(head: dict[str, Value]) -> list[str]:
    said: list[str] = []
    for name in ("license", "compatibility", "allowed-tools"):
        if not isinstance(head.get(name, ""), str):
            said.append(f"`{name}` must be one text; got {head[name]!r}")
    compatibility = head.get("compatibility", "")
    if isinstance(compatibility, str) and len(compatibility) > MAX_COMPATIBILITY:
        said.append(f"`compatibility` has {len(compatibility)} characters; at most {MAX_COMPATIBILITY}")
    metadata = head.get("metadata", {})
    if not isinstance(metadata, dict):
        said.append(f"`metadata` must be a map of texts; got {metadata!r}")
    return said
