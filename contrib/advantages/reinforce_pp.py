"""REINFORCE++ with a baseline: the reward minus its group's mean, in standard deviations of the batch's tokens."""

from __future__ import annotations

import numpy as np

from memory.errors import BadInput
from policies.rl.groups import Singleton, centred
from policies.rl.protocols import Array, Episodes

__all__ = ["reinforce_pp"]


def reinforce_pp(episodes: Episodes, *, singleton: Singleton = "zero", eps: float = 1e-8) -> Array:
    """A = (x - mean x) / sqrt(var x + eps), x = r - mean_g; mean and unbiased variance over all trained tokens.

    Assumption: one scale suits all groups, so that a prompt on which all did nearly alike is not blown up. The mean
    over tokens is not 0 where long answers did better; a group of equal rewards then gets a little of the other sign.
    Source: REINFORCE++, arXiv 2501.03262, the variant with a baseline; without KL in the reward. `singleton="raw"` is
    verl's rule for a group of one. Raises `BadInput` for a batch of fewer than two tokens, as verl does.
    """
    tokens = episodes.tokens
    total = int(tokens.sum())
    if total < 2:
        raise BadInput(f"got a batch of {total} trained tokens; expected at least 2 to whiten over")
    centre = centred(episodes.rewards, episodes.groups, singleton)
    centre = centre - float((tokens * centre).sum()) / total
    variance = float((tokens * centre**2).sum()) / (total - 1)
    return episodes.spread(centre / np.sqrt(variance + eps))
