"""SAGE: the skill-integrated reward minus the mean of the same position of the same chain."""

from __future__ import annotations

from policies.rl.groups import centred
from policies.rl.protocols import Array, Episodes

__all__ = ["sage"]


def sage(episodes: Episodes) -> Array:
    """A_i^k = R_i^k - mean_j R_j^k: `rewards` as `rewards.sage` makes them, one group for each (chain, position).

    Assumption: the members of a group differ by their own skill libraries alone, so the mean over them is a fair
    baseline although their prompts differ from the second position on. No deviation, no KL. A group of one gets 0.
    Source: SAGE, arXiv 2512.17102, objective (LOOP's baseline without leaving one out).
    """
    return episodes.spread(centred(episodes.rewards, episodes.groups))
