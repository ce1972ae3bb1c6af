"""The arms of the SAGE miniature: one cell is one arm trained with one seed, then tried on offices nobody trained on.

A cell is resumable at any time: its training stands in `build/sage/<cell>`, its figures in
`benchmarks/results/cells/rl_1/<cell>.json`, from which the claim makes its table. What is compared are weights, and the
functions that an agent writes: the text that is shown is the same in all arms (`sage_trials.given`).
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from benchmarks.sage_trials import MAX_STEPS, MAX_TOKENS, acting, given, office, tried
from benchmarks.table import RESULTS, ROOT
from evolve.seeds import seed_for
from evolve.training.chain_tasks import chains
from evolve.training.loop import Learning, Plan, World, learn
from evolve.training.rollouts import ChainSpec, Counting, Sampling, roll
from evolve.training.supervised import fit, success_examples
from evolve.training.training_data import Offer
from policies.cache import CachedPolicy
from policies.local import LocalPolicy
from policies.local.local_policy import POCKET
from policies.recordings import Recordings
from policies.rl.slots import make
from policies.rl.trainer import OptimiserOptions, Trainer

CELLS, BUILD = RESULTS / "cells" / "rl_1", ROOT / "build" / "sage"
TRAIN, TEST = range(600, 640), range(20, 30)
TEMPERATURE = 1.3
"""Of the rollouts: at 1 the members of nearly every group end alike, since a token of pocket's has 0.01 nats."""
AT_ONCE = 16
"""Chains that are demonstrated at a time; each holds a session of the sandbox for each of its rollouts."""


@dataclass(frozen=True)
class Arm:
    """How the weights of a cell are made, and how they are tried."""

    start: str = ""
    """Arm that its training begins from; empty = the shipped weights."""
    training: str = ""
    """`sft`, `grpo`, `sage`, or `one library`: SAGE where all of a group go on with the same functions; empty = the
    weights of `start` as they are."""
    counting: Counting = "strict"
    library: bool = True
    """Functions that were written in earlier tasks are at hand when it is tried."""


ARMS: dict[str, Arm] = {
    "base": Arm(),
    "sft": Arm(training="sft"),
    "grpo": Arm(training="grpo", library=False),
    "sft+grpo": Arm(start="sft", training="grpo", library=False),
    "sage": Arm(start="sft", training="sage"),
    "sage, skills unpaid": Arm(start="sft", training="sage", counting="none"),
    "sage, library off": Arm(start="sage", library=False),
    "sage, one library": Arm(start="sft", training="one library"),
}


@dataclass(frozen=True)
class Size:
    """How much is done in a cell."""

    iterations: int = 12
    chains: int = 8
    rollouts: int = 8
    demonstrations: int = 64
    """Chains that `sft` learns from, each rolled out four times."""
    test: tuple[int, ...] = tuple(TEST)
    scenarios: int | None = None
    """Scenarios of an office that are tried; none = all 34."""
    rate: float = 5e-4


def measured(arm: str, seed: int, size: Size, folder: Path = BUILD, cells: Path = CELLS) -> dict[str, list[float]]:
    """Return the figures of a cell: for each test office TGC and SGC in %, steps and tokens of a task. Trains it first.

    Each comes twice: `sgc` within a scenario, `office_sgc` after some work in the office. What was measured before with
    the same settings is read, not measured again.
    """
    kept = cells / f"{name_of(arm, seed, size)}.json"
    if not kept.exists():
        began = time.perf_counter()
        adapter = trained(arm, seed, size, folder)
        training = time.perf_counter() - began
        found = asyncio.run(tried(adapter, ARMS[arm].library, [office(at) for at in size.test], size.scenarios))
        found |= {"training_minutes": [training / 60], "minutes": [(time.perf_counter() - began) / 60]}
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(found, indent=1) + "\n")
    return json.loads(kept.read_text())


