"""Claim real_8: one command, and a real model learns a benchmark of others while one waits (`make real`).

The command is timed from the fetched model to its last figure: llama.cpp serves Qwen2.5-Coder-0.5B-Instruct, which
works through 60 train questions of ACE's Formula online, with the default gates; then 40 held-out questions with what
was learned and, as the control, without. An interval over so few says little; `real_1` has 500 and 200.

It needs the files of the benchmark (in the folder that EVOLVE_TEST_DATA names). With `--quick` 6 and 4 questions.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.claim import Row, at_least, at_most, begin
from benchmarks.real.figures import difference, rate
from benchmarks.real.models import fetch, find
from benchmarks.real.walk import HELD_OUT, MODEL, TRAIN, walk
from evolve.config.file import load_config
from evolve.episode.arms import MAIN, NO_MEMORY
from evolve.loop.assembly import open_store
from evolve.loop.history import list_runs
from evolve.loop.report import Report, make_report
from memory.runlist import RunFilter

MINUTES = 30.0


def reports(folder: Path) -> list[Report]:
    """Return the reports of a folder's runs."""
    with open_store(load_config(folder / "evolve.toml"), read_only=True) as store:
        return [make_report(store, row.run_id) for row in list_runs(store, RunFilter())[0]]


def rows(found: Sequence[Report], minutes: float, least: int) -> list[Row]:
    """Return the figures of what the commands stored; so many changes have to be applied at least."""
    (run,) = (report for report in found if report.second_half)
    arms = {each.arm: each.passed for report in found for each in report.evaluations}
    on, off = arms[MAIN], arms[NO_MEMORY]
    halves = [100 * half.tgc for half in (run.first_half, run.second_half) if half]
    return [
        Row("wall time, min", minutes, at_most(MINUTES)),
        Row("changes applied", run.learned, at_least(least)),
        *(
            Row(f"train questions solved as they came, {name} half, %", each)
            for name, each in zip(("first", "second"), halves, strict=True)
        ),
        Row("held out: without memory, % solved", rate(off), n=len(off)),
        Row("held out: learned, % solved", rate(on), n=len(on)),
        difference("held out: learned minus without memory, points", off, on),
    ]


def main() -> None:
    """Walk, read the journal, record."""
    run = begin("real_8_walk", __doc__)
    train, held_out = (6, 4) if run.quick else (TRAIN, HELD_OUT)
    fetch(find(MODEL))  # downloads are not timed
    with tempfile.TemporaryDirectory(prefix="evolve-walk-") as place:
        began = time.monotonic()
        walk(Path(place), train, held_out)
        minutes = (time.monotonic() - began) / 60
        run.conclude(rows(reports(Path(place)), minutes, least=0 if run.quick else 1))  # six questions teach little


if __name__ == "__main__":
    main()
