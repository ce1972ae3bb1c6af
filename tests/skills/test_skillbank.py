"""SkillBank JSON of SkillRL: principles are instructions, mistakes are mistakes, a shown function is a skill."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memory.errors import BadInput
from skills.interchange.skillbank import is_one, load

PRINCIPLE = {
    "skill_id": "gen_001",
    "title": "Look first",
    "principle": "List before you act.",
    "when_to_apply": "Always",
}
MISTAKE = {
    "mistake_id": "m1",
    "description": "Paid twice.",
    "why_it_happens": "No look.",
    "how_to_avoid": "List bills.",
}


def bank(**lists: Any) -> str:
    return json.dumps(lists)


def test_general_and_specific_skills_are_instructions() -> None:
    found = load(bank(general_skills=[PRINCIPLE], task_specific_skills={"pay": [{**PRINCIPLE, "skill_id": "dyn_001"}]}))
    general, specific = found.instructions
    assert (general.name, general.text, general.when) == ("gen_001", "Look first: List before you act.", "Always")
    assert (specific.name, specific.when) == ("dyn_001", "Tasks of type pay. Always")
    assert (general.general, specific.general) == (True, False)
    assert found.refused == found.warnings == found.skills == ()


def test_common_mistakes_keep_their_three_parts() -> None:
    (mistake,) = load(bank(common_mistakes=[MISTAKE])).mistakes
    assert mistake.model_dump() == {
        "name": "m1",
        "description": "Paid twice.",
        "why": "No look.",
        "avoid": "List bills.",
    }


def test_a_function_in_a_principle_is_a_skill_besides() -> None:
    code = "def pay(x: int) -> int:\n    return x\n"
    item = {**PRINCIPLE, "principle": f"Use this:\n```python\n{code}```\nand not:\n```python\nx = 1\n```\n"}
    found = load(bank(task_specific_skills={"pay": [item]}))
    assert [(one.name, one.source, one.scenario) for one in found.skills] == [("pay", code, "pay")]
    assert len(found.instructions) == 1
    assert "imports and one top-level `def`" in found.warnings[0]


@pytest.mark.parametrize("part", ["description", "why_it_happens", "how_to_avoid"])
def test_a_mistake_without_a_part_is_refused(part: str) -> None:
    found = load(bank(common_mistakes=[MISTAKE, {**MISTAKE, part: " "}]))
    assert len(found.mistakes) == 1
    assert found.refused == (f"common_mistakes[1]: it has no `{part}`; write one",)


def test_a_skill_without_a_principle_is_refused() -> None:
    found = load(bank(general_skills=[{"skill_id": "a", "title": "t"}, PRINCIPLE]))
    assert (len(found.instructions), len(found.refused)) == (1, 1)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", '{"skills": {}}', "[" * 100_000, bank(general_skills={}), bank(general_skills=["x"]),
     bank(task_specific_skills=[]), bank(task_specific_skills={"pay": 3})],
    ids=range(9),
)  # fmt: skip
def test_what_is_no_skillbank_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        load(text)


def test_it_is_told_from_other_json() -> None:
    assert is_one(bank(common_mistakes=[]))
    assert not is_one('{"skills": {}}')
    assert not is_one("no json")
