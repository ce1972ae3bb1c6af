"""Lives in the worlds of `examples/worlds`: learn online without a model that reflects, then held-out tasks."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolve.config.model import Config
from evolve.episode.arms import AA, MAIN, NO_MEMORY
from evolve.loop.assembly import open_store
from evolve.loop.report import make_report
from evolve.loop.session import Parts, arun
from evolve.statistics.clusters import Pairing, pairing
from examples.worlds.bookkeeping import Bookkeeping, clerk
from examples.worlds.cellar import Cellar, player
from examples.worlds.support_desk import SupportDesk, helper
from policies.protocols import Policy

SPLIT = "test_normal"


@dataclass(frozen=True)
class World:
    """A world, by the seed of its rules, and who acts there."""

    make: Callable[[int], Any]
    policy: Callable[[], Policy]


WORLDS = {
    "cellar": World(Cellar, player),
    "bookkeeping": World(Bookkeeping, clerk),
    "support_desk": World(SupportDesk, helper),
}


@dataclass(frozen=True)
class Life:
    """What held-out tasks say of one life: with memory against without, and against itself done again (A/A)."""

    memory: Pairing
    again: Pairing
    applied: int
    with_memory: float
    without: float


def live(name: str, seed: int, reflector: str = "rules") -> Life:
    """Learn from the train tasks under the default gates, then evaluate, both frozen and without memory."""
    with tempfile.TemporaryDirectory(prefix="evolve-worlds-") as folder:
        return asyncio.run(_live(name, seed, reflector, Path(folder)))


async def _live(name: str, seed: int, reflector: str, root: Path) -> Life:
    world = WORLDS[name]
    parts = Parts(policy=world.policy(), environment=world.make(seed))
    config = Config.model_validate(
        {
            "root": root,
            "memory": {"index": "exact"},
            "playbook": {"reflector": reflector, "curator": "direct"},
            "gate": {"names": ["default"]},
            "controls": {"no_memory": 1.0, "aa": True},
        }
    )
    learned = await arun(config, parts=parts)
    frozen = config.model_copy(update={"run": config.run.model_copy(update={"mode": "frozen"})})
    measured = await arun(frozen, parts=parts)
    with open_store(config, read_only=True) as store:
        applied = make_report(store, learned.run_id).learned
        arms = {each.arm: each for each in make_report(store, measured.run_id).evaluations}
    tasks = sorted(arms[MAIN].passed)
    return Life(
        memory=pairing(f"{name} {seed}", seed, tasks, arms[NO_MEMORY].passed, arms[MAIN].passed),
        again=pairing(f"{name} {seed}", seed, tasks, arms[MAIN].passed, arms[AA].passed),
        applied=applied,
        with_memory=arms[MAIN].metrics.tgc,
        without=arms[NO_MEMORY].metrics.tgc,
    )
