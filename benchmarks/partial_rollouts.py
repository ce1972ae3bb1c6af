"""Gain of partial rollouts (`evolve.training.partial`) on one core: python -m benchmarks.partial_rollouts FOLDER

The pocket model learns single tasks of offices 930 to 935 in groups (GRPO), with the rules shown that a grader alone
reveals; each arm trains on as many groups. Told as JSON lines: seconds a group by the wall and by the processor, the
share of tokens that older weights sampled, and the success afterwards in test_normal of offices 20 to 23, as hot as the
rollouts (tried greedily the shipped weights are as good as any that were trained: docs/LOG.md).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from statistics import mean

from benchmarks.sage_trials import acting, given, office
from evolve.config.training import PartialRollouts
from evolve.training.chain_tasks import chains
from evolve.training.ledger import METRICS, lines
from evolve.training.loop import Learning, Plan, World, learn
from evolve.training.rollouts import ChainSpec, Sampling, roll
from policies.local import LocalPolicy
from policies.local.local_policy import POCKET
from policies.rl.optimising import OptimiserOptions
from policies.rl.slots import make
from policies.rl.trainer import Trainer

TRAIN, TEST = range(930, 936), range(20, 24)
ARMS = {
    "1.0": (PartialRollouts(), ""),
    "1.25": (PartialRollouts(oversampling=1.25), ""),
    "1.5": (PartialRollouts(oversampling=1.5), ""),
    "1.5 tis": (PartialRollouts(oversampling=1.5), "tis"),
    "1.5 masked": (PartialRollouts(oversampling=1.5, off_policy="masked"), ""),
}
TEMPERATURE = 1.3
"""Of the rollouts: at 1 the members of nearly every group end alike, since a token of pocket's has 0.01 nats."""
ITERATIONS, CHAINS, ROLLOUTS, SCENARIOS = 10, 8, 8, 24


async def trained(folder: Path, arm: str, seed: int) -> dict[str, float | str]:
    """Train one arm with one seed, try it, and return its figures."""
    plan = Plan(
        iterations=ITERATIONS,
        chains=CHAINS,
        length=1,
        sampling=Sampling(rollouts=ROLLOUTS, skills=False, seed=seed),
        partial=ARMS[arm][0],
    )
    correction = make("corrections", ARMS[arm][1]) if ARMS[arm][1] else None
    settings = OptimiserOptions(rank=8, learning_rate=2e-4, temperature=TEMPERATURE, seed=seed)
    trainer = Trainer(POCKET, make("losses", "ppo"), settings, correction=correction)
    policy = LocalPolicy.pocket(threads=1)
    parts = Learning(
        policy, trainer, make("advantages", "grpo"), make("filters", "zero_variance"), acting(False, TEMPERATURE)
    )
    wall, processor = time.perf_counter(), time.process_time()
    try:
        await learn([World(each, given(each)) for each in map(office, TRAIN)], parts, plan, folder)
    finally:
        await policy.aclose()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    trainer.save(folder / "adapter")
    told = lines(folder / METRICS)
    groups = ITERATIONS * CHAINS
    return {
        "arm": arm,
        "seed": float(seed),
        "wall_s_a_group": wall / groups,
        "processor_s_a_group": processor / groups,
        "training_s_a_group": sum(each.get("seconds", 0.0) for each in told) / groups,
        "off_policy": mean(each.get("off_policy", 0.0) for each in told),
        "cut_turns": sum(each.get("cut_turns", 0.0) for each in told),
        "updates": float(trainer.updates),
        "success": await success(folder / "adapter"),
    }


async def success(adapter: Path | None) -> float:
    """Return the share of test tasks that weights solve, each tried four times at the temperature of the rollouts."""
    policy = LocalPolicy(POCKET, adapter, threads=1, name="pocket", profile="compact")
    how, sampling = acting(False, TEMPERATURE), Sampling(rollouts=4, skills=False, seed=99)
    done: list[bool] = []
    try:
        for world in map(office, TEST):
            settings = [ChainSpec(each, world, given(world)) for each in chains(world.tasks("test_normal"), 1, seed=0)]
            found = await roll(settings[:SCENARIOS], policy, how, sampling, 0)
            done += [link.trajectory.success for each in found for link in each.links]
    finally:
        await policy.aclose()
    return mean(done)


if __name__ == "__main__":
    into = Path(sys.argv[1])
    for number in range(2):
        for name in ARMS:
            print(json.dumps(asyncio.run(trained(into / f"{name}-{number}", name, number))), flush=True)
