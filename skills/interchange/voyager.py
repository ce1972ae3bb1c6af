"""Voyager's skill folder (`skills.json`, `code/`, `description/`): Python becomes skills, JavaScript is refused.

A JavaScript body cannot run here, and its description alone would tell an agent of a function that does not exist; so
each is refused in a sentence and nothing of it is kept. Voyager stops when its index and `skills.json` disagree; here a
function that only `code/` holds is taken from there. Old versions (`nameV2`) are left out.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

from memory.errors import BadInput, EvolveError
from skills.interchange.found import Found, read_text, skill_or_reason
from skills.record import Skill

INDEX, CODE, DESCRIPTION = "skills.json", "code", "description"

_JAVASCRIPT = re.compile(r"\basync function\b|\bfunction\s+\w+\s*\(|=>|\bconst\b|\bawait bot\b")


def load(folder: Path) -> Found:
    """Return what a folder of Voyager holds. Raises `BadInput` for a `skills.json` that is no map of skills."""
    listed = _listed(folder / INDEX)
    found = Found()
    for name, entry in listed.items():
        found += _item(name, str(entry.get("code", "")), str(entry.get("description", "")))
    for path in sorted((folder / CODE).glob("*")):
        base = re.sub(r"V\d+$", "", path.stem)
        if path.stem in listed:
            continue
        if base != path.stem and base in listed:
            found += Found(warnings=(f"{path.stem}: an old version of {base}; left out",))
            continue
        found += Found(warnings=(f"{path.stem}: not in {INDEX}; taken from {CODE}/",)) + _file(folder, path)
    return found


def _listed(index: Path) -> dict[str, dict[str, Any]]:
    try:
        stored = json.loads(read_text(index))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{str(index)!r} is no JSON ({error}); expected the file that Voyager saves") from None
    if not isinstance(stored, dict) or not all(isinstance(entry, dict) for entry in stored.values()):
        raise BadInput(f"{str(index)!r} is no map of skills; expected {{name: {{code, description}}}}")
    return cast("dict[str, dict[str, Any]]", stored)


def _file(folder: Path, path: Path) -> Found:
    description = folder / DESCRIPTION / f"{path.stem}.txt"
    try:
        return _item(path.stem, read_text(path), read_text(description) if description.is_file() else "")
    except EvolveError as error:
        return Found(refused=(f"{path.stem}: {error}",))


def _item(name: str, code: str, description: str) -> Found:
    skill = skill_or_reason(source=code, summary=description)
    if isinstance(skill, Skill):
        return Found(skills=(skill,))
    if _JAVASCRIPT.search(code):
        return Found(refused=(f"{name}: it is JavaScript, which does not run here; write it as one Python function",))
    return Found(refused=(f"{name}: {skill}",))
