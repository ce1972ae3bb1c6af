"""Nothing that an agent learned or saw commands the terminal of whoever reads it.

T1  clipboard, title, colour, cursor, C1 and direction characters are shown as escapes by every command that shows texts
T2  --json says exactly what is stored, and is safe to print
T3  brackets in learned text are no markup
T4  no command prints past `evolve.cli.output`
T5  what Python would warn the author of code of does not reach who only ran the model that wrote it
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from pathlib import Path

import pytest

from evolve.cli.main import ignore_warnings_about_read_code
from evolve.config.file import load_config
from evolve.loop.assembly import open_store
from memory.records import DeltaOp, Op, Outcome, Provenance, Step, Task, Trajectory, Trust
from skills.names import parsed
from tests.evolve.command import invoke, settings

CLIPBOARD, TITLE = "\x1b]52;c;ZXZpbA==\x07", "\x1b]0;owned\x07"
ATTACK = f"Ask{CLIPBOARD}{TITLE}\x1b[2K\x1b[1A\x9b31m\x08\x7f\u202egnp\u2066 [red]first[/red] [link=http://x.example]y[/link]"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
PAYLOAD = {"section": "strategies_and_hard_rules", "content": ATTACK}
PRINTS = ("output.py", "log_setup.py")
"""Modules that print. What the others draw goes through `plain`."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a workspace with one learned rule and one episode that hold escapes."""
    made = settings(tmp_path)
    with open_store(load_config(made / "evolve.toml")) as store:
        op = DeltaOp(op=Op.ADD, payload=PAYLOAD, provenance=Provenance(trust=Trust.OPERATOR), reason=ATTACK)
        assert store.commit("default", [op], actor="operator").applied
        step = Step(index=0, action=ATTACK, observation=ATTACK, error=ATTACK)
        outcome = Outcome(success=False, reward=0.0)
        task = Task(id="t", instruction=ATTACK)
        store.add_trajectory(Trajectory(id="tr", run_id="run", task=task, steps=(step,), outcome=outcome))
    return made


@pytest.mark.parametrize(
    "command",
    [
        ("playbook", "list"),
        ("playbook", "show", "shr-00001"),
        ("playbook", "blame", "shr-00001"),
        ("playbook", "log"),
        ("memory", "search", "ask first"),
        ("logs", "show", "tr"),
        ("logs", "list"),
    ],
    ids=" ".join,
)
def test_no_command_prints_what_commands_a_terminal(folder: Path, command: tuple[str, ...]) -> None:
    result = invoke(folder, *command)
    assert result.exit_code == 0, result.output
    assert not UNSAFE.search(result.output)


def test_brackets_in_learned_text_are_no_markup(folder: Path) -> None:
    for command in (("playbook", "show", "shr-00001"), ("logs", "show", "tr")):
        assert "[red]first[/red] [link=http://x.example]y[/link]" in invoke(folder, *command).output


def test_an_error_sentence_is_plain_too(folder: Path) -> None:
    result = invoke(folder, "playbook", "show", ATTACK)
    assert result.exit_code != 0
    assert not UNSAFE.search(result.output)


def test_json_is_exact_and_safe(folder: Path) -> None:
    shown = invoke(folder, "logs", "show", "tr", "--json").output
    assert not UNSAFE.search(shown)
    assert json.loads(shown)["steps"][0]["observation"] == ATTACK
    with open_store(load_config(folder / "evolve.toml"), read_only=True) as store:
        stored = [record.payload.content for record in store.records("default")]
    shown = invoke(folder, "playbook", "list", "--json").output
    assert not UNSAFE.search(shown)
    assert [row["content"] for row in json.loads(shown)] == stored


def test_only_one_module_prints(root: Path) -> None:
    for file in sorted((root / "evolve" / "cli").glob("*.py")):
        calls = [node.func for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
        names = {called.id for called in calls if isinstance(called, ast.Name)}
        names |= {called.attr for called in calls if isinstance(called, ast.Attribute)}
        builtin = {called.id for called in calls if isinstance(called, ast.Name) and called.id == "print"}
        assert file.name in PRINTS or not builtin | names & {"echo", "secho"}, file


def test_nobody_is_warned_of_code_that_a_model_wrote() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert parsed("print(1if True else 2)") is not None
        assert [each.category for each in said] == [SyntaxWarning]
        ignore_warnings_about_read_code()
        assert parsed("print(3if True else 4)") is not None
        assert len(said) == 1
