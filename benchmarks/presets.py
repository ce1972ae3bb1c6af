"""The default against the presets on the same streams: `make bench-compare`, and claims gates_5 and gates_6.

`python -m benchmarks.presets FOLDER` lives what is missing there, a process for each core with a deployment of its own,
and prints the report; killed, it goes on where it was.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.table import ROOT
from evolve.compare.arms import Given, resolve
from evolve.compare.compare_session import REPORT
from evolve.compare.comparison import Comparison, read_comparison
from evolve.compare.conduct import conduct
from evolve.compare.markdown_report import markdown
from evolve.compare.pictures import save
from evolve.compare.plan import ComparisonOptions, Plan, make_plan, store_plan
from evolve.config.model import Config
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.worker import make_worker
from evolve.loop.session import Parts
from evolve.progress import Observers
from policies.protocols import Policy

PLAYED = ("ace", "regimes", "yunjue")
"""Presets as which the pocket model can write; with the others it learns nothing (claim gates_5)."""
SCRIPTED = {"playbook.reflector": "rules", "playbook.curator": "direct", "policy.name": "scripted"}
"""Where no model runs, nobody can write as a preset's prompts ask: what is left of a preset is everything else."""


@dataclass(frozen=True)
class Bench:
    """What is compared, and on how much."""

    presets: tuple[str, ...] = PLAYED
    deployments: tuple[int, ...] = (0, 1, 2)
    split: str = "test_challenge"
    report_tasks: int | None = None
    changes: dict[str, Any] = field(default_factory=dict[str, Any])
    memo: bool = False
    """Ask the model for each prompt once in an office: the same figures sooner, but for the seconds."""

    @property
    def plan(self) -> Plan:
        """Return the plan, with A/A and the arm without memory."""
        given = Given(ROOT / "benchmarks" / "presets.toml", self.changes)
        arms = [resolve(name, given) for name in ("default", *self.presets)]
        asked = ComparisonOptions(split=self.split, report_tasks=self.report_tasks, deployments=self.deployments)
        plan = make_plan(arms, asked, "make bench-compare")
        toy = "office-worker" if self.scripted else "pocket"
        return plan.model_copy(update={"toys": (toy,)})

    @property
    def scripted(self) -> bool:
        """Tell whether the office's scripted worker acts, and no model."""
        return self.changes.get("policy.name") == "scripted"


def quick(presets: tuple[str, ...]) -> Bench:
    """Return a small bench of the scripted worker."""
    changes = {**SCRIPTED, "run.tasks": 8, "gate.held_out.tasks": 6}
    return Bench(presets, (0, 1), split="test_normal", report_tasks=6, changes=changes)


def measure(bench: Bench, folder: Path) -> Comparison:
    """Live what is missing of a bench in `folder`, on all cores, and return what was found."""
    plan = store_plan(bench.plan, folder)
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        live = partial(_live, plan, folder, bench)
        for name in pool.map(live, range(len(plan.replicates))):
            print(f"{name} is done", flush=True)
    return read_comparison(folder, plan)


def _live(plan: Plan, folder: Path, bench: Bench, at: int) -> str:
    """Conduct one replicate in this process, on one core."""
    mine = plan.model_copy(update={"replicates": (plan.replicates[at],)})
    asyncio.run(_conduct(mine, folder, _worker if bench.scripted else _pocket(memo=bench.memo)))
    return plan.replicates[at].name


async def _conduct(plan: Plan, folder: Path, policy: Callable[[Config], Policy]) -> None:
    made: dict[int, Policy] = {}

    def parts(config: Config) -> Parts:
        deployment = int(config.environment.options["deployment"])
        return Parts(policy=made.setdefault(deployment, policy(config)))

    try:
        await conduct(plan, folder, parts, lambda replicate, arm: Observers())
    finally:
        for each in made.values():
            await each.aclose()


def _worker(config: Config) -> Policy:
    return make_worker(Office(OfficeConfig.model_validate(config.environment.options)))


def _pocket(*, memo: bool) -> Callable[[Config], Policy]:
    from benchmarks.memo import MemoPolicy
    from policies.local import LocalPolicy

    policy = (MemoPolicy if memo else LocalPolicy).pocket(threads=1)
    return lambda config: policy


def main(folder: Path) -> None:
    """Measure into `folder`, write the report with its pictures there, and print it."""
    found = measure(Bench(), folder)
    save(found, folder)
    (folder / REPORT).write_text(text := markdown(found), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
