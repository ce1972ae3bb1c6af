"""Arms of every life of a claim: held-out tasks with what was learned, without memory, once more with it (A/A), with a
memory that learned nothing (untrained), and in a bare prompt.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from benchmarks.claim import Row, Run
from benchmarks.real.figures import Passed, difference, rate
from benchmarks.real.lives import Life
from benchmarks.real.recorded import Recorded, home_of, packed_by_all
from evolve.episode.arms import AA, MAIN, NO_MEMORY
from evolve.loop.report import Report
from memory.records import Frozen

EXAM = "held out"
Sections = Mapping[str, Mapping[str, Any]]


class Arms(Frozen):
    """Held-out figures of one life."""

    passed: dict[str, Passed]
    """Arm -> task -> whether it passed."""
    scores: dict[str, dict[str, float]]
    """Arm -> task -> reward."""
    untrained: Passed = Field(default_factory=dict)
    """With all of memory on, and nothing in it. Empty where it was not asked."""
    bare: Passed = Field(default_factory=dict)
    """Empty where it was not asked."""
    learned: int
    """Changes of knowledge that were applied."""
    halves: tuple[float, float]
    """% of the train tasks solved at the first attempt, in the first and in the second half of the stream."""

    @property
    def off(self) -> Passed:
        """Without memory."""
        return self.passed[NO_MEMORY]

    @property
    def on(self) -> Passed:
        """With what was learned."""
        return self.passed[MAIN]


def folder(run: Run) -> Path:
    """Return where a claim keeps its lives: a folder for each commit, so that what was killed goes on; `--quick` begins
    anew."""
    home = home_of(run.name) / ("quick" if run.quick else run.commit[:12])
    if run.quick:
        shutil.rmtree(home, ignore_errors=True)
    return home


def recording(run: Run) -> Recorded:
    """Return what the models of any claim have said before; a quick run knows nothing, and keeps to itself what it
    records."""
    if run.quick:
        quick = home_of(run.name) / "quick-replies"
        shutil.rmtree(quick, ignore_errors=True)
        return Recorded(quick)
    return Recorded(home_of(run.name), *packed_by_all())


def recorded_rows(recorded: Recorded) -> list[Row]:
    """Return where the replies of this sitting came from; what a killed life had in its journal is in neither."""
    taken, asked = recorded.asked
    return [Row("replies taken from the recording", taken), Row("replies asked for in this sitting", asked)]


def lived(
    life: Life, train: int, held_out: int, *, bare: bool = True, beside: bool = True, sections: Sections | None = None
) -> Arms:
    """Learn, then examine. `sections` hold for the learning alone; without `beside` neither A/A nor the untrained
    memory is asked."""
    report = life.learn(train, **(sections or {}))
    passed = life.examine(EXAM, held_out, controls={"no_memory": 1.0, "aa": beside})
    blank = replace(life, root=life.root / "untrained", who="untrained")
    untrained = blank.examine(EXAM, held_out, controls={"no_memory": 0.0})[MAIN] if beside else {}
    return Arms(
        passed=passed,
        scores=life.scores(EXAM),
        untrained=untrained,
        bare=life.bare(held_out) if bare else {},
        learned=report.learned,
        halves=_halves(report),
    )


def controls(arms: Arms, seed: int, learned: str = "learned") -> list[Row]:
    """Return what stands beside a difference: the arms by themselves, A/A, the untrained memory, the stream.

    `learned`: what the arm with memory is called.
    """
    n, stream = len(arms.on), "train tasks solved as they came"
    return [
        Row("without memory, % solved", rate(arms.off), n=n, seed=seed),
        Row(f"{learned}, % solved", rate(arms.on), n=n, seed=seed),
        difference(f"{learned} again minus {learned} (A/A), points", arms.on, arms.passed[AA], seed=seed),
        difference("untrained memory minus without memory, points", arms.off, arms.untrained, seed=seed),
        Row(f"{stream}, first half, %", arms.halves[0], seed=seed),
        Row(f"{stream}, second half, %", arms.halves[1], seed=seed),
    ]


def _halves(report: Report) -> tuple[float, float]:
    first, second = (100 * half.tgc if half else 0.0 for half in (report.first_half, report.second_half))
    return first, second
