"""Reflector `rules` where actions are no code: commands of a game, SQL statements."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from memory.records import Check, Outcome, Record, Reflection, Step, Task, Trajectory
from playbooks.kinds.bullet import Bullet
from playbooks.rules import RulesReflector

FAILED = Outcome(success=False, reward=0.0)
SOLVED = Outcome(success=True, reward=1.0)


def episode(*said: tuple[str, str], task: str = "Open the oak door.", outcome: Outcome = SOLVED) -> Trajectory:
    """Return an episode of (action, error) pairs; an empty error means that it worked."""
    steps = [
        Step(index=at, action=action, observation=error or "Done.", error=error or None)
        for at, (action, error) in enumerate(said)
    ]
    return Trajectory(task=Task(id="t", instruction=task), steps=tuple(steps), outcome=outcome)


def bullet(text: str) -> Record[Any]:
    return Record(id="r1", kind="bullet", slug="shr", number=1, payload=Bullet(content=text))


async def reflect(trajectory: Trajectory, *shown: Record[Any], label_free: bool = False) -> Reflection:
    return await RulesReflector().reflect(trajectory, shown, label_free=label_free)


async def lessons(trajectory: Trajectory) -> list[str]:
    return [insight.content for insight in (await reflect(trajectory)).insights]


async def test_the_command_that_worked_is_learned() -> None:
    found = episode(("open oak door with key", "It does not move."), ("open oak door with lever", ""))
    assert await lessons(found) == ["Use `open oak door with lever`"]


async def test_what_a_refusal_prescribes_is_learned_as_it_was_said() -> None:
    found = episode(("go down", "You must light the lamp before you go down."), outcome=FAILED)
    assert await lessons(found) == ["go: You must light the lamp before you go down."]


async def test_a_command_in_between_that_made_the_same_one_work_comes_before_it() -> None:
    found = episode(("go down", "It is dark."), ("look", ""), ("light lamp", ""), ("go down", ""))
    assert await lessons(found) == ["Use `light lamp` before `go down`"]


async def test_a_command_that_begins_otherwise_is_no_second_attempt() -> None:
    assert await lessons(episode(("open oak door", "It is locked."), ("eat apple", ""))) == []
    assert await lessons(episode(("take red ring", "It is nailed down."), ("take blue box of tea", ""))) == []


async def test_a_statement_is_learned_without_the_values_of_its_task() -> None:
    found = episode(
        ("SELECT n FROM orders WHERE client = 'Ann Lee' AND n > 3", "no such table: orders"),
        ("SELECT n FROM sales WHERE client = 'Ann Lee' AND n > 3", ""),
        task="Which orders of 'Ann Lee' are above 3?",
    )
    assert await lessons(found) == ["Use `SELECT n FROM sales WHERE client = ... AND n > ...`"]


async def test_a_failed_check_that_prescribes_is_a_lesson_unless_nobody_may_read_it() -> None:
    check = Check(name="answer", passed=False, detail="state must be 'O' for an open order")
    found = episode(("SELECT 1", ""), outcome=Outcome(success=False, reward=0.0, checks=(check,)))
    assert await lessons(found) == ["state must be 'O' for an open order"]
    assert (await reflect(found, label_free=True)).insights == ()


async def test_where_the_world_marks_no_error_a_refusal_is_read_from_its_answer() -> None:
    steps = (
        Step(index=0, action="open oak door", observation="You can't open that without a lever."),
        Step(index=1, action="open oak door with lever", observation="It swings open."),
    )
    found = Trajectory(task=Task(id="t", instruction="Open the oak door."), steps=steps, outcome=SOLVED)
    assert await lessons(found) == ["Use `open oak door with lever`"]


async def test_a_rule_that_worked_is_helpful_and_one_that_failed_is_harmful() -> None:
    good, bad = bullet("Use `open oak door with lever`"), bullet("Use `open oak door with key`")
    right = episode(("open oak door with lever", ""))
    wrong = episode(("open oak door with key", "It does not move."), ("open oak door with lever", ""))
    assert (await reflect(right, good)).tags == {"r1": "helpful"}
    assert (await reflect(wrong, bad)).tags == {"r1": "harmful"}
    assert (await reflect(right, bad)).tags == {}


async def test_code_is_read_as_before() -> None:
    found = episode(
        ("apps.mail.send(to='x', priority='high')", "mail.send: priority must be low"),
        ("apps.mail.send(to='x', priority='low')", ""),
    )
    assert await lessons(found) == ["mail.send: priority must be low"]


def test_a_command_of_one_long_word_is_read_within_seconds() -> None:
    program = (
        "import asyncio, resource\n"
        "from tests.playbooks.test_text_and_sql_lessons import episode, reflect\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (15, 15))\n"
        "asyncio.run(reflect(episode(('open ' + 'a' * 60_000, 'No.'), ('open door', ''))))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, f"stopped after 15 processor seconds: {ran.returncode} {ran.stderr}"
