"""Makes runs of every kind under the source of a commit, and looks for their episodes in its lists, reports and pages.

What there is to find is read from the databases, past all code that lists anything. A LangGraph store has no episodes:
its puts are looked for instead.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from playwright.sync_api import Page

from benchmarks.browser import browsing, inspector
from benchmarks.walk import SCRIPTED

KINDS = ("learn", "eval", "compare", "agent", "langchain", "mcp", "langgraph")
DRIVER = Path(__file__).with_name("brought_along.py")
ITEMS = "langgraph"


@dataclass(frozen=True)
class Found:
    """What was made of one kind, and how much of it each place shows."""

    made: int
    listed: int
    reported: int
    shown: int

    @property
    def missing(self) -> int:
        """Return how many findings are missing of three for each that was made."""
        return 3 * self.made - self.found

    @property
    def found(self) -> int:
        """Return how many findings there are, of three for each that was made."""
        return self.listed + self.reported + self.shown


@dataclass(frozen=True)
class Made:
    """What the work of one kind left in the databases."""

    episodes: set[str]
    """Or items, of a store."""
    runs: set[str]
    """Names under which the workspace journalled it."""


@dataclass(frozen=True)
class Place:
    """A workspace that the source at `tree` works in."""

    folder: Path
    tree: Path

    @property
    def env(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self.tree), "OMP_NUM_THREADS": "1"}

    def python(self, *arguments: str) -> str:
        """Return what a Python process prints. Raises `RuntimeError` when it fails."""
        ran = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
        )
        if ran.returncode:
            raise RuntimeError(f"{' '.join(arguments)} failed: {ran.stderr[-2000:]}")
        return ran.stdout

    def evolve(self, *arguments: str) -> str:
        """Return what a command prints. Raises `RuntimeError` when it fails."""
        return self.python("-m", "evolve.cli.main", "--config", str(self.folder / "evolve.toml"), *arguments)

    def json(self, *arguments: str) -> Any:
        """Return what a command prints with `--json`; None where it fails."""
        try:
            return json.loads(self.evolve(*arguments, "--json"))
        except RuntimeError:
            return None


def made(place: Place, count: int) -> dict[str, Made]:
    """Do some work of each kind; return what came of it."""
    (place.folder / "evolve.toml").write_text(f"[run]\ntasks = {count}\n{SCRIPTED}")
    held = ("--report-tasks", str(max(2, count // 2)), "--limit", str(count))
    works: dict[str, list[tuple[str, ...]]] = {
        "learn": [("run",)],
        "eval": [("eval", "--limit", str(count)), ("eval", "--limit", str(count), "--no-memory", "--split", "dev")],
        "compare": [("compare", "default", "default playbook.token_budget=100", *held)],
    }
    found: dict[str, Made] = {}
    for kind in KINDS:
        before, runs = _episodes(place.folder), _runs(place.folder)
        for command in works.get(kind, ()):
            place.evolve(*command)
        if kind not in works:
            place.python("-P", str(DRIVER), str(place.folder), kind, str(count))
        new = _items(place.folder) if kind == ITEMS else _episodes(place.folder) - before
        found[kind] = Made(new, _runs(place.folder) - runs)
        print(f"{kind}: {len(new)}", flush=True)
    return found


def looked_for(place: Place, there: dict[str, Made]) -> dict[str, Found]:
    """Return what `logs list`, `report` and the page show of what was made; a report is asked for by the run's name."""
    rows = place.json("logs", "list", "-n", "100000") or []
    listed = set[str]().union(*(_listed(place, row["run"]) for row in rows))
    with inspector(place.folder, env=place.env) as address, browsing(address) as (page, _):
        shown = _shown(page, f"http://{urlsplit(address).netloc}")
    found: dict[str, Found] = {}
    for kind, each in there.items():
        reported = sum(_reported(place.json("report", run)) for run in each.runs)
        found[kind] = Found(
            made=len(each.episodes),
            listed=len(each.episodes & listed),
            reported=min(reported, len(each.episodes)),
            shown=len(each.episodes & shown),
        )
    return found


def _listed(place: Place, run: str) -> set[str]:
    rows = place.json("logs", "list", "--run", run, "-n", "100000") or []
    return {row.get("episode") or row["record_id"] for row in rows}


def _reported(report: dict[str, Any] | None) -> int:
    """Return how many episodes, or items, the figures of a report are about."""
    if report is None:
        return 0
    if report.get("kind") == ITEMS:
        return report["learned"]
    arms = (report.get("compared") or {}).get("arms", ())
    streams = [part["tasks"] for part in (report["whole"], report["control"]) if part]
    exams = [each["metrics"]["tasks"] for each in report["evaluations"]]
    return sum([*streams, *exams, *(arm["episodes"] + len(arm["curve"]) for arm in arms)])


def _shown(page: Page, home: str) -> set[str]:
    """Return the episodes and items that a person finds from the list of runs: linked, and there when followed."""
    runs = _links(page, home, "/runs", "runs")
    found: set[str] = set()
    for run in runs:
        for kind in ("episodes", "records"):
            for key in _links(page, home, f"/runs/{run}", kind):
                answer = page.goto(f"{home}/{kind}/{key}")
                if answer is not None and answer.ok and page.locator("h1").count():
                    found.add(unquote(key))
    return found


def _links(page: Page, home: str, path: str, kind: str) -> list[str]:
    """Return the names of a kind that all screens of a list lead to."""
    found: dict[str, None] = {}
    for number in range(1, 100):
        page.goto(f"{home}{path}?page={number}")
        links = page.locator(f'main a[href^="/{kind}/"]').evaluate_all("all => all.map(a => a.getAttribute('href'))")
        names = [re.split(r"[/?#]", link)[2] for link in links]
        if set(names) <= set(found):
            break
        found |= dict.fromkeys(names)
    return list(found)


def _episodes(folder: Path) -> set[str]:
    found: set[str] = set()
    for file in _databases(folder):
        found |= _ids(file, "SELECT id FROM trajectories WHERE run_id NOT GLOB '*/gates'")
    return found


def _runs(folder: Path) -> set[str]:
    """Return the names of what the workspace journalled, records or not; those of evaluations belong to their runs."""
    file = folder / ".evolve" / "evolve.db"
    question = (
        "SELECT run_id FROM runs UNION SELECT run_id FROM trajectories"
        " WHERE run_id NOT GLOB '*/gates' AND run_id NOT GLOB 'ev-*'"
    )
    return _ids(file, question) if file.exists() else set()


def _items(folder: Path) -> set[str]:
    return _ids(folder / ".evolve" / "evolve.db", f"SELECT id FROM records WHERE namespace = '{ITEMS}'")


def _databases(folder: Path) -> Iterator[Path]:
    return folder.glob(".evolve/**/evolve.db")


def _ids(file: Path, question: str) -> set[str]:
    with closing(sqlite3.connect(file)) as conn:
        return {row[0] for row in conn.execute(question)}
