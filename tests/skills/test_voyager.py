"""Voyager's folder: Python functions come in, JavaScript is refused name by name, and a desynced folder is mended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memory.errors import BadInput
from skills.interchange.voyager import load

SCRIPT = "async function mineWood(bot) {\n  const logs = 5;\n  await bot.dig(logs);\n}\n"
PYTHON = "def mine(logs: int) -> int:\n    return logs\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose skills.json lacks one function that `code/` has, beside an old version of one it lists."""
    for name in ("code", "description"):
        (tmp_path / name).mkdir()
    listed = {
        "mineWood": {"code": SCRIPT, "description": "Mines."},
        "mine": {"code": PYTHON, "description": "Mines so."},
    }
    (tmp_path / "skills.json").write_text(json.dumps(listed))
    for name, code in {"mineWood.js": SCRIPT, "mineV2.py": PYTHON, "lost.py": PYTHON.replace("mine", "lost")}.items():
        (tmp_path / "code" / name).write_text(code)
    (tmp_path / "description" / "lost.txt").write_text("Was lost.")
    return tmp_path


def test_python_comes_in_and_javascript_is_refused_by_name(folder: Path) -> None:
    found = load(folder)
    first = found.skills[0]
    assert (first.name, first.source, first.summary) == ("mine", PYTHON, "Mines so.")
    assert found.refused == ("mineWood: it is JavaScript, which does not run here; write it as one Python function",)
    assert found.instructions == ()


def test_a_function_that_the_index_lost_is_taken_and_an_old_version_is_not(folder: Path) -> None:
    found = load(folder)
    assert [(one.name, one.summary) for one in found.skills][1:] == [("lost", "Was lost.")]
    assert found.warnings == ("lost: not in skills.json; taken from code/", "mineV2: an old version of mine; left out")


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1}'])
def test_what_is_no_index_is_refused(text: str, folder: Path) -> None:
    (folder / "skills.json").write_text(text)
    with pytest.raises(BadInput):
        load(folder)


def test_code_that_is_nothing_known_is_refused_with_the_reason(folder: Path) -> None:
    (folder / "skills.json").write_text(json.dumps({"odd": {"code": "x = 1"}, "none": {}}))
    assert [text.split(":")[0] for text in load(folder).refused[:2]] == ["odd", "none"]
