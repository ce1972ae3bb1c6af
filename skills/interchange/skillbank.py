"""SkillBank JSON of SkillRL (arXiv 2602.08234): principles become instructions, common mistakes stay mistakes.

Its skills are texts. Where a principle shows a fenced Python block that is one function, that function is a skill
besides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from memory.errors import BadInput
from skills.interchange.found import Found, Instruction, Mistake, code_blocks, skill_or_reason
from skills.record import Skill

GENERAL, SPECIFIC, MISTAKES = "general_skills", "task_specific_skills", "common_mistakes"


def load(text: str) -> Found:
    """Return what a SkillBank holds. Raises `BadInput` for text that is none; an unusable item is refused by itself."""
    bank = _bank(text)
    found = Found()
    for item in _items(bank, GENERAL):
        found += _principle(item, "")
    specific = bank.get(SPECIFIC, {})
    if not isinstance(specific, dict):
        raise BadInput(f"`{SPECIFIC}` must be an object of task types; got {specific!r:.80}")
    for kind in cast("dict[str, Any]", specific):
        for item in _items(cast("dict[str, Any]", specific), kind):
            found += _principle(item, kind)
    for item in _items(bank, MISTAKES):
        found += _mistake(item)
    return found


def is_one(text: str) -> bool:
    """Tell whether a text is a SkillBank."""
    try:
        _bank(text)
    except BadInput:
        return False
    return True


def _bank(text: str) -> Mapping[str, Any]:
    try:
        bank = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"no SkillBank: {error}; expected the JSON file that SkillRL saves") from None
    if not isinstance(bank, dict) or not {GENERAL, SPECIFIC, MISTAKES} & set(bank):
        raise BadInput(
            f"no SkillBank: expected an object with `{GENERAL}`, `{SPECIFIC}` or `{MISTAKES}`; check the file"
        )
    return cast("dict[str, Any]", bank)


def _items(bank: Mapping[str, Any], name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place, item) of one list. Raises `BadInput` for what is no list of objects."""
    items = bank.get(name, [])
    if not isinstance(items, list):
        raise BadInput(f"`{name}` must be a list; got {items!r:.80}; mend the file")
    for at, item in enumerate(cast("Sequence[object]", items)):
        if not isinstance(item, dict):
            raise BadInput(f"`{name}[{at}]` must be an object; got {item!r:.80}; mend that entry")
        yield f"{name}[{at}]", cast("dict[str, Any]", item)


def _principle(placed: tuple[str, Mapping[str, Any]], kind: str) -> Found:
    """Return an item of the two lists of skills; `kind` is the task type it is bound to."""
    place, item = placed
    principle, title = _text(item, "principle"), _text(item, "title")
    if not principle:
        return Found(refused=(f"{place}: it has no `principle`; write one",))
    when = ". ".join(filter(None, (f"Tasks of type {kind}" if kind else "", _text(item, "when_to_apply"))))
    text = f"{title}: {principle}" if title else principle
    name = _text(item, "skill_id") or place
    found = Found(instructions=(Instruction(name=name, text=text, when=when, general=not kind),))
    for code in code_blocks(principle):
        skill = skill_or_reason(source=code, summary=". ".join(filter(None, (title, when))), scenario=kind)
        found += Found(skills=(skill,)) if isinstance(skill, Skill) else Found(warnings=(f"{name}: its code: {skill}",))
    return found


def _mistake(placed: tuple[str, Mapping[str, Any]]) -> Found:
    place, item = placed
    parts = {name: _text(item, name) for name in ("description", "why_it_happens", "how_to_avoid")}
    missing = [name for name, value in parts.items() if not value]
    if missing:
        return Found(refused=(f"{place}: it has no `{missing[0]}`; write one",))
    name = _text(item, "mistake_id") or place
    description, why, avoid = parts.values()
    return Found(mistakes=(Mistake(name=name, description=description, why=why, avoid=avoid),))


def _text(item: Mapping[str, Any], name: str) -> str:
    value = item.get(name)
    return value.strip() if isinstance(value, str) else ""
