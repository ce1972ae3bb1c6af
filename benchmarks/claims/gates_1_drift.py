"""Claim gates_1_drift: after 8 of 24 rules changed at half of 300 tasks, the learner soon equals one that starts there.

The office's scripted worker, the `rules` reflector and the `direct` curator, without a model. The level after k tasks
of the changed world is that of the knowledge frozen then, on test_normal under the changed rules. The fresh learner
begins with an empty memory at the change and sees the same tasks; its level is the one after all of them. Two learners
that learn nothing differ by nothing too: both levels stand beside the difference, and the drifted learner's at the
change. Beside it stands a curator that only ever adds: its stale rules stay until they are retired.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from statistics import mean

from benchmarks.claim import Row, Target, at_most, begin
from benchmarks.claims.loop_1_learns import spread
from benchmarks.drift_lives import Adding, Level, Life, live

DEPLOYMENTS = range(10)
WITHIN = 5.0
"""Points below the fresh learner at which a learner counts as recovered."""
BY = 60
"""Tasks of the changed world within which it has to be."""


@dataclass(frozen=True)
class Lives:
    """What became of the learners of one deployment: levels by tasks of the changed world."""

    fresh: dict[int, Level]
    direct: dict[int, Level]
    adding: dict[int, Level]
    keeping: dict[int, Level]
    """The curator that only adds, with nothing retired."""


def alone(quick: bool, deployment: int) -> Lives:
    """Return all learners of one deployment."""
    life = Life(deployment, tasks=120, checks=(0, 60), test_tasks=24) if quick else Life(deployment)
    ends = replace(life, checks=(BY, life.tasks - life.change))
    few = replace(life, checks=(BY,))
    return Lives(
        fresh=live(ends, fresh=True),
        direct=live(life),
        adding=live(few, curator=Adding()),
        keeping=live(few, curator=Adding(), forget=False),
    )


def rows(lives: Sequence[Lives]) -> list[Row]:
    """Return the figures of the claim: rates in points of 100, means over deployments."""
    last = max(lives[0].fresh)

    def below(name: str, at: int) -> list[float]:
        return [100 * (life.fresh[last].passed - getattr(life, name)[at].passed) for life in lives]

    def row(text: str, values: Sequence[float], target: Target | None = None) -> Row:
        return Row(text, mean(values), target, n=len(values), ci=spread(values), seed=0)

    def passed(name: str, at: int) -> list[float]:
        return [100 * getattr(life, name)[at].passed for life in lives]

    def stale(name: str, at: int) -> list[float]:
        return [float(getattr(life, name)[at].stale) for life in lives]

    checks = sorted(lives[0].direct)
    recovered = next((at for at in checks if all(mean(below("direct", k)) <= WITHIN for k in checks if k >= at)), None)
    worst = max(below("direct", BY))
    return [
        row(f"fresh learner minus the drifted one after {BY} tasks, points", below("direct", BY), at_most(WITHIN)),
        Row("tasks until the mean stays within 5 points", recovered, at_most(BY), n=len(lives), seed=0),
        Row("the same difference, worst deployment", worst, n=len(lives), seed=0),
        *[row(f"fresh learner after {at} tasks, %", passed("fresh", at)) for at in (BY, last)],
        *[row(f"{at} tasks after the change, %", passed("direct", at)) for at in checks],
        *[row(f"stale rules known {at} tasks after the change", stale("direct", at)) for at in (0, BY)],
        row("only adding: fresh learner minus it", below("adding", BY)),
        row("only adding, nothing retired: fresh learner minus it", below("keeping", BY)),
        row("only adding: stale rules known", stale("adding", BY)),
        row("only adding, nothing retired: stale rules known", stale("keeping", BY)),
    ]


def main() -> None:
    """Measure and record. With `--quick` the exit code is 1 when a target is missed."""
    claim = begin("gates_1_drift", __doc__)
    deployments = DEPLOYMENTS[:1] if claim.quick else DEPLOYMENTS
    lives: list[Lives] = []
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for deployment, found in zip(deployments, pool.map(partial(alone, claim.quick), deployments), strict=True):
            lives.append(found)
            said = "  ".join(f"{at}: {100 * level.passed:.0f}" for at, level in found.direct.items())
            print(
                f"deployment {deployment}: fresh {100 * found.fresh[max(found.fresh)].passed:.0f}  {said}", flush=True
            )
    found = rows(lives)
    claim.conclude(found)


if __name__ == "__main__":
    main()
