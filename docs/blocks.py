"""The code blocks of a page, run as its reader would: `tests/test_docs.py` and claim inspect_5 share it.

A `bash` block: its `evolve`, `python`, `cp` and `rm` commands run in order, in one folder per page, with what an
`export` before them set; of a `make` command the target is looked up. A comment `# exit code N` behind a command says
how it ends. OLD and NEW stand for the first and the last snapshot in that folder, CHANGE for the first change that
waits for review, ROLLOUT for the first of a training.
A block that names a file (```python own.py) is written there first. Every other `python` block runs by itself, last.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

FENCE = re.compile(r"^```(\w*)(?: ([\w./-]+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TARGET = re.compile(r"^([a-z-]+):.*##", re.MULTILINE)
ENDS = re.compile(r"# exit code (\d+)")
NOT_RUN_HERE = ("git clone ", "cd ", "pip install ", "source ")
STANDS_FOR = {
    "OLD": (("playbook", "log"), 0, "snapshot"),
    "NEW": (("playbook", "log"), -1, "snapshot"),
    "CHANGE": (("review", "list"), 0, "number"),
    "ROLLOUT": (("train", "rollouts", "list"), 0, "id"),
}
"""Word in a command -> the command that lists what it stands for, which row, which column."""


@dataclass(frozen=True)
class Ran:
    """A command, and what came of it."""

    language: str
    command: str
    ok: bool
    said: str = ""


Start = Callable[[list[str], Path, Mapping[str, str]], "subprocess.CompletedProcess[str]"]
"""Runs a command in a folder, with these variables; returns what came of it."""


def started(command: list[str], folder: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)


def pages(root: Path) -> list[Path]:
    """Return the pages of a clone whose code a reader runs."""
    return sorted([root / "README.md", root / "CONTRIBUTING.md", *(root / "docs" / "guides").glob("*.md")])


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """Yield the fenced blocks of a page in these languages that name no file."""
    return (body for language, file, body in FENCE.findall(page.read_text()) if language in languages and not file)


def configurations(page: Path) -> list[str]:
    """Return the `toml` blocks of a page, those that name a file included."""
    return [body for language, _, body in FENCE.findall(page.read_text()) if language == "toml"]


def shell_commands(page: Path) -> list[str]:
    """Return the commands of the `bash` blocks, continued lines joined, comments dropped."""
    text = "\n".join(blocks(page, "bash")).replace("\\\n", " ")
    return [line for line in text.splitlines() if shlex.split(line, comments=True)]


def targets(root: Path) -> set[str]:
    """Return what `make` knows."""
    return set(TARGET.findall((root / "Makefile").read_text()))


def run_page(
    page: Path, root: Path, folder: Path, environment: Mapping[str, str] | None = None, start: Start = started
) -> Iterator[Ran]:
    """Run a page of a clone in an empty folder; yield each command as it ends. What only installs is left out.

    `start` runs a command; by default each in a new interpreter, as a shell does.
    """
    for _, file, body in FENCE.findall(page.read_text()):
        if file:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(body)
    variables = {**os.environ, **(environment or {})}
    for command in shell_commands(page):
        if command.startswith("make "):
            wanted = shlex.split(command, comments=True)[1:]
            unknown = [word for word in wanted if "=" not in word and word not in targets(root)]
            yield Ran("make", command, not unknown, f"no target {unknown}" if unknown else "")
        elif command.startswith("export "):
            variables |= dict(word.split("=", 1) for word in shlex.split(command, comments=True)[1:])
        elif not command.startswith(NOT_RUN_HERE):
            yield replace(_shell(command, folder, variables, start), command=command)
    for code in blocks(page, "python"):
        yield replace(_run([sys.executable, "-c", code], folder, variables, start), language="python")


def _shell(command: str, folder: Path, variables: Mapping[str, str], start: Start) -> Ran:
    words = shlex.split(command, comments=True)
    if words[0] in ("cp", "rm"):
        return _run(["bash", "-c", command], folder, variables, start)
    if words[0] not in ("evolve", "python"):
        return Ran("bash", command, False, "nobody knows how to run this")
    for word in set(words) & set(STANDS_FOR):
        listing, row, column = STANDS_FOR[word]
        listed = _run(["evolve", *listing, "--json"], folder, variables, start)
        if not listed.ok:
            return listed
        words = [str(json.loads(listed.said)[row][column]) if each == word else each for each in words]
    ends = ENDS.search(command)
    return _run(words, folder, variables, start, code=int(ends[1]) if ends else 0)


def _run(command: list[str], folder: Path, variables: Mapping[str, str], start: Start, *, code: int = 0) -> Ran:
    """Run a command with this interpreter's environment on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = start(command, folder, {**variables, "PATH": path, "COLUMNS": "120"})
    said = ran.stdout if ran.returncode == code else f"exit code {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    return Ran("bash", shlex.join(command), ran.returncode == code, said)
