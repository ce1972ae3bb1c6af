"""GDPO: each part of the reward is normalised by itself before they are added."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memory.errors import BadInput
from policies.rl.groups import standardised
from policies.rl.protocols import Array, Episodes

__all__ = ["gdpo"]


def gdpo(episodes: Episodes, *, weights: Sequence[float] | None = None, eps: float = 1e-4) -> Array:
    """A = (x - mean x) / (std x + eps) over the batch, x = sum_j w_j (r_j - mean_g) / (std_g + eps), stds unbiased.

    r_j are the columns of `Episodes.parts`, by default all of weight 1.
    Assumption: parts of the reward (success, use of skills) have scales of their own, and a sum made first would make
    different mixtures of them equal.
    Source: GDPO, arXiv 2601.05242, as TRL's `normalize_then_sum` with its eps. Raises `BadInput` for episodes without
    parts, and for weights that are not one a part.
    """
    if episodes.parts is None:
        raise BadInput("got episodes without `parts`; gdpo expects the parts of each reward, [trajectories, parts]")
    columns = episodes.parts.shape[1]
    given = [1.0] * columns if weights is None else list(weights)
    if len(given) != columns:
        raise BadInput(f"got {len(given)} weights for {columns} parts of the reward; expected one for each part")
    total = np.zeros(len(episodes.rewards))
    for weight, column in zip(given, episodes.parts.T, strict=True):
        total += weight * standardised(column, episodes.groups, eps=eps)
    return episodes.spread(standardised(total, np.zeros(len(total), dtype=np.int64), eps=eps))
