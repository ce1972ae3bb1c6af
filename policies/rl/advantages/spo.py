"""SPO: the reward minus what a tracker expected of the prompt, in standard deviations of the batch."""

from __future__ import annotations

import numpy as np

from memory.errors import BadInput
from policies.rl.groups import standardised
from policies.rl.protocols import Array, Episodes

__all__ = ["spo"]


def spo(episodes: Episodes, *, normalise: bool = True, eps: float = 1e-8) -> Array:
    """A = r - v, then (A - mean) / (unbiased std + eps) over the trajectories of the batch.

    v (`Episodes.baselines`) is the tracker's value before it learns of this batch (`policies.rl.tracker`).
    No groups: one rollout of a prompt is enough.
    Assumption: v follows the policy slowly enough to be a baseline and fast enough to be a good one.
    Source: Single-stream policy optimisation, arXiv 2509.13232. Raises `BadInput` without baselines, and for a batch of
    one, which cannot be normalised.
    """
    if episodes.baselines is None:
        raise BadInput("got episodes without `baselines`; spo expects the tracker's values from before its update")
    advantages = episodes.rewards - episodes.baselines
    if not normalise:
        return episodes.spread(advantages)
    if len(advantages) == 1:
        raise BadInput("got a batch of 1; expected at least 2 trajectories to normalise over, or set normalise=False")
    return episodes.spread(standardised(advantages, np.zeros(len(advantages), dtype=np.int64), eps=eps))