def name_of(arm: str, seed: int, size: Size) -> str:
    """Return the name of a cell, which changes with everything that its figures depend on but the source itself."""
    lineage = [ARMS[arm]]
    while lineage[-1].start:
        lineage.append(ARMS[lineage[-1].start])
    settings = repr((lineage, size, TRAIN, MAX_STEPS, MAX_TOKENS, TEMPERATURE))
    return f"{arm.replace(', ', '-').replace(' ', '_')}-{seed}-{sha256(settings.encode()).hexdigest()[:8]}"


def trained(arm: str, seed: int, size: Size, folder: Path) -> Path | None:
    """Return the adapter of an arm, made where it is missing; None for the shipped weights."""
    how = ARMS[arm]
    start = trained(how.start, seed, size, folder) if how.start else None
    if not how.training:
        return start
    own = folder / name_of(arm, seed, size)
    if not (own / "adapter").exists():
        settings = OptimiserOptions(learning_rate=size.rate, seed=seed, temperature=TEMPERATURE)
        trainer = Trainer(POCKET, make("losses", "sft" if how.training == "sft" else "ppo"), settings, start=start)
        if how.training == "sft":
            asyncio.run(_demonstrated(trainer, seed, size, own))
        else:
            asyncio.run(_learned(trainer, how, seed, size, own))
        trainer.save(own / "adapter")
    return own / "adapter"


async def _demonstrated(trainer: Trainer, seed: int, size: Size, folder: Path) -> None:
    """Learn from the shipped weights' own successes in chains, skills and all."""
    folder.mkdir(parents=True, exist_ok=True)
    policy, replies = LocalPolicy.pocket(threads=1), Recordings(folder / "replies.jsonl")
    settings = [
        ChainSpec(each, world, given(world))
        for world in map(office, TRAIN)
        for each in chains(world.tasks("train"), 2, seed_for(seed, world.config.deployment))[:2]
    ][: size.demonstrations]
    cached = CachedPolicy(policy, replies, scope=str(seed))
    try:
        sampling = Sampling(rollouts=4, seed=seed)
        batches = [settings[at : at + AT_ONCE] for at in range(0, len(settings), AT_ONCE)]
        rollouts = [r for batch in batches for r in await roll(batch, cached, acting(True, TEMPERATURE), sampling, 0)]
    finally:
        await policy.aclose()
    done = [t for r in rollouts for link in r.links if (t := link.trajectory).success]
    learnt = success_examples(Offer(successes=tuple(done)), replies.get_reply)
    fit(trainer, learnt, epochs=2, batch=32, folder=folder)


async def _learned(trainer: Trainer, how: Arm, seed: int, size: Size, folder: Path) -> None:
    """Learn from rollouts, in groups: chains of two with a library of their own, or single tasks without."""
    skills = how.training != "grpo"
    sampling = Sampling(
        rollouts=size.rollouts,
        counting=how.counting,
        skills=skills,
        libraries="one" if how.training == "one library" else "own",
        seed=seed,
    )
    plan = Plan(
        iterations=size.iterations,
        chains=size.chains if skills else 2 * size.chains,
        length=2 if skills else 1,
        sampling=sampling,
    )
    policy = LocalPolicy.pocket(threads=1)
    parts = Learning(
        policy,
        trainer,
        make("advantages", "sage" if skills else "grpo"),
        make("filters", "zero_variance"),
        acting(skills, TEMPERATURE),
    )
    try:
        worlds = [World(each, given(each)) for each in map(office, TRAIN)]
        await learn(worlds, parts, plan, folder, lambda figures: _told(folder, figures))
    finally:
        await policy.aclose()


def _told(folder: Path, figures: dict[str, float]) -> None:
    names = ("iteration", "success", "reward", "steps", "skill_use", "kept", "loss")
    print(folder.name, *(f"{name} {figures[name]:.3g}" for name in names if name in figures), flush=True)
