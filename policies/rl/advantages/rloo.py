"""RLOO: the reward minus the mean of the others in its group."""

from __future__ import annotations

import numpy as np

from policies.rl.groups import Singleton, centred, sizes
from policies.rl.protocols import Array, Episodes

__all__ = ["rloo"]


def rloo(episodes: Episodes, *, singleton: Singleton = "zero") -> Array:
    """A = n / (n - 1) * (r - mean_g), which is r minus the mean of the n - 1 others.

    Assumption: the trajectories of a group are independent draws, so a baseline made of the others is unbiased.
    Source: Back to basics, arXiv 2402.14740. `singleton="raw"` is verl's rule for a group of one.
    """
    size = sizes(episodes.groups)
    factor = np.where(size > 1, size / np.maximum(size - 1, 1), 1.0)
    return episodes.spread(factor * centred(episodes.rewards, episodes.groups, singleton))
