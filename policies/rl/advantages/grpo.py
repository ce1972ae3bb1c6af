"""GRPO: the reward in standard deviations of its group."""

from __future__ import annotations

from policies.rl.groups import EPSILON, Singleton, standardised
from policies.rl.protocols import Array, Episodes

__all__ = ["grpo"]


def grpo(episodes: Episodes, *, singleton: Singleton = "zero", eps: float = EPSILON) -> Array:
    """A = (r - mean_g) / (std_g + eps), std unbiased.

    Assumption: the trajectories of a group answer the same prompt, and a group's spread carries no information: small
    differences weigh as much as large ones. Groups of two make the deviation coarse.
    Source: DeepSeekMath, arXiv 2402.03300, section 4.1. Deviation: verl gives a group of one its raw reward, which
    rewards being alone; here it gets 0, as in TRL. `singleton="raw"` is verl's rule.
    """
    return episodes.spread(standardised(episodes.rewards, episodes.groups, singleton, eps))
