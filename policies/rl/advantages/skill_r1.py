"""Skill-R1: a skill is compared with others of its generation, and its generation with the one before."""

from __future__ import annotations

import numpy as np

from memory.errors import BadInput
from policies.rl.groups import centred, numbered
from policies.rl.protocols import Array, Episodes

__all__ = ["skill_r1"]
EXPERIMENTAL = True


def skill_r1(episodes: Episodes, *, across: float = 1.0) -> Array:
    """A = (r - mean_g) + across * (mean_g - mean_{g-1}), g the generation (`revisions`) within the group (the prompt).

    The first generation has nothing before it and gets the first term alone; g - 1 is the latest one that is there.
    Assumption: a generation is written in the light of the one before, so that its whole progress is its own merit.
    Source: Skill-R1, arXiv 2605.09359, from summaries of it; its weight of the second term is not known and 1 here. The
    clip and the KL of its objective belong to the loss.
    Raises `BadInput` for episodes without `revisions`: `evolve train` revises nothing, so it has none.
    """
    if episodes.revisions is None:
        raise BadInput(
            "got episodes without `revisions`; skill_r1 expects the generation of each trajectory within its group, "
            "and the rollouts of `evolve train` are of one generation"
        )
    rewards = centred(episodes.rewards, episodes.groups)
    cells = numbered(episodes.groups, episodes.revisions)
    _, first = np.unique(cells, return_index=True)
    means = np.bincount(cells, rewards) / np.bincount(cells)
    follows = np.diff(episodes.groups[first], prepend=episodes.groups[first][:1] - 1) == 0
    gained = np.where(follows, np.diff(means, prepend=0.0), 0.0)
    return episodes.spread(centred(rewards, cells) + across * gained[cells])
