"""Claim mend_1: who follows the README on a clean clone sees an agent that improves, and every guide begins to work.

The last commit is cloned into a temporary folder, `make install` run there, and every fenced block of the README run in
an empty folder, as written and in order (`docs/blocks.py`; of other `make` commands the target is looked up). From what
those commands stored: the second half of the stream beside the first and beside the control without memory of the same
run, and the held-out tasks with what was learned beside the same tasks without (paired interval over tasks). Then the
first block of every guide, each in a folder of its own. Beside stands the time of each step of the README.

`--quick` installs nothing (this interpreter's packages, with the clone first on PYTHONPATH) and tries three guides.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.claim import Row, Target, at_least, begin, exactly, git
from benchmarks.table import ROOT
from evolve.statistics.paired import interval, pair

QUICK = ("own-tasks.md", "memory.md", "inspect.md")
GAIN = 30.0
BETTER = Target("> 0", lambda measured: measured > 0)


class Clone:
    """A clone with the Python that its commands run with."""

    def __init__(self, folder: Path, *, install: bool) -> None:
        git("clone", "--quiet", "--no-hardlinks", str(ROOT), str(folder))
        self.folder, self.seconds = folder, 0.0
        if install:
            begun = time.monotonic()
            subprocess.run(["make", "install"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
            self.seconds = time.monotonic() - begun
        self.python = str(folder / ".venv" / "bin" / "python") if install else sys.executable

    def call(self, *arguments: str, cwd: Path | None = None) -> str:
        """Return what a module of the clone prints."""
        variables = {**os.environ, "PYTHONPATH": str(self.folder)}
        command = [self.python, "-m", *arguments]
        return subprocess.run(
            command, cwd=cwd or self.folder, env=variables, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    def follow(self, page: Path, folder: Path, *more: str) -> list[dict[str, Any]]:
        """Run a page in a folder; return its steps."""
        folder.mkdir()
        said = self.call("benchmarks.first_hour", str(page), str(folder), *more)
        steps = [json.loads(line) for line in said.splitlines()]
        for step in steps:
            if not step["ok"]:
                print(f"{page.name}: {step['command']}\n{step['said']}", file=sys.stderr)
        return steps

    def reports(self, folder: Path) -> list[dict[str, Any]]:
        """Return the reports of a folder's runs, in order."""
        runs = json.loads(self.call("evolve.cli.main", "logs", "list", "--json", cwd=folder))
        return [json.loads(self.call("evolve.cli.main", "report", run["run"], "--json", cwd=folder)) for run in runs]


def learned(found: list[dict[str, Any]]) -> list[Row]:
    """Return the figures of what the README's commands stored."""
    run = next(report for report in found if report["second_half"])
    halves = [100 * run[name]["tgc"] for name in ("first_half", "second_half", "control")]
    first, second, control = halves
    exams = [each for report in found if report is not run for each in report["evaluations"]]
    exams.sort(key=lambda each: len(each["passed"]))  # beside an evaluation stands a sample without memory
    arms = {each["arm"]: each["passed"] for each in exams}
    known, unknown = arms["main"], arms["no_memory"]
    tasks = sorted(set(known) & set(unknown))
    found_in = pair(tasks, unknown, known)
    gained, lost = len(found_in.gained), len(found_in.lost)
    ends = [100 * end for end in interval(gained, lost, len(tasks))]
    n, half = len(tasks), run["second_half"]["tasks"]
    gain = 100 * (gained - lost) / n
    return [
        Row("README: second half minus first half, points", second - first, BETTER, n=half),
        Row("README: second half minus the control without memory, points", second - control, BETTER, n=half),
        Row("README: second half, % solved", second, n=half),
        Row("README: tasks without memory of the same run, % solved", control, n=run["control"]["tasks"]),
        Row("README: changes applied", run["learned"], at_least(1)),
        Row("README: held-out with memory minus without, points", gain, at_least(GAIN), n=n, ci=(ends[0], ends[1])),
        Row("README: held-out without memory, % solved", 100 * sum(map(bool, unknown.values())) / len(unknown), n=n),
    ]


def main() -> None:
    """Clone, install, follow."""
    run = begin("mend_1_first_hour", __doc__)
    with tempfile.TemporaryDirectory(prefix="evolve-first-hour-") as beside:
        clone = Clone(Path(beside) / "clone", install=not run.quick)
        folder = Path(beside) / "readme"
        steps = clone.follow(clone.folder / "README.md", folder)
        rows = [Row("README: commands that failed", sum(not s["ok"] for s in steps), exactly(0), n=len(steps))]
        rows += learned(clone.reports(folder))
        guides = sorted((clone.folder / "docs" / "guides").glob("*.md"))
        guides = [guide for guide in guides if guide.name in QUICK or not run.quick]
        tried = {guide.name: clone.follow(guide, Path(beside) / guide.stem, "first") for guide in guides}
        first = [step for each in tried.values() for step in each]
        failed = sum(not step["ok"] for step in first)
        rows.append(Row("guides: steps of their first blocks that failed", failed, exactly(0), n=len(first)))
        rows.append(Row("guides tried", len(tried)))
        if not run.quick:
            rows.append(Row("make install, s", clone.seconds))
        rows += [Row(f"`{s['command']}`, s", s["seconds"]) for s in steps if s["command"].startswith("evolve")]
    run.conclude(rows)


if __name__ == "__main__":
    main()
