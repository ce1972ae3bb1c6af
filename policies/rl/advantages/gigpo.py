"""GiGPO: trajectories of one prompt are compared, and so are the steps that answered the same observation."""

from __future__ import annotations

from typing import Literal

import numpy as np

from memory.errors import BadInput
from policies.rl.groups import Singleton, centred, numbered, standardised
from policies.rl.protocols import Array, Episodes

__all__ = ["gigpo"]

Norm = Literal["mean", "mean_std"]


def gigpo(
    episodes: Episodes,
    *,
    gamma: float = 0.95,
    step_weight: float = 1.0,
    norm: Norm = "mean",
    cross_steps: bool = False,
    singleton: Singleton = "zero",
) -> Array:
    """A = A_E + step_weight * A_S, both normed by `norm`: r - mean, or (r - mean) / (unbiased std + 1e-6).

    A_E norms the rewards of a group's trajectories. A_S norms R_t = sum_{k>=t} gamma^(k-t) r_k over all steps of the
    group with the same anchor; a step whose anchor nobody else met gets 0.
    Assumption: equal observations are equal states, so what followed differs by the action alone.
    Source: GiGPO, arXiv 2505.10978 (A_E, A_S, gamma .95, weight 1). Deviations from the released code: it counts a
    trajectory once per step in A_E, so that long ones dominate (`cross_steps=True`), and gives a group of one its raw
    reward (`singleton="raw"`).
    """
    if norm not in ("mean", "mean_std"):
        raise BadInput(f"got norm={norm!r}; expected 'mean' or 'mean_std'")
    normed = centred if norm == "mean" else standardised
    groups = episodes.groups[episodes.trajectory]
    if cross_steps:
        episode = normed(episodes.spread(episodes.rewards), groups, singleton)
    else:
        episode = episodes.spread(normed(episodes.rewards, episodes.groups, singleton))
    return episode + step_weight * normed(returns(episodes, gamma), numbered(groups, episodes.anchors))


def returns(episodes: Episodes, gamma: float) -> Array:
    """Return [s]: each step's reward and those of the trajectory's later steps, discounted by `gamma` per step."""
    result, running = np.zeros(len(episodes.trajectory)), np.zeros(len(episodes.rewards))
    for step in range(len(result) - 1, -1, -1):
        owner = episodes.trajectory[step]
        running[owner] = episodes.step_rewards[step] + gamma * running[owner]
        result[step] = running[owner]
    return result
