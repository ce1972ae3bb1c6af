"""Prompts that succeed about as often as they fail come most often."""

from __future__ import annotations

import numpy as np

from policies.rl.protocols import Array, PromptStats

__all__ = ["difficulty"]


def difficulty(stats: PromptStats, *, target: float = 0.5, spread: float = 0.1) -> Array:
    """w = exp(-|p - target| / spread), p [p] the estimated success rates.

    A rate `spread` further from the target is drawn e times less often. What was never done has the prior, 0.5, so that
    new prompts are tried early.
    Assumption: a prompt teaches most where its group is most often mixed, and rates move slowly.
    Source: difficulty-targeted online selection (DOTS), arXiv 2506.05316, which selects questions by the nearness of
    their difficulty 1 - p to 0.5. Deviation: p is counted (`policies.rl.tracker`), not predicted from like questions,
    and `spread` is wide, since counts of a few rollouts are rough.
    """
    return np.exp(-np.abs(stats.rates - target) / spread)
