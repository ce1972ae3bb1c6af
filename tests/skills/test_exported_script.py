"""An exported script is a command of its own: plain Python, no package of ours, whatever the function is called.

Each runs in its own `scripts/` folder, isolated from site packages and from this checkout.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memory.errors import BadInput, NotFound
from skills.interchange.agent_skills import Standing, export, kebab
from skills.library import Library
from tests.skills.conftest import Kept


def ran(scripts: Path, name: str, given: str = "", *options: str) -> tuple[int, str, str]:
    """Run a script as somebody would who has nothing but Python; return exit code, stdout, stderr."""
    done = subprocess.run(
        [sys.executable, "-E", "-s", "-S", f"{name}.py", *options],
        cwd=scripts, input=given, capture_output=True, text=True, env={}, timeout=600,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def answer(scripts: Path, name: str, given: str, *options: str, code: int = 0) -> Any:
    """Return the JSON that the script printed; it must end with `code`."""
    ended, out, err = ran(scripts, name, given, *options)
    assert ended == code, err
    return json.loads(out)


@pytest.fixture
def scripts(skill: Kept, tmp_path: Path) -> Path:
    """The scripts folder of `top`, which requires `left` and `right`, which both require `base`."""
    made = [skill(1, "base"), skill(2, "left", "base"), skill(3, "right", "base"), skill(4, "top", "left", "right")]
    (folder,) = export(Library(made), {"top": Standing()}, tmp_path)
    return folder / "scripts"


def single(skill: Kept, tmp_path: Path, source: str) -> Path:
    """Export one skill with that source and return its scripts folder."""
    library = Library([skill(1, source=source)])
    return export(library, {library.names[0]: Standing()}, tmp_path)[0] / "scripts"


def test_it_answers_with_the_result(scripts: Path) -> None:
    assert answer(scripts, "top", '{"x": 2}') == {"ok": True, "result": 10}
    assert [path.name for path in scripts.iterdir()] == ["top.py"]


def test_it_says_how_it_is_called(scripts: Path) -> None:
    code, out, _ = ran(scripts, "top", "", "--help")
    assert code == 0
    for part in ("top(x: int) -> int", "Add up as top does.", "Host functions it needs: none", "Exit codes"):
        assert part in out


def test_its_head_names_python_and_no_dependency(scripts: Path) -> None:
    lines = (scripts / "top.py").read_text().splitlines()
    assert lines[:4] == ["# /// script", '# requires-python = ">=3.11"', "# dependencies = []", "# ///"]


@pytest.mark.parametrize("given", ["{", "[1]", "3", '{"y": 1}', "", '{"x": 1, "y": 2}'])
def test_wrong_input_ends_with_2(given: str, scripts: Path) -> None:
    error = answer(scripts, "top", given, code=2)["error"]
    assert (error["type"], "--help" in error["message"]) == ("BadInput", True)


def test_a_dry_run_checks_and_calls_nothing(skill: Kept, tmp_path: Path) -> None:
    folder = single(skill, tmp_path, 'def f(x: int) -> int:\n    raise KeyError("called")\n')
    assert answer(folder, "f", '{"x": 1}', "--dry-run") == {"ok": True, "would_call": "f", "arguments": {"x": 1}}
    assert answer(folder, "f", "{}", "--dry-run", code=2)["ok"] is False
    error = answer(folder, "f", '{"x": 1}', code=1)["error"]
    assert error == {"type": "KeyError", "message": "'called'"}


def test_what_it_prints_does_not_mix_with_the_answer(skill: Kept, tmp_path: Path) -> None:
    folder = single(skill, tmp_path, 'def f() -> int:\n    print("noise")\n    return 1\n')
    code, out, err = ran(folder, "f")
    assert (code, json.loads(out)["result"], err) == (0, 1, "noise\n")


def test_a_result_that_is_no_json_is_an_error(skill: Kept, tmp_path: Path) -> None:
    folder = single(skill, tmp_path, "def f() -> set:\n    return {1}\n")
    assert answer(folder, "f", "", code=1)["error"]["type"] == "TypeError"


def test_missing_host_functions_are_named_before_anything_runs(skill: Kept, tmp_path: Path) -> None:
    source = 'def f(to: str) -> int:\n    print("started")\n    apps.mail.send(to=to)\n    return apps.todo.count()\n'
    folder = single(skill, tmp_path, source)
    code, out, err = ran(folder, "f", '{"to": "a"}')
    assert (code, json.loads(out)["error"]["type"]) == (3, "HostFunctionMissing")
    assert "apps.mail.send, apps.todo.count" in err
    assert "started" not in err
    assert "apps.mail.send, apps.todo.count" in ran(folder, "f", "", "--help")[1]
    assert "apps.mail.send" in (folder.parent / "SKILL.md").read_text().split("---")[1]


def test_apps_that_are_passed_on_are_missing_too(skill: Kept, tmp_path: Path) -> None:
    folder = single(skill, tmp_path, "def f() -> int:\n    here = apps\n    return here.mail.send()\n")
    assert "apps" in answer(folder, "f", "", code=3)["error"]["message"]


@pytest.mark.parametrize("name", ["json", "argparse", "copy", "inspect", "sys", "main", "übung"])
def test_it_may_be_called_anything(name: str, skill: Kept, tmp_path: Path) -> None:
    body = "    import copy\n    import re\n    return re.sub('a', 'b', copy.copy('a'))\n"
    folder = single(skill, tmp_path, f"def {name}() -> str:\n{body}")
    assert folder.parent.name == kebab(name)
    assert answer(folder, name, "")["result"] == "b"


def test_a_percent_sign_in_its_docstring_is_text(skill: Kept, tmp_path: Path) -> None:
    folder = single(skill, tmp_path, 'def f() -> int:\n    """Give 10 % of %(prog)s %d."""\n    return 1\n')
    code, out, _ = ran(folder, "f", "", "--help")
    assert (code, "10 % of" in out) == (0, True)


def test_a_skill_called_as_the_command_is_is_refused(skill: Kept, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="rename the skill"):
        single(skill, tmp_path, "def skill_command() -> int:\n    return 1\n")


def test_a_requirement_that_is_not_there_and_a_circle_are_refused(skill: Kept, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="requires 'gone'"):
        export(Library([skill(1, "one", "gone")]), {"one": Standing()}, tmp_path)
    with pytest.raises(BadInput, match="circle"):
        export(Library([skill(1, "one", "two"), skill(2, "two", "one")]), {"one": Standing()}, tmp_path)
    assert list(tmp_path.iterdir()) == []
