"""XRPO: each next rollout goes where it is expected to narrow the estimate most, and to what was tried little."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from memory.errors import BadInput
from policies.rl.protocols import Ints, PromptStats

__all__ = ["Xrpo"]


@dataclass(frozen=True)
class Xrpo:
    """Give rollouts one by one to the largest h(n) - h(n + 1) + explore sqrt(log(1 + T) / n), from `least` each.

    h(n) = t_{1 - alpha / 2, n - 1} s / sqrt(n) is half the width of a confidence interval of the prompt's mean reward,
    n what it got so far, T what all got, s = sqrt(p (1 - p)); an unseen prompt has the prior's rate.
    Assumption: rewards are 0 or 1, and what is uncertain teaches.
    Source: XRPO, arXiv 2510.06672, from summaries of it: the form of the second term is not confirmed and `explore` its
    unknown weight (0 = without). Deviations: it measures s between rounds of rollouts; here all are shared out before
    the first, by the rates known so far. Prompts without a success are not shown solved examples.
    """

    least: int = 2
    most: int = 32
    alpha: float = 0.05
    explore: float = 0.1

    def __post_init__(self) -> None:
        if not (2 <= self.least <= self.most and 0 < self.alpha < 1 and self.explore >= 0):
            raise BadInput(f"got {self}; expected 2 <= least <= most, alpha between 0 and 1, explore at least 0")

    def allocate(self, stats: PromptStats, budget: int) -> Ints:
        """Return [p] counts that sum to `budget`. Raises `BadInput` unless least <= budget / p <= most."""
        prompts = len(stats.rates)
        if not prompts or not prompts * self.least <= budget <= prompts * self.most:
            raise BadInput(
                f"got a budget of {budget} for {prompts} prompts; expected {self.least} to {self.most} rollouts for "
                "each: change the budget, `least` or `most`"
            )
        deviations: list[float] = np.sqrt(stats.rates * (1 - stats.rates)).tolist()
        widths = _widths(self.alpha, self.most)
        counts = np.full(prompts, self.least, dtype=np.int64)
        for total in range(prompts * self.least, budget):
            bonus = self.explore * math.sqrt(math.log1p(total))
            worth = [
                s * (widths[n] - widths[n + 1]) + bonus / math.sqrt(n) if n < self.most else -math.inf
                for s, n in zip(deviations, counts.tolist(), strict=True)
            ]
            counts[int(np.argmax(worth))] += 1
        return counts


def _widths(alpha: float, most: int) -> list[float]:
    """Return t_{1 - alpha / 2, n - 1} / sqrt(n) for n = 0 to most; infinite below 2, where nothing is known."""
    from scipy.special import stdtrit

    return [math.inf if n < 2 else float(stdtrit(n - 1, 1 - alpha / 2)) / math.sqrt(n) for n in range(most + 1)]
