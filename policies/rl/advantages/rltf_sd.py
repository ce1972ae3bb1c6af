"""RLTF-SD: a second attempt is compared with the first attempts, and learned as if it were one."""

from __future__ import annotations

import numpy as np

from memory.errors import BadInput
from policies.rl.groups import centred
from policies.rl.protocols import Array, Episodes

__all__ = ["rltf_sd"]
EXPERIMENTAL = True


def rltf_sd(episodes: Episodes) -> Array:
    """A = R(y1) - mean_g R(y0) for second attempts (`revisions` >= 1), 0 for first ones (`revisions` = 0).

    Rows are those of the transform `rltf`: a second attempt stands after the prompt of the first. There is no
    importance weight, so the loss should have no ratio to what sampled (`opmd`, `sft`).
    Assumption: criticism makes the second attempt better, and what it says can be said without having been told.
    Source: RLTF, arXiv 2602.02482, self-distillation with the baseline of first attempts, from summaries of it. Raises
    `BadInput` for episodes without `revisions` (`evolve train` criticises nothing), and a group without first attempt.
    """
    if episodes.revisions is None:
        raise BadInput(
            "got episodes without `revisions`; rltf_sd expects 0 for first attempts and 1 for second ones, and the "
            "rollouts of `evolve train` are all first ones"
        )
    first = episodes.revisions == 0
    _, groups = np.unique(episodes.groups, return_inverse=True)
    counts = np.bincount(groups, first)
    if not counts.all():
        raise BadInput("got a group without a first attempt (revision 0); rltf_sd expects one to compare with")
    rewards = centred(episodes.rewards, episodes.groups)
    baselines = np.bincount(groups, np.where(first, rewards, 0.0)) / counts
    return episodes.spread(np.where(first, 0.0, rewards - baselines[groups]))
