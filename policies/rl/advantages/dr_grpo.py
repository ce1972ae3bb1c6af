"""Dr. GRPO: the reward minus its group's mean."""

from __future__ import annotations

from policies.rl.groups import Singleton, centred
from policies.rl.protocols import Array, Episodes

__all__ = ["dr_grpo"]


def dr_grpo(episodes: Episodes, *, singleton: Singleton = "zero") -> Array:
    """A = r - mean_g. Its loss is `ppo` with the aggregation seq-mean-token-sum-norm.

    Assumption: rewards of all prompts are on one scale, so that dividing by the deviation would only favour prompts
    that are nearly always, or nearly never, solved.
    Source: Understanding R1-Zero-like training, arXiv 2503.20783. `singleton="raw"` is verl's rule for a group of one.
    """
    return episodes.spread(centred(episodes.rewards, episodes.groups, singleton))
