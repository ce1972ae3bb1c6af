"""The documentation is true: its code runs, its links and paths exist, its generated parts are current.

D1  every `bash` block: `make` targets exist, `evolve` commands run, in order, in one fresh folder per page; OLD and NEW
    stand for the first and the last snapshot there
    a block that names a file (```python own.py) is written there first
D2  every other `python` block runs by itself, after the page's shell blocks, in that folder
D3  every `toml` block is a configuration that `evolve` accepts
D4  every relative link leads to a file, and every path of the README's tree exists
D5  docs/cli.md, docs/api.md, docs/results.md and the README's summary are what `make docs` writes
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evolve.configfile import load_config

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs" / "guides").glob("*.md")])
PROSE = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)(?: ([\w./-]+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TARGETS = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
KNOWN_LANGUAGES = {"bash", "python", "toml", "text", "json", "markdown"}
NOT_RUN_HERE = ("git clone ", "cd ", "pip install ", "source ")


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """Yield the fenced blocks of a page in these languages that name no file."""
    return (body for language, file, body in FENCE.findall(page.read_text()) if language in languages and not file)


def shell_commands(page: Path) -> list[str]:
    """Return the commands of the `bash` blocks, continued lines joined, comments dropped."""
    text = "\n".join(blocks(page, "bash")).replace("\\\n", " ")
    return [line for line in text.splitlines() if shlex.split(line, comments=True)]


def run(command: list[str], folder: Path) -> str:
    """Run a command as a reader would, with this virtual environment on the path; return what it printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "COLUMNS": "120"}
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    for _, file, body in FENCE.findall(page.read_text()):
        if file:
            (tmp_path / file).write_text(body)
    for command in shell_commands(page):
        first, *rest = shlex.split(command, comments=True)
        if first == "make":
            assert [target for target in rest if "=" not in target and target not in TARGETS] == []
        elif not command.startswith(NOT_RUN_HERE):
            assert first in {"evolve", "python"}, f"{page.name}: no test knows how to run {command!r}"
            if {"OLD", "NEW"} & set(rest):
                log = json.loads(run(["evolve", "playbook", "log", "--json"], tmp_path))
                names = {"OLD": log[0]["snapshot"], "NEW": log[-1]["snapshot"]}
                rest = [names.get(word, word) for word in rest]
            run([first, *rest], tmp_path)
    for code in blocks(page, "python"):
        run([sys.executable, "-c", code], tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_configuration_of_a_page_is_accepted(page: Path, tmp_path: Path) -> None:
    configurations = [body for language, _, body in FENCE.findall(page.read_text()) if language == "toml"]
    for text in configurations:
        (tmp_path / "evolve.toml").write_text(text)
        load_config(tmp_path / "evolve.toml")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_names_a_language_that_is_looked_after(page: Path) -> None:
    assert {language for language, *_ in FENCE.findall(page.read_text())} <= KNOWN_LANGUAGES


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_path_of_the_tree_exists() -> None:
    tree = next(body for body in blocks(ROOT / "README.md", "text") if body.startswith("evolve/"))
    paths = [line.split()[0] for line in tree.splitlines() if not line.startswith(" ")]
    assert len(paths) >= 8
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_generated_parts_are_current() -> None:
    from docs.generate import generated

    stale = [str(page.relative_to(ROOT)) for page, text in generated().items() if page.read_text() != text]
    assert stale == [], "run `make docs`"
