"""Skills in worlds whose functions are not sorted under `apps`."""

from __future__ import annotations

import pytest

from memory.records import Outcome, Record, Step, Task, Trajectory
from skills.interchange.script import host_functions
from skills.record import Skill
from skills.skill_gate import objections
from skills.usage import uses

WORLD = "Answer in Python. `search(word)` finds pages, `db.rows(table)` reads a table and `say(text)` answers."
FOUND = '''def found(word: str) -> str:
    """Say what a search finds."""
    page = search(word)
    say(page)
    return page
'''


def test_a_skill_may_call_what_the_worlds_description_shows() -> None:
    assert objections(Skill(source=FOUND), WORLD, ()) == ()


@pytest.mark.parametrize("name", ["search", "open", "nosuch"])
def test_what_it_does_not_show_is_no_function_of_the_world(name: str) -> None:
    source = FOUND.replace("search(", f"{name}(")
    found = objections(Skill(source=source), "Answer with `say(text)`. You may open (or close) files.", ())
    assert any(repr(name) in said for said in found)


def test_a_skill_is_not_called_like_a_function_of_the_world() -> None:
    source = FOUND.replace("def found", "def say").replace("say(page)", "print(page)")
    assert any("taken" in said for said in objections(Skill(source=source), WORLD, ()))


def test_a_function_of_the_world_keeps_its_meaning() -> None:
    source = FOUND.replace("page = search(word)", "search = word\n    page = search")
    assert any("another meaning" in said for said in objections(Skill(source=source), WORLD, ()))


def test_calls_of_such_functions_are_counted() -> None:
    skill = Skill(source=FOUND)
    record = Record(id="r", kind="skill", slug="skill", number=1, payload=skill)
    steps = (Step(index=0, action="print(found('tea'))", observation="tea"),)
    solved = Outcome(success=True, reward=1.0)
    task = Task(id="t", instruction="Find tea.")
    (use,) = uses(Trajectory(task=task, steps=steps, outcome=solved, prelude=FOUND), [record])
    assert (use.host_calls, use.strict) == (2, True)
    assert host_functions([skill]) == ("say", "search")
