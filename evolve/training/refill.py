"""DAPO's dynamic sampling: groups that teach nothing are replaced within their iteration, until the batch is full.

Where all rollouts of a task earn the same, their advantages are 0, and the batch is smaller than it was meant to be
(DAPO, arXiv 2503.14476, section 3.2). Each round begins as many new groups as are missing, of chains that the iteration
did not do yet, and drawn by the iteration and the round alone: a training that was killed does the same ones again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evolve.seeds import seed_for
from evolve.training import partial
from evolve.training.batches import episodes_of, prepared
from evolve.training.curriculum import Curriculum
from evolve.training.partial import Rolling
from evolve.training.rollouts import ChainSpec, Rollout
from policies.rl.protocols import GroupFilter
from policies.rl.tracker import BetaTracker


@dataclass(frozen=True)
class Refill:
    """How an iteration replaces groups of which the filter keeps nothing."""

    rounds: Sequence[Sequence[ChainSpec]]
    """For each round what it draws from."""
    curriculum: Curriculum
    expected: BetaTracker
    filter: GroupFilter

    async def refilled(
        self, done: tuple[Rollout, ...], rolling: Rolling, iteration: int
    ) -> tuple[tuple[Rollout, ...], dict[str, float]]:
        """Return an iteration's rollouts with those of further groups, and how many of these were begun (`refilled`)
        and how many are still missing (`unfilled`).

        Raises what `roll` raises.
        """
        wanted, taught = len({each.group for each in done}), self._taught(done, rolling)
        refilled = 0
        for number, offered in enumerate(self.rounds, start=1):
            seed = seed_for(rolling.sampling.seed, "refill", iteration, number)
            settings = self._drawn(offered, wanted - len(taught), done, rolling.sampling.rollouts, seed)
            begun = partial.begun(settings, rolling.sampling, iteration)
            if not begun:
                continue
            _, more = await partial.gathered(begun, len(begun), rolling, iteration)
            done, taught, refilled = (*done, *more), taught | self._taught(more, rolling), refilled + len(begun)
        return done, {"refilled": float(refilled), "unfilled": float(wanted - len(taught))}

    def _drawn(
        self, offered: Sequence[ChainSpec], missing: int, done: Sequence[Rollout], members: int, seed: int
    ) -> list[ChainSpec]:
        """Return as many chains as are missing, of those whose tasks were not done; fewer where there are no more."""
        tasks = {link.trajectory.task.id for each in done for link in each.links}
        fresh = [each for each in offered if tasks.isdisjoint(task.id for task in each.chain.tasks)]
        return self.curriculum.chosen(fresh, self.expected, missing, members, seed) if missing and fresh else []

    def _taught(self, rollouts: Sequence[Rollout], rolling: Rolling) -> set[str]:
        """Return the groups of which the filter keeps something."""
        batch = prepared(episodes_of(rollouts, self.expected), rolling.kept.get_reply)
        rows, _ = batch.advantages(np.zeros(len(batch.episodes.trajectory)), self.filter.keep(batch.episodes))
        return {row.chain_id for row in rows}
