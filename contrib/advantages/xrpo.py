"""XRPO's sharpening: a success that the policy thought unlikely counts more."""

from __future__ import annotations

import numpy as np

from memory.errors import BadInput
from policies.rl.advantages.grpo import grpo
from policies.rl.groups import centred
from policies.rl.protocols import AdvantageEstimator, Array, Episodes

__all__ = ["xrpo"]


def xrpo(
    episodes: Episodes,
    *,
    base: AdvantageEstimator = grpo,
    strength: float = 2.5,
    bound: float = 0.5,
    success: float = 1.0,
) -> Array:
    """A + min(max(strength (1 - eta), 0), bound A) where r >= success and A > 0, else A; A of `base`.

    eta = exp(s - mean_g s), s (`Episodes.logprobs`) the mean log-probability of a trajectory's tokens: below 1 where it
    was less likely than its group.
    Assumption: a correct answer that is rarely found is worth more than one that is found anyway.
    Source: XRPO, arXiv 2510.06672 (its lambda = 2.5, kappa = .5), from summaries of it; the mean is over all of a
    group, failures included. Raises `BadInput` for episodes without `logprobs`.
    """
    if episodes.logprobs is None:
        raise BadInput("got episodes without `logprobs`; xrpo expects the mean log-probability of each trajectory")
    advantages = base(episodes)
    eta = episodes.spread(np.exp(centred(episodes.logprobs, episodes.groups)))
    more = np.minimum(np.maximum(strength * (1 - eta), 0.0), bound * advantages)
    correct = episodes.spread(episodes.rewards) >= success
    return np.where(correct & (advantages > 0), advantages + more, advantages)
