"""MC-GRPO: the reward in median absolute deviations from its group's median."""

from __future__ import annotations

import numpy as np

from memory.errors import BadInput
from policies.rl.protocols import Array, Episodes

__all__ = ["mc_grpo"]


def mc_grpo(episodes: Episodes, *, floor: float = 0.25, eps: float = 1e-3) -> Array:
    """A = n / m (r - median_g) / (max(MAD_g, floor) + eps), MAD = median |r - median_g|; m of the n differ from it.

    Assumption: in small groups a mean moves with every outlier and turns signs; a median does not. One trajectory more
    than is trained on is sampled, an odd number, so that one stands at the median and is dropped (filter `mc_median`).
    Source: MC-GRPO, arXiv 2601.22582, constants of the released code. Deviation: that code has no floor; where most of
    a group did alike (binary rewards nearly always) its MAD is 0 and the others get advantages of thousands. `floor`,
    in units of reward, is ours; 0 is the released code. Of an even group the median is between the two in the middle.
    Raises `BadInput` for a floor below 0.
    """
    if floor < 0:
        raise BadInput(f"got floor={floor}; expected 0 (the released code) or more, in units of reward")
    advantages = np.zeros(len(episodes.rewards))
    for group in np.unique(episodes.groups):
        members = episodes.groups == group
        distances = episodes.rewards[members] - np.median(episodes.rewards[members])
        factor = len(distances) / max(int((distances != 0).sum()), 1)
        advantages[members] = factor * distances / (max(float(np.median(np.abs(distances))), floor) + eps)
    return episodes.spread(advantages)
