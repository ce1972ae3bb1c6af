"""ARPO: a rollout is branched by chance, and more likely where the policy is less sure than it was at the beginning."""

from __future__ import annotations

import numpy as np

from policies.rl.protocols import Array, Flags

__all__ = ["arpo"]


def arpo(rises: Array, draws: Array, *, weight: float = 0.2, chance: float = 0.5) -> Flags:
    """Branch from a turn where clip(u - w dH, 0, 1) <= p; dH is its entropy above that of the first turn.

    Assumption: where what the world answered made the policy unsure, it is about to decide something.
    Source: ARPO, arXiv 2507.19849, as released; the paper branches where a + b dH is above a threshold, without chance.
    Deviation: its entropies are sums over 20 tokens divided by the logarithm of the vocabulary's size, 1.7 times a mean
    in nats where there are 150 000 tokens; w is not scaled by that.
    """
    return np.clip(draws - weight * rises, 0, 1) <= chance
