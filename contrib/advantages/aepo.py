"""AEPO's weighting: steps at which the policy was uncertain learn more, those at which it was sure less."""

from __future__ import annotations

import numpy as np

from memory.errors import BadInput
from policies.rl.advantages.grpo import grpo
from policies.rl.groups import standardised
from policies.rl.protocols import AdvantageEstimator, Array, Episodes

__all__ = ["aepo"]


def aepo(episodes: Episodes, *, base: AdvantageEstimator = grpo, strength: float = 0.2) -> Array:
    """A * (1 + strength * z), A of `base`, z = (H - mean H) / std H over the steps of the batch, std unbiased.

    H (`Episodes.entropies`) is the mean entropy of a step's tokens; z is 0 where all are equal. `evolve train` gives an
    estimate of it, minus the mean log-probability of the tokens that were sampled.
    Assumption: where entropy is high a choice was made, and choices are what is to be learned.
    Source: AEPO, arXiv 2510.14545, entropy-aware advantage with its .2. Deviations: the released code takes entropies
    of tokens, of the policy as it is trained, over a part of the batch; here they are of steps, as they were sampled.
    Raises `BadInput` for episodes without `entropies`.
    """
    if episodes.entropies is None:
        raise BadInput("got episodes without `entropies`; aepo expects the mean entropy of each step's tokens")
    everyone = np.zeros(len(episodes.entropies), dtype=np.int64)
    return base(episodes) * (1 + strength * standardised(episodes.entropies, everyone, eps=1e-12))
