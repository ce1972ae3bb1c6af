"""R3L's reweighting: what went well counts threefold, what succeeded counts in full."""

from __future__ import annotations

import numpy as np

from policies.rl.groups import Singleton, centred
from policies.rl.protocols import Array, Episodes

__all__ = ["r3l"]


def r3l(episodes: Episodes, *, singleton: Singleton = "raw") -> Array:
    """A = 1 where r >= 1; else 3 (r - mean_g) where that is not negative; else r - mean_g.

    Assumption: rewards lie in [0, 1] and 1 is a full success, which is worth imitating however common it is: a group of
    successes alone still gets 1. Failures are many, so they are not amplified.
    A group of one has the baseline 0 here: reflections and retries stand in groups of their own and would otherwise
    teach nothing. `singleton="zero"` gives one that fell short 0.
    Source: R3L, arXiv 2601.03715, reweighting in the released advantage of OPMD.
    """
    advantages = centred(episodes.rewards, episodes.groups, singleton)
    advantages = np.where(advantages >= 0, 3 * advantages, advantages)
    return episodes.spread(np.where(episodes.rewards >= 1, 1.0, advantages))
