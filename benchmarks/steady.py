"""Runs of the test suite under load or alone, each kept as it ends: what was killed goes on with the runs that lack.

The runs that lack start at once. Their workers and a burner, which computes and nothing else, are sixteen busy
processes together. How a run ended is read from pytest's JUnit file, which is written when the run is over, so that a
run is there whole or not at all. Every try leaves a file of its own beside it (`run1.try1.json`) from its start on: a
run that is removed and done again, or killed, is seen. So is one that was done by itself, since when each run began
and ended is kept.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from benchmarks.claim import Row, exactly
from benchmarks.table import ROOT
from memory.records import Frozen

FOLDER = ROOT / "build" / "steady"
BUSY, RUNS, JOBS = 16, 3, 5
"""Busy processes in all, how many runs of the suite are among them, and the workers of each run."""
QUICK = "tests/playbooks"
"""The folder of a quick run."""
MINUTE = 60.0


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
    mean_load: float = 0
    """The same, sampled each minute from its start on: the mean of the samples."""
    began: float = 0
    ended: float = 0
    """Seconds since 1970."""


@dataclass
class Watch:
    """The clock of runs that start at once, and the load of the machine, sampled each minute."""

    began: float = field(default_factory=time.time)
    start: float = field(default_factory=time.monotonic)
    loads: list[float] = field(default_factory=list[float])

    def look(self) -> None:
        """Sample the load when a minute is over."""
        if time.monotonic() - self.start >= MINUTE * (len(self.loads) + 1):
            self.loads.append(os.getloadavg()[0])

    def so_far(self) -> dict[str, float]:
        """Return what is kept of a run that ends now."""
        load = os.getloadavg()[0]
        return {
            "seconds": time.monotonic() - self.start,
            "load": load,
            "mean_load": fmean(self.loads or [load]),
            "began": self.began,
            "ended": time.time(),
        }


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


def suites(commit: str, count: int, paths: Sequence[str] = ()) -> list[Ran]:
    """Return how so many runs of the tests went. Those that lack start at once, beside a burner that makes up the
    load."""
    kept = [kept_at(commit, f"run{number}") for number in range(1, count + 1)]
    lacking = [file for file in kept if not file.exists()]
    with burner(BUSY - JOBS * len(lacking) if lacking else 0), ExitStack() as stack:
        watch = Watch()
        tries = {file: _try(file, watch.began) for file in lacking}
        running = {file: stack.enter_context(_suite(file, paths)) for file in lacking}
        while running:
            time.sleep(1)
            watch.look()
            for file in [file for file, process in running.items() if process.poll() is not None]:
                _keep(file, tries[file], running.pop(file).returncode, watch.so_far())
    return [Ran.model_validate_json(file.read_text()) for file in kept]


def _suite(kept: Path, paths: Sequence[str]) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Start one run of the tests."""
    written = kept.with_suffix(".xml")
    written.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(JOBS), "-p", "no:cacheprovider"]
    return _started([*command, f"--junitxml={written}", "--durations=40", *paths], kept.with_suffix(".log"))


def _try(kept: Path, began: float) -> Path:
    """Note that a run begins, in a file of its own, and return this file."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    tried = kept.with_suffix(f".try{len(_tries(kept)) + 1}.json")
    tried.write_text(json.dumps({"began": began}))
    return tried


def _tries(kept: Path) -> list[Path]:
    return list(kept.parent.glob(f"{kept.stem}.try*.json"))


def discarded(commit: str, count: int) -> int:
    """Return how many tries of so many runs at a commit are not the one that is kept."""
    return sum(max(0, len(_tries(kept_at(commit, f"run{number}"))) - 1) for number in range(1, count + 1))


def together(runs: Sequence[Ran]) -> int:
    """Return how many of these runs were at work at the same time, at most."""
    return max(sum(other.began <= each.began < other.ended for other in runs) for each in runs)


def _keep(kept: Path, tried: Path, code: int, measured: Mapping[str, float]) -> None:
    """Keep how a run ended, and how this try did."""
    if code not in (0, 1):
        raise RuntimeError(f"pytest ended with code {code}; {kept.with_suffix('.log')} says why")
    ran = read(kept.with_suffix(".xml")).model_copy(update=measured)
    for file in (tried, kept):
        file.write_text(ran.model_dump_json(indent=2))


@contextmanager
def _started(command: Sequence[str], log: Path) -> Generator[subprocess.Popen[bytes]]:
    """Start a command whose output goes to a file; whatever is left of it when the block ends is killed."""
    environ = os.environ | {"MALLOC_ARENA_MAX": "1"}  # fifteen workers, each with an arena a thread, fill the memory
    with (
        log.open("w") as file,
        subprocess.Popen(command, cwd=ROOT, env=environ, stdout=file, stderr=file, start_new_session=True) as process,
    ):
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def kept_at(commit: str, name: str, suffix: str = ".json") -> Path:
    """Return where a part that was measured at a commit is kept."""
    return FOLDER / commit[:12] / f"{name}{suffix}"


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


def make_test(commit: str) -> tuple[float, float]:
    """Return the seconds of `make test` by itself, and the machine's load when it began.

    Raises:
        RuntimeError: It failed. The runs under load would take an hour to say the same.
    """
    kept = kept_at(commit, "make_test")
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        before, began = os.getloadavg()[0], time.monotonic()
        with _started(["make", "test"], log := kept.with_suffix(".log")) as process:
            code = process.wait()
        if code:
            raise RuntimeError(f"`make test` ended with code {code}, with nothing beside it; {log} says why")
        own = Ran(tests=0, failures=0, skipped=0, seconds=time.monotonic() - began, load=before)
        kept.write_text(own.model_dump_json(indent=2))
    ran = Ran.model_validate_json(kept.read_text())
    return ran.seconds, ran.load


def steady_rows(commit: str) -> list[Row]:
    """Return the time of `make test` alone, then what came of the runs under load."""
    seconds, load = make_test(commit)
    runs = suites(commit, RUNS)
    return [
        Row("`make test` by itself: wall time, min", seconds / 60),
        Row("the same: load when it began", load),
        *loaded_rows(runs, discarded(commit, RUNS)),
    ]


def quick_rows(commit: str) -> list[Row]:
    """Return what comes of one folder under load; an earlier quick run is not taken for it."""
    name = f"q-{commit[:10]}"
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    return loaded_rows(suites(name, 1, (QUICK,)), discarded(name, 1))


def loaded_rows(runs: Sequence[Ran], tries: int) -> list[Row]:
    """Return the rows of the runs under load, of which so many earlier tries were discarded."""
    rows = [
        Row("runs at work at the same time", together(runs), exactly(len(runs)), n=len(runs)),
        Row("tries discarded", tries, n=tries + len(runs)),
    ]
    for number, ran in enumerate(runs, 1):
        told = f": {', '.join(ran.failed[:5])}" if ran.failed else ""
        name = f"run {number} among {BUSY} busy processes"
        rows += [
            Row(f"{name}: failures{told}", ran.failures, exactly(0), n=ran.tests),
            Row(f"{name}: tests skipped", ran.skipped, n=ran.tests),
            Row(f"{name}: wall time, min", ran.seconds / 60, n=ran.tests),
            Row(f"{name}: load when it ended", ran.load),
            Row(f"{name}: load, mean of a sample each minute", ran.mean_load),
        ]
    return rows
