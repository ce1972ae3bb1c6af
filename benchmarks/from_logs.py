"""Offices whose journal alone trains their policy: what parent and children solve, with the playbook and without.

One office is one cell: its figures stand in `benchmarks/results/cells/rl_7/<office>.json`, for claims `rl_7` and
`rl_2`.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import mean

from benchmarks.claim import git
from benchmarks.office_arms import SPLITS, folder, office, write_rules
from benchmarks.table import RESULTS
from evolve.config.model import (
    Config,
    EnvironmentSection,
    GateSection,
    MemorySection,
    PlaybookSection,
    PolicySection,
    RunSection,
)
from evolve.config.training import RECIPES, TrainSection
from evolve.episode.arms import MAIN, NO_MEMORY
from evolve.gates.stack import DEFAULT
from evolve.generations import workspace_registry as generations
from evolve.loop.session import Parts, run
from evolve.training.promotion_gate import judged
from evolve.training.training_session import train_from_logs
from memory.records import Frozen
from policies.generations.swap import swap

CELLS = RESULTS / "cells" / "rl_7"
OFFICES, QUICK, UNSEEN = (*range(500, 505), *range(515, 520)), range(500, 501), 490
"""Offices of training, and the first of those that nobody trained on."""
LOOKS = 2
"""The first five offices were too few to tell; five more make a second look, and intervals wider: 97.5 %."""
TASKS, FEW = 300, 60
RATE = 2e-4
"""Of sft: the model is small."""
ARMS = ("same office, playbook off", "same office, playbook on", "unseen office, playbook off", "unseen, rules given")


class Found(Frozen):
    """What came of one office."""

    commit: str
    solved: dict[str, dict[str, float]]
    """Generation (parent, sft, groups) -> arm -> % of tasks solved."""
    accepted: bool
    reason: str
    playbook_tokens: float
    seconds: float
    """Of the training on successes."""

    def gain(self, arm: str, child: str = "sft") -> float:
        """Return by how many points a generation is better than the parent."""
        return self.solved[child][arm] - self.solved["parent"][arm]


def config_of(root: Path, deployment: int, tasks: int, **train: object) -> Config:
    """Return the configuration of an office's workspace."""
    return Config(
        root=root,
        run=RunSection(concurrency=64),
        playbook=PlaybookSection(),
        policy=PolicySection(name="pocket", max_tokens=120),
        environment=EnvironmentSection.model_validate(
            {"name": "office", "max_steps": 16, "deployment": deployment, "train_tasks": tasks}
        ),
        memory=MemorySection(index="exact", recall_k=40),
        gate=GateSection(names=(DEFAULT,)),
        train=TrainSection.model_validate(RECIPES["sft"] | train),
    )


def measured(quick: bool, deployment: int) -> Found:
    """Return the figures of an office: read, where they were measured before, else made and kept."""
    kept = CELLS / f"{deployment}.json"
    if not quick and kept.exists():
        return Found.model_validate_json(kept.read_text())
    found = measure(FEW if quick else TASKS, deployment)
    if not quick:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(found.model_dump_json(indent=1) + "\n")
    return found


def measure(tasks: int, deployment: int) -> Found:
    """Work, train, gate, promote and measure in one office, in this process on one core."""
    with folder() as root:
        config = config_of(root / "own", deployment, tasks, learning_rate=RATE)
        other = with_rules(config_of(root / "other", UNSEEN + deployment % 10, tasks))
        run(config)
        solved = {"parent": evaluated(config, other)}
        began = time.perf_counter()
        child = train_from_logs(config, "sft").generation
        seconds = time.perf_counter() - began
        trial = judged(config, child)
        promote(config, child)
        solved["sft"] = evaluated(config, other)
        grouped = config_of(root / "own", deployment, tasks, **RECIPES["grpo"], sft={"passes": 1})
        promote(grouped, train_from_logs(grouped, "groups", groups=True).generation)
        solved["groups"] = evaluated(config, other)
        return Found(
            commit=git("rev-parse", "HEAD"),
            solved=solved,
            accepted=trial.accepted,
            reason=trial.reason,
            playbook_tokens=trial.playbook_tokens,
            seconds=seconds,
        )


def with_rules(config: Config) -> Config:
    """Give a workspace the rules of its office, as an operator would write them."""
    write_rules(config, office(dict(config.environment.options)["deployment"]).oracle, len)
    return config


def promote(config: Config, version: str) -> None:
    """Let a generation answer, whatever the gate said of it: its verdict is a figure of its own here."""
    with generations.open_registry(config.policy, config.workspace) as registry:
        asyncio.run(generations.inspected(config.policy, registry, swap, version))


def evaluated(own: Config, other: Config) -> dict[str, float]:
    """Return what the live generation of a workspace solves in each arm."""
    policy = generations.in_process(own.policy, own.workspace)
    solved: dict[str, float] = {}
    arms = ((own, False), (own, True), (other, False), (other, True))
    try:
        for arm, (config, playbook) in zip(ARMS, arms, strict=True):
            section = RunSection(mode="frozen", eval_splits=SPLITS, concurrency=64)
            update = {"run": section, "playbook": PlaybookSection(enabled=playbook)}
            reports = run(config.model_copy(update=update), parts=Parts(policy=policy)).evaluations
            wanted = MAIN if playbook else NO_MEMORY
            marks = [mark is True for each in reports if each.arm == wanted for mark in each.passed.values()]
            solved[arm] = 100 * mean(marks)
    finally:
        asyncio.run(policy.aclose())
    return solved
