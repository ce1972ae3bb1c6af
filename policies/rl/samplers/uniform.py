"""Every prompt is as likely as every other."""

from __future__ import annotations

import numpy as np

from policies.rl.protocols import Array, PromptStats

__all__ = ["uniform"]


def uniform(stats: PromptStats) -> Array:
    """w = 1.

    Assumption: nothing is known of the prompts, or what is known is better used by an allocator or a filter.
    Source: the default of every trainer; the control that other samplers are measured against.
    """
    return np.ones(len(stats.rates))
