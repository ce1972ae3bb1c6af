"""Pass@k: only the best of a group learns, and only by how much it was better than the second."""

from __future__ import annotations

import numpy as np

from policies.rl.protocols import Array, Episodes

__all__ = ["pass_at_k"]


def pass_at_k(episodes: Episodes) -> Array:
    """A = r_max - r_second for the best trajectory of a group, 0 for the others; k is the size of the group.

    Assumption: a prompt counts as solved when one of k attempts solves it, so that an attempt is worth what the best
    would lose without it. Where two are best, none gets anything: easy prompts are left alone. Never negative, so
    nothing is unlearned.
    Source: Optimizing language models for inference time objectives, arXiv 2503.19595. Deviations: a group of one gets
    0, where verl refuses it; not divided by the group's deviation, which verl does by default.
    """
    advantages = np.zeros(len(episodes.rewards))
    for group in np.unique(episodes.groups):
        members = np.flatnonzero(episodes.groups == group)
        if len(members) > 1:
            *_, second, best = members[np.argsort(episodes.rewards[members])]
            advantages[best] = episodes.rewards[best] - episodes.rewards[second]
    return episodes.spread(advantages)
