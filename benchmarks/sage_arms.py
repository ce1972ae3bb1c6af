"""The arms of SAGE in miniature: one cell is one arm trained with one seed, then tried on offices nobody trained on.

All begin from a model with noise in its weights (`weak_pocket`), so that there is something to learn. A cell
is resumable at any time: its training stands in `build/sage/<cell>`, its figures in
`benchmarks/results/cells/train_1/<cell>.json`, from which the claim makes its table. What is compared are weights, and
the functions that an agent writes: the text that is shown is the same in all arms (`sage_trials.given`).
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from benchmarks.sage_trials import MAX_STEPS, MAX_TOKENS, acting, given, office, tried
from benchmarks.table import RESULTS, ROOT
from evolve.training.loop import Learning, Plan, World, learn
from evolve.training.rollouts import Counting, Sampling
from policies.local import LocalPolicy
from policies.rl.optimising import OptimiserOptions
from policies.rl.protocols import AdvantageEstimator, Array, Episodes
from policies.rl.slots import make
from policies.rl.trainer import Trainer

CELLS, BUILD = RESULTS / "cells" / "train_1", ROOT / "build" / "sage"
TRAIN, TEST = range(600, 640), range(20, 30)
MODES = {"greedy": 0.0, "sampled": 1.0}
"""How weights are tried: the temperature of each way."""


@dataclass(frozen=True)
class Arm:
    """How the weights of a cell are made, and how they are tried."""

    training: str = ""
    """`grpo` or `sage`; empty = the weights that all begin from."""
    counting: Counting = "strict"
    library: bool = True
    """Functions that were written in earlier tasks are at hand when it is tried."""
    shuffled: bool = False
    """Within each group it is drawn by lot who gets which reward."""


ARMS: dict[str, Arm] = {
    "base, library off": Arm(library=False),
    "base": Arm(),
    "grpo": Arm(training="grpo", library=False),
    "grpo, rewards shuffled": Arm(training="grpo", library=False, shuffled=True),
    "sage": Arm(training="sage"),
    "sage, skills unpaid": Arm(training="sage", counting="none"),
}


@dataclass(frozen=True)
class Size:
    """How much is done in a cell."""

    iterations: int = 10
    chains: int = 4
    rollouts: int = 8
    test: tuple[int, ...] = tuple(TEST)
    scenarios: int | None = 6
    """Scenarios of an office that are tried, of 34; none = all."""
    rate: float = 5e-4


@dataclass(frozen=True)
class Places:
    """Where a cell's weights come from, and where its training and its figures are kept."""

    weights: Path
    build: Path = BUILD
    cells: Path = CELLS

    @property
    def digest(self) -> str:
        """What tells the weights from others."""
        return sha256((self.weights / "model.safetensors").read_bytes()).hexdigest()[:12]


def measured(arm: str, seed: int, size: Size, places: Places) -> dict[str, list[float]]:
    """Return a cell's figures, for each test office: TGC and SGC in %, steps and tokens of a task. Trains it first.

    Each comes twice: `greedy sgc`, `sampled sgc`. What was measured before with the same settings is read, not measured
    again.
    """
    kept = places.cells / f"{name_of(arm, seed, size, places)}.json"
    if not kept.exists():
        began = time.perf_counter()
        adapter = trained(arm, seed, size, places)
        found = {"training minutes": [(time.perf_counter() - began) / 60]}
        for mode, temperature in MODES.items():
            offices = [office(at) for at in size.test]
            own = asyncio.run(
                tried(places.weights, adapter, acting(ARMS[arm].library, temperature), offices, size.scenarios)
            )
            found |= {f"{mode} {name}": values for name, values in own.items()}
        found["minutes"] = [(time.perf_counter() - began) / 60]
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(found, indent=1) + "\n")
    return json.loads(kept.read_text())


def name_of(arm: str, seed: int, size: Size, places: Places) -> str:
    """Return the name of a cell, which changes with everything that its figures depend on but the source itself."""
    settings = repr((ARMS[arm], size, TRAIN, MODES, MAX_STEPS, MAX_TOKENS, places.digest))
    return f"{arm.replace(', ', '-').replace(' ', '_')}-{seed}-{sha256(settings.encode()).hexdigest()[:8]}"


def trained(arm: str, seed: int, size: Size, places: Places) -> Path | None:
    """Return the adapter of an arm, made where it is missing; None for weights as they are."""
    how = ARMS[arm]
    if not how.training:
        return None
    own = places.build / name_of(arm, seed, size, places)
    if not (own / "adapter").exists():
        settings = OptimiserOptions(learning_rate=size.rate, seed=seed)
        with Trainer(places.weights, make("losses", "ppo"), settings) as trainer:
            asyncio.run(_learned(trainer, how, seed, size, own))
            trainer.save(own / "adapter")
    return own / "adapter"


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
    policy = LocalPolicy(trainer.path, threads=1, name="pocket", profile="compact")
    advantages: AdvantageEstimator = make("advantages", "sage" if skills else "grpo")
    parts = Learning(
        policy,
        trainer,
        Shuffled(advantages, seed) if how.shuffled else advantages,
        make("filters", "zero_variance"),
        acting(skills, MODES["sampled"]),
    )
    try:
        worlds = [World(each, given(each)) for each in map(office, TRAIN)]
        await learn(worlds, parts, plan, folder, lambda figures: tell(folder.name, figures))
    finally:
        await policy.aclose()


class Shuffled:
    """An estimator that is told another member's reward: what is left is what updates do that know nothing."""

    def __init__(self, inner: AdvantageEstimator, seed: int) -> None:
        self._inner, self._rng = inner, np.random.default_rng(seed)

    def __call__(self, episodes: Episodes) -> Array:
        """Return advantages of rewards that are dealt out anew within each group."""
        rewards = episodes.rewards.copy()
        for group in np.unique(episodes.groups):
            own = np.flatnonzero(episodes.groups == group)
            rewards[own] = self._rng.permutation(rewards[own])
        return self._inner(replace(episodes, rewards=rewards))


def tell(name: str, figures: dict[str, float]) -> None:
    """Print what an iteration came to."""
    names = ("iteration", "success", "reward", "steps", "skill_use", "kept", "loss", "entropy")
    print(name, *(f"{each} {figures[each]:.3g}" for each in names if each in figures), flush=True)
