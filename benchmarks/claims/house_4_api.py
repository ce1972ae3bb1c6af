"""Claim house_4: a program against `import evolve` alone does what seventeen commands do, with equal results.

The program is `examples/library.py`; it and the commands, as processes, work in two equal folders, and what they say is
compared word by word: only ids, moments and durations, which are never the same twice, are replaced by their order.
Controls: another office, whose results must differ; a program with a wrong type; an import that must be counted.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.claim import Row, at_least, at_most, begin, exactly
from benchmarks.table import PACKAGES, ROOT
from docs.blocks import FENCE

PROGRAM = Path(ROOT) / "examples" / "library.py"
SETTINGS = """\
[policy]
name = "evolve.environments.office.worker:worker"
model = "{deployment}"
[environment]
name = "office"
deployment = {deployment}
[playbook]
reflector = "rules"
curator = "direct"
[memory]
index = "exact"
"""
ID = re.compile(r"\b(?:[0-9A-HJKMNP-TV-Z]{26}|[0-9a-f]{12,64}|tr-[0-9a-f]{20})\b")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)|\d+\.\d+e-\d+")
DURATIONS = frozenset({"seconds", "reply_seconds"})
UNSAID = {"memory forget 1 --purge --yes": "done", "report RUN EXAM": "rows"}
"""Command -> a key that is the command's own: that it was confirmed, and a table drawn from the rest."""
CALLED = {"logs list": {"run": "run_id"}}
"""Command -> key of its rows -> what the library calls it."""
WRONG = "import evolve\n\nwith evolve.open() as memory:\n    memory.run(limit='8')\n"


def by_program(folder: Path) -> dict[str, Any]:
    """Return what the program says in a folder, by command."""
    ran = subprocess.run([sys.executable, str(PROGRAM), str(folder)], capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


def by_commands(folder: Path, commands: Iterable[str]) -> dict[str, Any]:
    """Return what the commands say in a folder, after the run and the evaluation that the program begins with."""
    names = {
        "RUN": command(folder, "run --limit 8")["run_id"],
        "EXAM": command(folder, "eval --split dev --limit 2")["run_id"],
        "OLD": command(folder, "playbook log")[0]["snapshot"],
    }
    said: dict[str, Any] = {}
    for line in commands:
        words = [names.get(word, word) for word in shlex.split(line)]
        found = command(folder, shlex.join(words))
        if line == "playbook export":
            found = found["text"]
        if isinstance(found, dict):
            found = {key: value for key, value in found.items() if key != UNSAID.get(line)}
        if line in CALLED:
            found = [{CALLED[line].get(key, key): value for key, value in row.items()} for row in found]
        said[line] = found
    return said


def command(folder: Path, line: str) -> Any:
    """Return what a command prints with `--json`."""
    words = [sys.executable, "-m", "evolve.cli.main", *shlex.split(line), "--json"]
    ran = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True, env=_environment())
    return json.loads(ran.stdout)


def same(ours: Any, theirs: Any) -> bool:
    """Tell whether two results are equal but for ids, moments and durations."""
    return _plain(ours) == _plain(theirs)


def _plain(value: Any) -> str:
    """Return a result as text in which each id stands as the place where it first occurs."""
    text = json.dumps(_timeless(value), sort_keys=True)
    known: dict[str, str] = {}
    text = ID.sub(lambda match: known.setdefault(match[0], f"id{len(known)}"), text)
    return MOMENT.sub("moment", re.sub(r"/\S*/(?=\.evolve)", "", text))


def _timeless(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _timeless(each) for key, each in value.items() if key not in DURATIONS}
    return [_timeless(each) for each in value] if isinstance(value, list) else value


def complaints(program: str) -> int:
    """Return how many errors pyright finds in a program, strictly."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "program.py").write_text(program)
        settings = {"include": ["program.py"], "typeCheckingMode": "strict", "extraPaths": [str(ROOT)]}
        (folder / "pyrightconfig.json").write_text(json.dumps(settings))
        asked = [sys.executable, "-m", "pyright", "-p", place, "--outputjson", "--pythonpath", sys.executable]
        ran = subprocess.run(asked, capture_output=True, text=True, check=False)
    return json.loads(ran.stdout)["summary"]["errorCount"]


def inner(code: str) -> list[str]:
    """Return the modules of ours, other than `evolve` itself, that a program imports."""
    found: list[str] = []
    for node in ast.walk(ast.parse(code)):
        found += [each.name for each in node.names] if isinstance(node, ast.Import) else []
        found += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    return [name for name in found if name.split(".")[0] in PACKAGES and name != "evolve"]


def examples() -> Iterator[tuple[str, str]]:
    """Yield each example with its code."""
    for path in sorted((Path(ROOT) / "examples").rglob("*.py")):
        yield path.name, path.read_text()


def guides() -> Iterator[tuple[str, str]]:
    """Yield each block of Python in the guides and the README, with the page's name."""
    for page in [Path(ROOT) / "README.md", *sorted((Path(ROOT) / "docs" / "guides").glob("*.md"))]:
        for language, _, body in FENCE.findall(page.read_text()):
            if language == "python":
                yield page.name, body


def _counted(title: str, programs: Iterable[tuple[str, str]]) -> Row:
    found = [(name, inner(code)) for name, code in programs]
    for name, modules in found:
        if modules:
            print(f"{name}: {', '.join(modules)}")
    return Row(title, sum(bool(modules) for _, modules in found), exactly(0), n=len(found))


def _folder(place: Path, deployment: int) -> Path:
    place.mkdir()
    (place / "evolve.toml").write_text(SETTINGS.format(deployment=deployment))
    return place


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}


def measured(folder: Path) -> list[Row]:
    """Return what program and commands have in common."""
    ours = by_program(_folder(folder / "ours", 3))
    other = by_program(_folder(folder / "other", 5))
    theirs = by_commands(_folder(folder / "theirs", 3), ours)
    equal = {line: same(ours[line], theirs[line]) for line in ours}
    for line in ours:
        if not equal[line]:
            print(f"differs: {line}")
    differ = sum(not same(other[line], theirs[line]) for line in ours)
    n = len(ours)
    return [
        Row("commands whose result the program gives, word by word", sum(equal.values()), exactly(n), n=n),
        Row("commands beside the two that run tasks", n, at_least(10)),
        Row("results that differ in another office (control)", differ, at_least(5), n=n),
    ]


def main() -> None:
    """Measure and record. With `--quick` the same, unstored; the exit code is 1 when a target is missed."""
    claim = begin("house_4_api", __doc__)
    with TemporaryDirectory() as folder:
        rows = measured(Path(folder))
    program = PROGRAM.read_text()
    rows += [
        Row("lines of the program", len(program.splitlines()), at_most(60)),
        Row("errors that pyright, strict, finds in it", complaints(program), exactly(0)),
        Row("errors in a program with a wrong type (control)", complaints(WRONG), at_least(1)),
        _counted("examples that import more of ours than `evolve`", examples()),
        _counted("blocks of Python in README and guides that do", guides()),
        Row("imports counted in one that does (control)", len(inner("from memory.records import Task")), exactly(1)),
    ]
    claim.conclude(rows)


if __name__ == "__main__":
    main()
