"""Rollouts, then an update, then rollouts under the new weights: online training in one process, and resumable.

The policy that answers takes each update at once, so that every batch is sampled by the weights it trains. Killed at
any moment, a training goes on from its last checkpoint: the iteration it was in is rolled out again, from the replies
that were kept and then from the same seeds, and `history.jsonl` names each episode that the surviving weights saw once.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from evolve.protocols import Environment
from evolve.rollout import Acting
from evolve.seeds import seed_for
from evolve.training.batches import Episode, Prepared, prepared
from evolve.training.chains import By, chains
from evolve.training.rollouts import Recall, Rollout, Sampling, Setting, roll, unknowing
from memory.records import Frozen
from policies.cache import CachedPolicy
from policies.local import LocalPolicy
from policies.recordings import Recordings
from policies.rl.protocols import AdvantageEstimator, GroupFilter
from policies.rl.trainer import Trainer

CHECKPOINT, HISTORY, METRICS = "checkpoint.pt", "history.jsonl", "metrics.jsonl"


class Plan(Frozen):
    """What a training does besides optimising."""

    iterations: int = 40
    chains: int = 8
    """Chains of an iteration, each rolled out `sampling.rollouts` times."""
    length: int = 2
    """Tasks of a chain."""
    by: By = "scenario"
    sampling: Sampling = Sampling()


@dataclass(frozen=True)
class World:
    """Where chains are drawn from: the train tasks of an environment, and the knowledge its agent is shown."""

    environment: Environment
    recall: Recall = unknowing
    split: str = "train"


@dataclass(frozen=True)
class Learning:
    """The parts of a training: who acts, what makes advantages, what is trained on, and what trains."""

    policy: LocalPolicy
    trainer: Trainer
    advantages: AdvantageEstimator
    filter: GroupFilter
    acting: Acting


async def learn(
    worlds: Sequence[World],
    learning: Learning,
    plan: Plan,
    folder: Path,
    report: Callable[[dict[str, float]], None] = lambda _: None,
) -> None:
    """Train to the end of the plan, or go on where `folder` stands; `report` is told the figures of each iteration."""
    done = _begin(learning, plan, folder)
    for iteration in range(done, plan.iterations):
        figures = await _iterate(worlds, learning, plan, folder, iteration)
        report(figures)


def _begin(learning: Learning, plan: Plan, folder: Path) -> int:
    """Return how many iterations are done, with the weights as they were then; drop what was written after."""
    folder.mkdir(parents=True, exist_ok=True)
    done = 0
    if (folder / CHECKPOINT).exists():
        done = int(learning.trainer.resume(folder / CHECKPOINT)["iterations"])
    learning.policy.adopt(learning.trainer.merged())
    for name in (HISTORY, METRICS):
        _keep(folder / name, done)
    for old in set(folder.glob("replies-*")) - {_replies(folder, done)}:
        old.unlink()
    return done


def _replies(folder: Path, iteration: int) -> Path:
    return folder / f"replies-{iteration}.jsonl"


async def _iterate(
    worlds: Sequence[World], learning: Learning, plan: Plan, folder: Path, iteration: int
) -> dict[str, float]:
    kept = _replies(folder, iteration)
    _whole_lines(kept)
    replies = Recordings(kept)
    policy = CachedPolicy(learning.policy, replies, scope=f"{plan.sampling.seed}/{iteration}")
    rollouts = await roll(draw(worlds, plan, iteration), policy, learning.acting, plan.sampling, iteration)
    batch = prepared(_episodes(rollouts), replies.get_reply)
    figures = {"iteration": float(iteration)} | rollout_figures(rollouts) | _counts(batch)
    chosen = learning.filter.keep(batch.episodes)
    figures["kept"] = float(chosen.sum())
    rows, advantages = batch.advantages(learning.advantages(batch.episodes), chosen)
    if rows:
        figures |= learning.trainer.step(rows, advantages)
        learning.policy.adopt(learning.trainer.merged())
    _append(folder / HISTORY, {"iteration": iteration, "episodes": sorted({row.trajectory_id for row in rows})})
    _append(folder / METRICS, figures)
    learning.trainer.checkpoint(folder / CHECKPOINT, {"iterations": iteration + 1})
    kept.unlink(missing_ok=True)
    return figures


def draw(worlds: Sequence[World], plan: Plan, iteration: int) -> list[Setting]:
    """Return the chains of an iteration, drawn from those of all worlds alike; all of them where there are fewer."""
    seed = seed_for(plan.sampling.seed, "chains", iteration)
    every = [
        Setting(each, world.environment, world.recall)
        for at, world in enumerate(worlds)
        for each in chains(world.environment.tasks(world.split), plan.length, seed_for(seed, at), plan.by)
    ]
    return random.Random(seed).sample(every, min(plan.chains, len(every)))


def rollout_figures(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Return what came of some rollouts: rates of success and use, length, and how often use was claimed, not real."""
    links = [link for rollout in rollouts for link in rollout.links]
    later = [flags for rollout in rollouts for flags in zip(rollout.used[1:], rollout.claimed[1:], strict=True)]
    return {
        "success": mean(link.trajectory.success for link in links),
        "reward": mean(sum(parts.values()) for rollout in rollouts for parts in rollout.rewards),
        "steps": mean(len(link.trajectory.steps) for link in links),
        "written": mean(link.trajectory.usage.completion_tokens for link in links),
        "valid": mean(step.error is None for link in links for step in link.trajectory.steps),
        "skill_use": mean(used for used, _ in later) if later else 0.0,
        "skill_claims": mean(claimed and not used for used, claimed in later) if later else 0.0,
    }


def _episodes(rollouts: Sequence[Rollout]) -> list[Episode]:
    return [
        Episode(
            trajectory=link.trajectory,
            rewards=rewards,
            group=f"{rollout.chain_id}/{position}",
            chain_id=rollout.chain_id,
            position=position,
            rollout=rollout.member,
        )
        for rollout in rollouts
        for position, (link, rewards) in enumerate(zip(rollout.links, rollout.rewards, strict=True))
    ]


def _counts(batch: Prepared) -> dict[str, float]:
    return {name: float(count) for name, count in batch.counts.items()}


def _append(path: Path, line: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _keep(path: Path, done: int) -> None:
    """Drop the lines of iterations that the checkpoint does not know, and a line that was not finished."""
    if path.exists():
        _whole_lines(path)
        lines = [line for line in path.read_text().splitlines(keepends=True) if json.loads(line)["iteration"] < done]
        new = path.with_name(f".{path.name}.new")
        new.write_text("".join(lines))
        new.replace(path)


def _whole_lines(path: Path) -> None:
    """Cut off what was written of a line when the process ended."""
    if path.exists():
        data = path.read_bytes()
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)
