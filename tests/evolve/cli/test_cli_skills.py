"""`evolve skills`, and functions written by hand that become skills."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from evolve import Config, add_skill
from evolve.config.file import load_config
from evolve.loop.assembly import open_store
from evolve.workspace.skill_testing import run_tests
from memory.errors import BadInput
from memory.records import DeltaOp, Op, Record, Status, Trust
from skills.record import Skill, SkillTest
from tests.evolve.command import complaint, evolve, evolve_json, settings
from tests.evolve.skilled_office import PAY
from tests.evolve.toy_doors import Doors

FIND = '''\
def find_contact(name: str) -> dict[str, str]:
    """Return the contact of that name."""
    return apps.contacts.find(name=name)
'''
PAGE = 'def first_page(query: str) -> str:\n    """Return the first page found."""\n    return search(query)[0]\n'
CALLER = PAY.replace("apps.contacts.find(name=name)", "find_contact(name)")
PASSES = SkillTest(code='assert pay_to("Rodor", 5.0, "x")', task_id="office-3/pay-0_3")


def twice(number: int) -> int:
    """Double a number."""
    return number * 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = settings(tmp_path / "work")
    made = config(root)
    add_skill(made, FIND)
    add_skill(made, CALLER, origin="pay somebody", tests=[PASSES])
    return root


def config(folder: Path) -> Config:
    return load_config(folder / "evolve.toml")


def stored(folder: Path) -> dict[str, Record[Skill]]:
    with open_store(config(folder), read_only=True) as store:
        return {record.payload.name: record for record in store.records("default")}


def test_a_function_written_by_hand_is_an_active_skill_on_the_operators_word(folder: Path) -> None:
    record = add_skill(config(folder), twice)
    assert (record.status, record.provenance.trust) == (Status.ACTIVE, Trust.OPERATOR)
    assert record.payload.source.startswith("def twice(number: int) -> int:")
    assert stored(folder)["pay_to"].payload.requires == ("find_contact",)


def test_registering_again_changes_nothing_and_other_code_is_a_new_version(folder: Path) -> None:
    first = stored(folder)["find_contact"]
    assert add_skill(config(folder), FIND) == first
    changed = add_skill(config(folder), FIND.replace("Return the", "Return a"))
    assert (changed.id, changed.version) == (first.id, first.version + 1)
    lines = evolve_json(folder, "skills", "diff", "find_contact")["diff"]
    assert '-    """Return the contact of that name."""' in lines
    assert '+    """Return a contact of that name."""' in lines


def test_a_learned_skill_that_is_written_by_hand_is_active(folder: Path) -> None:
    for source in (FIND, FIND.replace("Return the", "Return a")):
        record = stored(folder)["find_contact"]
        with open_store(config(folder)) as store:
            op = DeltaOp(op=Op.RESTORE, kind="skill", target_id=record.id, status=Status.PROVISIONAL)
            assert store.commit("default", [op], actor="test").applied
        assert add_skill(config(folder), source).status is Status.ACTIVE


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def bare(x):\n    return x\n", "bare cannot be a skill: .*parameter 'x' has no type.*no docstring"),
        ("x = 1\n", "a skill is imports and one top-level `def`"),
        ('def f() -> int:\n    """Open."""\n    return open("x")\n', "'open' is neither a parameter"),
    ],
)
def test_what_is_no_skill_is_refused_with_everything_wrong_about_it(folder: Path, source: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        add_skill(config(folder), source)


def test_a_function_without_source_is_refused(folder: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot be read .* pass it as text"):
        add_skill(config(folder), len)


class Pages(Doors):
    """A world that shows its functions by plain names."""

    def describe(self, profile: str) -> str:
        return "search(query) returns a list of pages."


class Broken(Pages):
    """A world that cannot say what it is."""

    def describe(self, profile: str) -> str:
        raise KeyError(profile)


def settle(folder: Path, world: type[Pages]) -> None:
    """Configure another world."""
    file, own = folder / "evolve.toml", f'name = "{__name__}:{world.__name__}"'
    file.write_text(re.sub(r'name = "(office|tests.*:\w+)"\n(deployment = 3)?', f"{own}\n", file.read_text()))


def test_a_skill_may_call_what_the_world_itself_describes(folder: Path) -> None:
    source = PAGE.replace("search(", "seek(")
    with pytest.raises(BadInput, match="'search' is neither"):
        add_skill(config(folder), PAGE)
    settle(folder, Pages)
    add_skill(config(folder), PAGE)
    assert evolve_json(folder, "skills", "show", "first_page")["complaints"] == []
    with pytest.raises(BadInput, match="'seek' is neither"):
        add_skill(config(folder), source)
    settle(folder, Broken)
    (said,) = evolve_json(folder, "skills", "show", "first_page")["complaints"]
    assert "'search' is neither" in said


def test_list_show_and_log_say_what_is_known(folder: Path) -> None:
    rows = evolve_json(folder, "skills", "list")
    assert [(row["name"], row["requires"], row["status"]) for row in rows] == [
        ("find_contact", "", "active"),
        ("pay_to", "find_contact", "active"),
    ]
    for name in ("pay_to", "skill-00002", "2", rows[1]["id"]):
        assert CALLER.strip() in evolve(folder, "skills", "show", name)
    (event,) = evolve_json(folder, "skills", "log", "pay_to")
    assert (event["event"], event["by"], event["version"]) == ("add", "operator/operator", 1)


def test_a_skill_is_retired_and_promoted_but_not_from_under_its_callers(folder: Path) -> None:
    said = complaint(folder, "skills", "retire", "find_contact", code=2)
    assert said == "skill 'find_contact' is called by pay_to; retire these first"
    evolve(folder, "skills", "retire", "pay_to")
    assert stored(folder)["pay_to"].status is Status.RETIRED
    assert [row["name"] for row in evolve_json(folder, "skills", "list")] == ["find_contact"]
    assert len(evolve_json(folder, "skills", "list", "--all")) == 2
    evolve(folder, "skills", "promote", "pay_to")
    assert stored(folder)["pay_to"].status is Status.ACTIVE


def test_the_graph_shows_who_calls_whom(folder: Path) -> None:
    assert evolve(folder, "skills", "graph").splitlines() == ["pay_to", "  find_contact"]
    assert evolve_json(folder, "skills", "graph") == {"find_contact": [], "pay_to": ["find_contact"]}


def test_tests_run_in_their_tasks_world_or_in_none(folder: Path) -> None:
    (row,) = evolve_json(folder, "skills", "test", "pay_to")
    assert (row["passed"], row["error"]) == (True, None)
    add_skill(
        config(folder), twice, tests=[SkillTest(code="assert twice(2) == 4"), SkillTest(code="assert twice(2) == 5")]
    )
    add_skill(config(folder), FIND, tests=[SkillTest(code="find_contact('x')", task_id="nowhere")])
    rows = evolve_json(folder, "skills", "test", code=1)
    assert [(row["skill"], row["passed"], row["error"]) for row in rows] == [
        ("find_contact", False, "environment 'office' has no task 'nowhere'"),
        ("pay_to", True, None),
        ("twice", True, None),
        ("twice", False, "AssertionError: assert 4 == 5"),
    ]


def test_a_task_is_found_in_the_tasks_file(folder: Path) -> None:
    own = {"id": "own", "instruction": "Open the red door.", "split": "mine"}
    (folder / "tasks.jsonl").write_text(json.dumps(own) + "\n")
    world = {"name": "tests.evolve.toy_doors:Doors", "tasks_file": "tasks.jsonl"}
    doors = load_config(folder / "evolve.toml", {"environment": world, "run": {"split": "mine"}})
    tested = add_skill(config(folder), twice, tests=[SkillTest(code="open red", task_id="own")])
    (checked,) = asyncio.run(run_tests([tested], doors))
    assert "has no task" not in (checked.error or "")


def test_what_is_no_skill_is_named(folder: Path) -> None:
    evolve(folder, "playbook", "add", "Pay at once.")
    assert "is a bullet, expected a skill" in complaint(folder, "skills", "show", "3", code=2)
    assert complaint(folder, "skills", "show", "pay_two", code=1).startswith("no skill 'pay_two'")
