"""The arms of the SAGE miniature: one cell is one arm trained with one seed, then tried on offices nobody trained on.

A cell is resumable at any time: its training stands in `build/sage/<arm>-<seed>`, its figures in
`benchmarks/results/cells/rl_1/<arm>-<seed>.json`, from which the claim makes its table. Nothing learned as text is
shown in any arm: what is compared are weights, and the functions that an agent writes in a chain of sibling tasks.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from benchmarks.table import RESULTS, ROOT
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.parallel import all_of
from evolve.rollout import Acting, Attempt
from evolve.seeds import id_for, seed_for
from evolve.skilled.chains import Link, chain
from evolve.training.chains import Chain, chains
from evolve.training.logs import Offer
from evolve.training.loop import Learning, Plan, World, learn
from evolve.training.rollouts import Counting, Sampling, Setting, roll
from evolve.training.supervised import fit, success_examples
from policies.cache import CachedPolicy
from policies.local import LocalPolicy
from policies.local.policy import POCKET
from policies.recordings import Recordings
from policies.rl.slots import make
from policies.rl.trainer import Optimising, Trainer
from skills.library import Library
from skills.retrieval import Choosing

CELLS, BUILD = RESULTS / "cells" / "rl_1", ROOT / "build" / "sage"
TRAIN, TEST = range(600, 640), range(20, 30)
MAX_STEPS, MAX_TOKENS = 16, 120
AT_ONCE = 16
"""Chains that are demonstrated at a time; each holds a session of the sandbox for each of its rollouts."""


@dataclass(frozen=True)
class Arm:
    """How the weights of a cell are made, and how they are tried."""

    start: str = ""
    """Arm that its training begins from; empty = the shipped weights."""
    training: str = ""
    """`sft`, `grpo` or `sage`; empty = the weights of `start` as they are."""
    counting: Counting = "strict"
    library: bool = True
    """Functions that were written in a chain are at hand in its later tasks when it is tried."""


ARMS: dict[str, Arm] = {
    "base": Arm(),
    "sft": Arm(training="sft"),
    "grpo": Arm(training="grpo", library=False),
    "sft+grpo": Arm(start="sft", training="grpo", library=False),
    "sage": Arm(start="sft", training="sage"),
    "sage, skills unpaid": Arm(start="sft", training="sage", counting="none"),
    "sage, library off": Arm(start="sage", library=False),
}


@dataclass(frozen=True)
class Size:
    """How much is done in a cell."""

    iterations: int = 24
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

    What was measured before is read, not measured again.
    """
    kept = cells / f"{arm}-{seed}.json"
    if not kept.exists():
        began = time.perf_counter()
        adapter = trained(arm, seed, size, folder)
        seconds = time.perf_counter() - began
        found = asyncio.run(tried(adapter, ARMS[arm].library, size))
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(found | {"training_seconds": [round(seconds)]}, indent=1) + "\n")
    return json.loads(kept.read_text())


def trained(arm: str, seed: int, size: Size, folder: Path) -> Path | None:
    """Return the adapter of an arm, made where it is missing; None for the shipped weights."""
    how = ARMS[arm]
    start = trained(how.start, seed, size, folder) if how.start else None
    if not how.training:
        return start
    own = folder / f"{arm}-{seed}"
    if not (own / "adapter").exists():
        settings = Optimising(learning_rate=size.rate, seed=seed)
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
        Setting(each, office)
        for office in map(_office, TRAIN)
        for each in chains(office.tasks("train"), 2, seed_for(seed, office.config.deployment))[:2]
    ][: size.demonstrations]
    cached = CachedPolicy(policy, replies, scope=str(seed))
    try:
        sampling = Sampling(rollouts=4, seed=seed)
        batches = [settings[at : at + AT_ONCE] for at in range(0, len(settings), AT_ONCE)]
        rollouts = [r for batch in batches for r in await roll(batch, cached, acting(True, 1.0), sampling, 0)]
    finally:
        await policy.aclose()
    done = [t for r in rollouts for link in r.links if (t := link.trajectory).success]
    given = success_examples(Offer(successes=tuple(done)), replies.get_reply)
    fit(trainer, given, epochs=2, batch=32, folder=folder)


async def _learned(trainer: Trainer, how: Arm, seed: int, size: Size, folder: Path) -> None:
    """Learn from rollouts, in groups: chains of two with a library of their own, or single tasks without."""
    skills = how.training == "sage"
    sampling = Sampling(rollouts=size.rollouts, counting=how.counting, skills=skills, seed=seed)
    plan = Plan(
        iterations=size.iterations,
        chains=size.chains if skills else 2 * size.chains,
        length=2 if skills else 1,
        sampling=sampling,
    )
    policy = LocalPolicy.pocket(threads=1)
    parts = Learning(
        policy, trainer, make("advantages", how.training), make("filters", "zero_variance"), acting(skills, 1.0)
    )
    try:
        await learn([World(_office(at)) for at in TRAIN], parts, plan, folder, lambda figures: _told(folder, figures))
    finally:
        await policy.aclose()


async def tried(adapter: Path | None, library: bool, size: Size) -> dict[str, list[float]]:
    """Return what weights come to on the test offices, greedily: each scenario's three tasks are a chain."""
    policy = LocalPolicy(POCKET, adapter, threads=1, name="pocket", profile="compact")
    found: dict[str, list[float]] = {name: [] for name in ("tgc", "sgc", "steps", "tokens")}
    try:
        for office in map(_office, size.test):
            own = chains(office.tasks("test_normal"), 3, seed=0)[: size.scenarios]
            links = await all_of(_chain(office, each, policy, library) for each in own)
            done = [link.trajectory for each in links for link in each]
            found["tgc"].append(100 * mean(t.success for t in done))
            found["sgc"].append(100 * mean(all(link.trajectory.success for link in each) for each in links))
            found["steps"].append(mean(len(t.steps) for t in done))
            found["tokens"].append(mean(t.usage.completion_tokens for t in done))
    finally:
        await policy.aclose()
    return found


async def _chain(office: Office, own: Chain, policy: LocalPolicy, library: bool) -> Sequence[Link]:
    attempts = [Attempt(id=id_for("ex", task.id), task=task, seed=0) for task in own.tasks]
    how = Choosing() if library else Choosing(k=0)
    return await chain(office, policy, attempts, acting(library, 0.0), Library(), how)


def acting(skills: bool, temperature: float) -> Acting:
    """Return how episodes are done."""
    return Acting(world="", max_steps=MAX_STEPS, temperature=temperature, max_tokens=MAX_TOKENS, skills=skills)


def _office(deployment: int) -> Office:
    return Office(OfficeConfig(deployment=deployment))


def _told(folder: Path, figures: dict[str, float]) -> None:
    names = ("iteration", "success", "reward", "steps", "skill_use", "kept", "loss")
    print(folder.name, *(f"{name} {figures[name]:.3g}" for name in names if name in figures), flush=True)
