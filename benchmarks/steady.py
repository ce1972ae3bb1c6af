"""Runs of the test suite, beside a burner or alone, each kept as it ends: what was killed goes on with the next one.

The burner is a number of processes that compute and nothing else. How a run ended is read from pytest's JUnit file,
which is written when the run is over, so that a run is there whole or not at all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.claim import Row, exactly
from benchmarks.table import ROOT
from memory.records import Frozen

FOLDER = ROOT / "build" / "steady"
BURNING, RUNS, QUICK = 16, 3, "tests/playbooks"
"""Busy processes beside the suite, how often it is run, and the folder of a quick run."""
JOBS = "2"
"""Workers of pytest, as in `make test` on two cores."""


class Ran(Frozen):
    """How one run of the suite ended."""

    tests: int
    failures: int
    """Failed tests, and errors while a test was set up or torn down."""
    skipped: int
    seconds: float
    failed: tuple[str, ...] = ()
    load: float
    """Mean load of the machine over the last minute when it ended."""


@contextmanager
def burner(processes: int) -> Generator[None]:
    """Keep so many processes busy until the block ends; they end with this process, however it ends."""
    work = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(10_000))"
    with ExitStack() as stack:
        for _ in range(processes):
            busy = subprocess.Popen([sys.executable, "-c", work])
            stack.callback(busy.wait)
            stack.callback(busy.kill)
        yield


def suite(name: str, commit: str, burning: int, paths: Sequence[str] = ()) -> Ran:
    """Return how a run of the tests went: the one of this name and commit where there is one, else a new one."""
    kept = FOLDER / commit[:12] / f"{name}.json"
    if kept.exists():
        return Ran.model_validate_json(kept.read_text())
    kept.parent.mkdir(parents=True, exist_ok=True)
    written = kept.with_suffix(".xml")
    written.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", JOBS, "-p", "no:cacheprovider", f"--junitxml={written}"]
    with burner(burning):
        began = time.monotonic()
        with kept.with_suffix(".log").open("w") as log:
            ended = subprocess.run([*command, *paths], cwd=ROOT, stdout=log, stderr=log, check=False)
        seconds, load = time.monotonic() - began, os.getloadavg()[0]
    if ended.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with code {ended.returncode}; {kept.with_suffix('.log')} says why")
    ran = read(written).model_copy(update={"seconds": seconds, "load": load})
    kept.write_text(ran.model_dump_json(indent=2))
    return ran


def read(file: Path) -> Ran:
    """Return what a JUnit file of pytest says of a run."""
    cases = list(ElementTree.parse(file).getroot().iter("testcase"))
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return Ran(tests=len(cases), failures=len(failed), skipped=skipped, seconds=0, failed=tuple(failed), load=0)


def make_test(commit: str) -> tuple[float, float, bool]:
    """Return the seconds of `make test` by itself, the machine's load when it began, and whether all passed."""
    kept = FOLDER / commit[:12] / "make_test.json"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        before, began = os.getloadavg()[0], time.monotonic()
        with kept.with_suffix(".log").open("w") as log:
            ended = subprocess.run(["make", "test"], cwd=ROOT, stdout=log, stderr=log, check=False)
        own = Ran(
            tests=0, failures=int(ended.returncode != 0), skipped=0, seconds=time.monotonic() - began, load=before
        )
        kept.write_text(own.model_dump_json(indent=2))
    ran = Ran.model_validate_json(kept.read_text())
    return ran.seconds, ran.load, not ran.failures


def steady_rows(commit: str) -> list[Row]:
    """Return the time of `make test` alone, then what came of the runs beside the burner."""
    seconds, load, passed = make_test(commit)
    runs = [suite(f"run{number}", commit, BURNING) for number in range(1, RUNS + 1)]
    return [
        Row("`make test` by itself: wall time, min", seconds / 60),
        Row("the same: all passed", float(passed), exactly(1)),
        Row("the same: load when it began", load),
        *loaded_rows(runs),
    ]


def quick_rows(commit: str) -> list[Row]:
    """Return what comes of one folder beside the burner; an earlier quick run is not taken for it."""
    name = f"q-{commit[:10]}"
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    return loaded_rows([suite("run1", name, BURNING, (QUICK,))])


def loaded_rows(runs: Sequence[Ran]) -> list[Row]:
    """Return the rows of the runs beside the burner."""
    rows: list[Row] = []
    for number, ran in enumerate(runs, 1):
        told = f": {', '.join(ran.failed[:5])}" if ran.failed else ""
        name = f"run {number} beside {BURNING} busy processes"
        rows += [
            Row(f"{name}: failures{told}", ran.failures, exactly(0), n=ran.tests),
            Row(f"{name}: tests skipped", ran.skipped, n=ran.tests),
            Row(f"{name}: wall time, min", ran.seconds / 60, n=ran.tests),
            Row(f"{name}: load when it ended", ran.load),
        ]
    return rows
