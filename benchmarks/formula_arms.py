"""Arms of a training by rewards of a real model on the benchmark Formula, tried on held-out questions.

`grpo` is compared with the weights that it began from and, as control, with as many updates whose rewards are dealt out
by lot within each group; `sage` learns chains of two like questions with functions of its own. All are tried alike,
without any memory: each question once greedily and several times sampled. Figures are kept as JSON, question by
question, and after each arm, so that what was measured stays where a lent device is gone before the end.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.real.files import data
from benchmarks.sage_arms import Shuffled, tell
from evolve.config.file import changed
from evolve.config.model import Config
from evolve.config.training import recipe_settings
from evolve.loop.assembly import make_environment
from evolve.protocols import Environment
from evolve.training.evaluation import SAME, alone
from evolve.training.loop import Learning, World, learn
from evolve.training.rollout_policy import RolloutPolicy, rollout_policy
from evolve.training.rollouts import Sampling, roll
from evolve.training.workspace_rollouts import acting_of, methods_of, plan_of
from policies.rl.optimising import OptimiserOptions
from policies.rl.trainer import Trainer

HELD_OUT = "test_normal"
GREEDY, SAMPLED = "greedy", "sampled"
START, GRPO, SHUFFLED, SAGE = "start", "grpo", "grpo, rewards shuffled", "sage"
FORMULA = "formula.json"
"""Where the figures of all arms are kept, in the folder of a device's results; claim train_1 reads it."""
Figures = dict[str, Any]


@dataclass(frozen=True)
class FormulaSize:
    """How much is done."""

    chains: int = 32
    rollouts: int = 8
    questions: int = 200
    samples: int = 3
    rate: float = 2e-4
    minibatches: int = 2
    max_tokens: int = 256


class TimeIsUp(Exception):
    """The training was given as long as it gets."""


def configured(model: Path, folder: Path, arm: str, size: FormulaSize, iterations: int) -> Config:
    """Return the configuration of an arm."""
    recipe = SAGE if arm == SAGE else GRPO
    own = {
        "root": str(folder),
        "environment": {
            "name": "formula",
            "train": data("formula_train_subset_500.jsonl"),
            "validation": data("formula_val_subset_300.jsonl"),
        },
        "policy": {"name": "local", "model": str(model), "max_tokens": size.max_tokens},
        "memory": {"index": "exact"},
    }
    chains = size.chains // 2 if arm == SAGE else size.chains
    settings = recipe_settings(recipe) | {
        "train.iterations": iterations,
        "train.chains": chains,
        "train.rollouts": size.rollouts,
        "train.by": "similarity" if arm == SAGE else "scenario",
    }
    return changed(Config.model_validate(own), settings)


async def tried(config: Config, world: Environment, policy: RolloutPolicy, size: FormulaSize) -> Figures:
    """Return what the weights solve: for each question 0 or 1 greedily, and the share of samples."""
    acting = replace(acting_of(config, world, policy.profile), skills=False, require_code=False)
    questions = list(world.tasks(HELD_OUT))[: size.questions]

    async def solved(temperature: float, samples: int) -> list[float]:
        each = alone(questions, world, rollouts=samples)
        how = Sampling(seed=0, skills=False)
        done = await roll(each, policy, replace(acting, temperature=temperature), how, SAME)
        every = [float(each.links[0].trajectory.success) for each in done]
        return [mean(every[at : at + samples]) for at in range(0, len(every), samples)]

    return {GREEDY: await solved(0.0, 1), SAMPLED: await solved(1.0, size.samples)}


def trained(model: Path, folder: Path, arm: str, size: FormulaSize, iterations: int, seconds: float) -> Figures:
    """Train an arm for so many batches, or as many as there is time for, and try it; `START`: try the weights."""
    config = configured(model, folder, arm, size, iterations)
    methods = methods_of(config)
    world = make_environment(config)
    settings = OptimiserOptions(learning_rate=size.rate, minibatches=size.minibatches)
    batches: list[dict[str, float]] = []
    ends = time.monotonic() + seconds

    def report(figures: dict[str, float]) -> None:
        batches.append(figures)
        tell(arm, figures)
        if time.monotonic() > ends:
            raise TimeIsUp

    async def done(trainer: Trainer) -> Figures:
        policy = rollout_policy(config, folder, trainer)
        advantages = Shuffled(methods.advantages, 0) if arm == SHUFFLED else methods.advantages
        parts = Learning(policy, trainer, advantages, methods.filter, acting_of(config, world, policy.profile))
        began = time.monotonic()
        try:
            if arm != START:
                await learn([World(world)], parts, plan_of(config), folder / arm, report)
        except TimeIsUp:
            pass
        try:
            training = time.monotonic() - began
            return {"training seconds": training} | await tried(config, world, policy, size)
        finally:
            await policy.aclose()

    with Trainer(model, config.train.member("loss"), settings) as trainer:
        found = asyncio.run(done(trainer))
        return found | {"batches": batches, "updates": trainer.updates}


def measure(model: Path, folder: Path, arms: Mapping[str, float], size: FormulaSize, told: Path) -> Figures:
    """Train and try arms in order, each so many seconds at most, and keep their figures; those that are kept stay.

    The control makes no more batches than GRPO made.
    """
    found: Figures = json.loads(told.read_text()) if told.exists() else {}
    for arm, seconds in arms.items():
        if arm not in found:
            batches = len(found[GRPO]["batches"]) if arm == SHUFFLED else 1000
            found[arm] = trained(model, folder, arm, size, batches, seconds)
            told.write_text(json.dumps(found, indent=1) + "\n")
    return found
