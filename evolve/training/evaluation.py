"""Evaluation during a training by rollouts: how its policy does held-out tasks, and which weights did most of them.

Every `train.evaluate_every` iterations, and after the last, the policy does the tasks of `run.dev_split` once each,
greedily, with the knowledge that the training began with and without skills of others. Nothing is learned from them.
The weights that solved most are kept beside the checkpoint, the earlier ones where several did; they are published.

Which is best is read from `metrics.jsonl`, so that a training that was killed keeps the same. The best of many looks at
one set of tasks looks better than it is: the gate of generations compares it with what is live before it is promoted.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from evolve.config.model import Config
from evolve.environments.task_files import load_tasks
from evolve.episode.instrumentation import WatchedPolicy
from evolve.episode.rollout import RolloutConfig
from evolve.gates.splits import select_tasks
from evolve.protocols import Environment
from evolve.training import ledger
from evolve.training.chain_tasks import Chain
from evolve.training.ledger import CHECKPOINT, HISTORY, METRICS
from evolve.training.rollouts import ChainSpec, Recall, Rollout, Sampling, roll, unknowing
from memory.records import Task
from policies.protocols import Policy
from policies.rl.trainer import Trainer

BEST = "best.pt"
"""The weights that solved most held-out tasks, as a checkpoint."""
FIGURE = "eval_success"
SAME = -1
"""In place of an iteration: every evaluation takes the same seeds."""


@dataclass(frozen=True)
class Evaluation:
    """Held-out tasks, and after how many iterations they are done."""

    tasks: Sequence[Task]
    environment: Environment
    recall: Recall
    every: int

    def due(self, iteration: int, iterations: int) -> bool:
        """Tell whether the weights are evaluated after an iteration of so many, counted from 0."""
        return (iteration + 1) % self.every == 0 or iteration == iterations - 1

    async def rollouts(self, policy: Policy, acting: RolloutConfig, seed: int) -> tuple[Rollout, ...]:
        """Return each task done once, greedily. Raises what `roll` raises."""
        each = alone(self.tasks, self.environment, self.recall, rollouts=1)
        sampling = Sampling(seed=seed, skills=False)
        return await roll(each, WatchedPolicy(policy), replace(acting, temperature=0.0), sampling, SAME)


def alone(
    tasks: Sequence[Task], environment: Environment, recall: Recall = unknowing, *, rollouts: int
) -> list[ChainSpec]:
    """Return each task as a chain of its own, done so many times."""
    return [ChainSpec(Chain(id=task.id, tasks=(task,)), environment, recall, rollouts=rollouts) for task in tasks]


def evaluation_of(config: Config, environment: Environment, recall: Recall) -> Evaluation | None:
    """Return how a training is evaluated, None where `[train]` does not ask for it.

    Raises `ConfigError` where `run.dev_split` has no tasks, and `BadInput` where it shares a scenario with others.
    """
    if not config.train.evaluate_every:
        return None
    tasks = select_tasks(config, environment, load_tasks(config, environment, config.run.split))
    return Evaluation(tasks, environment, recall, config.train.evaluate_every)


def success(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Return the share of tasks solved; one that was not graded counts as failed."""
    return {FIGURE: mean(float(link.trajectory.success) for each in rollouts for link in each.links)}


class Best(NamedTuple):
    """The evaluation in which most tasks were solved, the earlier one of several."""

    iteration: int
    success: float


def best(folder: Path) -> Best | None:
    """Return the best evaluation of a training; None where there was none.

    The iteration that a guard stopped at does not count: of its weights there is no checkpoint.
    """
    told = _with_checkpoint(folder)
    found = [Best(at, figures[FIGURE]) for at, figures in enumerate(told) if FIGURE in figures]
    return max(found, key=lambda each: each.success, default=None)


def keep_best(folder: Path) -> None:
    """Keep the checkpoint where it is the best so far; asked again, after a kill, it does the same."""
    found = best(folder)
    if found and found.iteration == len(_with_checkpoint(folder)) - 1 and (folder / CHECKPOINT).exists():
        new = folder / f"{BEST}.new"
        shutil.copyfile(folder / CHECKPOINT, new)
        new.replace(folder / BEST)


def _with_checkpoint(folder: Path) -> list[dict[str, float]]:
    told = ledger.lines(folder / METRICS)
    return told[:-1] if ledger.stopped(folder) else told


def take_best(trainer: Trainer, folder: Path) -> bool:
    """Go back to the weights that solved most; tell whether there are any."""
    if not (folder / BEST).exists():
        return False
    ledger.keep(folder / HISTORY, int(trainer.resume(folder / BEST)["iterations"]))
    return True
