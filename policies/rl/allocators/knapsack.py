"""Knapsack RL: each next rollout goes to the prompt where it is most likely to make a group that teaches."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from memory.errors import BadInput
from policies.rl.protocols import Array, Ints, PromptStats

__all__ = ["Knapsack"]


@dataclass(frozen=True)
class Knapsack:
    """Maximise sum_i value(n_i, p_i) with sum n_i = budget and least <= n_i <= most, for prompts with 0 < p < 1.

    Never solved and always solved prompts get `least`, unseen ones budget / prompts; what nobody else may take goes to
    whoever has fewest.
    Assumption: rollouts are independent, p is the success rate now, and a step on a mixed group gains p (1 - p)^2.
    Source: Knapsack RL, arXiv 2509.25849. Deviation: value is concave in n, so taking the largest marginal gain each
    time (a heap, O(budget log p)) is exact; the released dynamic program counts "no extra rollout" as worth 0, pushes
    every prompt to one extra and is never better.
    """

    least: int = 2
    most: int = 32

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise BadInput(f"got least={self.least} and most={self.most}; expected 1 <= least <= most")

    def allocate(self, stats: PromptStats, budget: int) -> Ints:
        """Return [p] counts that sum to `budget`. Raises `BadInput` unless least <= budget / p <= most."""
        prompts = len(stats.rates)
        if not prompts or not prompts * self.least <= budget <= prompts * self.most:
            raise BadInput(
                f"got a budget of {budget} for {prompts} prompts; expected {self.least} to {self.most} rollouts for "
                "each: change the budget, `least` or `most`"
            )
        rates, seen = stats.rates, stats.seen
        open_ = seen & (rates > 0) & (rates < 1)
        counts = np.where(seen, self.least, budget // prompts).astype(np.int64)
        self._climb(counts, np.flatnonzero(open_), rates, budget - int(counts.sum()))
        self._level(counts, budget - int(counts.sum()))
        return counts

    def _climb(self, counts: Ints, members: Ints, rates: Array, left: int) -> None:
        """Give one rollout after the other to the member with the largest marginal gain."""
        rate: list[float] = rates.tolist()
        heap = [(-gain(int(counts[i]), rate[i]), i) for i in members.tolist() if counts[i] < self.most]
        heapq.heapify(heap)
        for _ in range(left):
            if not heap:
                return
            _, i = heap[0]
            counts[i] += 1
            if counts[i] < self.most:
                heapq.heapreplace(heap, (-gain(int(counts[i]), rate[i]), i))
            else:
                heapq.heappop(heap)

    def _level(self, counts: Ints, left: int) -> None:
        """Give one rollout after the other to the prompt with the fewest."""
        heap = [(int(count), i) for i, count in enumerate(counts) if count < self.most]
        heapq.heapify(heap)
        for _ in range(left):
            if not heap:
                return
            count, i = heapq.heappop(heap)
            counts[i] = count + 1
            if count + 1 < self.most:
                heapq.heappush(heap, (count + 1, i))


def mixed(count: int, rate: float) -> float:
    """Return 1 - p^N - (1 - p)^N: the chance that N rollouts hold a success and a failure."""
    return 1 - rate**count - (1 - rate) ** count


def value(count: int, rate: float) -> float:
    """Return what N rollouts are worth: the chance of a mixed group times p (1 - p)^2, the gain of a step on one."""
    return mixed(count, rate) * rate * (1 - rate) ** 2


def gain(count: int, rate: float) -> float:
    """Return value(N + 1) - value(N), without the rounding of that difference."""
    return (rate**count * (1 - rate) + (1 - rate) ** count * rate) * rate * (1 - rate) ** 2
