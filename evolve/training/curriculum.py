"""Curriculum: a sampler chooses the chains of an iteration, an allocator how often each is done, by what is known."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from evolve.training.chain_tasks import Chain
from evolve.training.rollouts import ChainSpec
from memory.errors import BadInput
from policies.rl.allocators.fixed import Fixed
from policies.rl.protocols import Array, PromptSampler, PromptStats, RolloutAllocator
from policies.rl.samplers.uniform import uniform
from policies.rl.tracker import BetaTracker


@dataclass(frozen=True)
class Curriculum:
    """How chains are chosen; by default all are as likely, and each is done equally often."""

    sampler: PromptSampler = uniform
    allocator: RolloutAllocator = field(default_factory=Fixed)

    def chosen(
        self, every: Sequence[ChainSpec], tracker: BetaTracker, chains: int, rollouts: int, seed: int
    ) -> list[ChainSpec]:
        """Return `chains` of the given ones (all where there are fewer), with the members of each one's group.

        Members sum to `rollouts` a chain. Raises `BadInput` for weights that are not positive numbers, and for counts
        that give a chain no rollout or miss the sum.
        """
        count = min(chains, len(every))
        drawn = _drawn(every, weights(self.sampler, [each.chain for each in every], tracker), count, seed)
        members = self.allocator.allocate(stats([each.chain for each in drawn], tracker), count * rollouts)
        if members.shape != (count,) or (members < 1).any() or members.sum() != count * rollouts:
            raise BadInput(
                f"got {members.tolist()} rollouts from train.allocator for {count} chains; expected one number a "
                f"chain, none below 1, {count * rollouts} in all"
            )
        return [replace(each, rollouts=int(n)) for each, n in zip(drawn, members, strict=True)]


def weights(sampler: PromptSampler, chains: Sequence[Chain], tracker: BetaTracker) -> Array:
    """Return [c]: for each chain the mean of what the sampler gives its tasks.

    Assumption: each task of a chain is a group of its own, so that a chain is worth what its tasks are on average.
    """
    tasks = [task.id for chain in chains for task in chain.tasks]
    found = sampler(tracker.stats(tasks))
    if found.shape != (len(tasks),) or not np.isfinite(found).all() or (found <= 0).any():
        raise BadInput(
            f"got weights {found} from train.sampler for {len(tasks)} tasks; expected one positive, finite number each"
        )
    ends = np.cumsum([0, *(len(chain.tasks) for chain in chains)])
    return np.array([found[start:stop].mean() for start, stop in pairwise(ends)])


def stats(chains: Sequence[Chain], tracker: BetaTracker) -> PromptStats:
    """Return what is known of chains: the mean rate of their tasks, and whether all of these were ever done."""
    known = [tracker.stats([task.id for task in chain.tasks]) for chain in chains]
    return PromptStats(
        np.array([each.rates.mean() for each in known], dtype=np.float64),
        np.array([each.seen.all() for each in known], dtype=np.bool_),
    )


def _drawn(every: Sequence[ChainSpec], weight: Array, count: int, seed: int) -> list[ChainSpec]:
    """Draw without putting back, in proportion to the weights: the smallest of -log(u) / w come first.

    Source: Efraimidis and Spirakis 2006, weighted random sampling. Equal weights are a plain draw.
    """
    rng = random.Random(seed)
    if (weight == weight[0]).all():
        return rng.sample(every, count)
    keys = [-math.log(1 - rng.random()) / each for each in weight.tolist()]
    return [every[at] for at in sorted(range(len(every)), key=keys.__getitem__)[:count]]
