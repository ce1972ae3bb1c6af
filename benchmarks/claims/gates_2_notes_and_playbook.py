"""Claim gates_2: mistake notes alone, a playbook alone and both learn, and a batch of 16 writes half the notes of one.

Unseen office deployments with the scripted worker, online train tasks, then frozen evaluation on held-out tasks. There
is no model: the `rules` reflector draws the lessons in every arm, `ace` takes them directly into the playbook, `mnl`
writes them as notes by cluster (`playbook.notebook.writer = "rules"`), `both` does the two side by side. Only the
static gate stands in any arm, so that the table compares what is written, not what is admitted. It does not rank the
papers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.claim import Row, at_least, at_most, begin
from benchmarks.claims.loop_1_learns import spread
from benchmarks.office_arms import SPLITS, folder, office
from evolve.config.model import Config
from evolve.environments.office.worker import make_worker
from evolve.loop.assembly import open_store
from evolve.loop.session import Parts, run

DEPLOYMENTS, QUICK = range(10), range(1)
ARMS: dict[str, dict[str, Any]] = {
    "none": {"preset": "none"},
    "ace": {"preset": "ace", "playbook": {"reflector": "rules", "curator": "direct"}},
    "mnl": {"preset": "mnl", "playbook": {"reflector": "rules", "notebook": {"writer": "rules"}}},
    "mnl, batch 1": {
        "preset": "mnl",
        "playbook": {"reflector": "rules", "notebook": {"writer": "rules", "batch": 1}},
    },
    "both": {"playbook": {"reflector": "rules", "curator": "direct+notebook", "notebook": {"writer": "rules"}}},
}
"""Arm -> what it sets. All see the same stream in batches of 16."""


@dataclass(frozen=True)
class Arm:
    """What one arm of one deployment came to."""

    rate: float
    """Share of the held-out tasks solved."""
    notes: int
    """Live notes at the end."""
    written: int
    """Notes that were made, those that others have replaced since included."""
    records: int


def alone(quick: bool, deployment: int) -> dict[str, Arm]:
    """Return every arm of one deployment, measured in this process."""
    sizes = (32, 12) if quick else (60, None)
    with folder() as root:
        return {name: measure(root / str(at), deployment, name, sizes) for at, name in enumerate(ARMS)}


def measure(root: Path, deployment: int, name: str, sizes: tuple[int, int | None]) -> Arm:
    """Let one arm learn in a workspace under `root`, then evaluate it frozen."""
    world = office(deployment)
    parts = Parts(policy=make_worker(world), environment=world)

    def configured(**section: Any) -> Config:
        shared = {
            "run": {"batch_size": 16, "concurrency": 8, **section},
            "environment": {"name": "office", "max_steps": 16},
            "memory": {"index": "exact", "recall_k": 40},
            "gate": {"names": ["static"]},
            "controls": {"no_memory": 0.0},
        }
        return Config.model_validate({"root": root, **shared, **ARMS[name]})

    learned = configured(tasks=sizes[0])
    run(learned, parts=parts)
    result = run(configured(mode="frozen", eval_splits=SPLITS, tasks=sizes[1]), parts=parts)
    marks = [mark is True for report in result.evaluations for mark in report.passed.values()]
    with open_store(learned, read_only=True) as store:
        view = store.view(learned.memory.namespace)
        return Arm(
            rate=mean(marks),
            notes=len(view.records("note")),
            written=sum(record.kind == "note" for record in store.records(learned.memory.namespace)),
            records=len(view.records()),
        )


def rows(results: Sequence[dict[str, Arm]]) -> list[Row]:
    """Return the figures of the claim: means over deployments, in points of 100."""
    n = len(results)

    def row(text: str, values: Sequence[float], **more: Any) -> Row:
        return Row(text, mean(values), n=n, ci=spread(values), seed=0, **more)

    def differences(first: str, second: str) -> list[float]:
        return [100 * (arms[first].rate - arms[second].rate) for arms in results]

    found = [row(f"{name}, % of held-out tasks", [100 * arms[name].rate for arms in results]) for name in ARMS]
    for other in ("ace", "mnl"):
        values = differences("both", other)
        interval = spread(values)
        bound = interval[0] if interval else mean(values)
        text = f"both minus {other}, points: lower end of the 95 % interval"
        found.append(Row(text, bound, at_least(-2), n=n, ci=interval, seed=0))
    several, single = "mnl", "mnl, batch 1"
    made = [100 * arms[several].written / max(arms[single].written, 1) for arms in results]
    live = [100 * arms[several].notes / max(arms[single].notes, 1) for arms in results]
    return [
        *found,
        row("notes made by batch 16, % of those made by batch 1", made, target=at_most(50)),
        row("batch 16 minus batch 1, points", differences(several, single), target=at_least(0)),
        row("live notes at the end of batch 16, % of those of batch 1", live),
        *[row(f"{name}: notes made", [arms[name].written for arms in results]) for name in (several, single)],
        *[row(f"{name}: live notes at the end", [arms[name].notes for arms in results]) for name in (several, single)],
        *[row(f"{name}: records at the end", [arms[name].records for arms in results]) for name in ("ace", "both")],
    ]


def main() -> None:
    """Measure and record."""
    claim = begin("gates_2_notes_and_playbook", __doc__)
    deployments = QUICK if claim.quick else DEPLOYMENTS
    results: list[dict[str, Arm]] = []
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for deployment, arms in zip(deployments, pool.map(partial(alone, claim.quick), deployments), strict=True):
            results.append(arms)
            shown = "  ".join(f"{name} {100 * arm.rate:.0f} ({arm.notes} notes)" for name, arm in arms.items())
            print(f"deployment {deployment}: {shown}", flush=True)
    claim.record(rows(results))


if __name__ == "__main__":
    main()
