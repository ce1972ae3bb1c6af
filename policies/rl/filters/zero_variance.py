"""DAPO's dynamic sampling: groups in which all did equally well are dropped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.rl.groups import centred, sizes
from policies.rl.protocols import Episodes, Flags

__all__ = ["ZeroVariance"]


@dataclass(frozen=True)
class ZeroVariance:
    """Keep a group where std_g(r) > 0, and a group of one.

    Assumption: advantages compare within a group, so that equal rewards give no gradient and only dilute the batch; the
    caller rolls out more groups to fill it. Of no use with `spo` and `r3l`, whose baselines are others.
    Source: DAPO, arXiv 2503.14476, dynamic sampling.
    """

    def keep(self, episodes: Episodes) -> Flags:
        """Return [n], False throughout each group of several equal rewards."""
        differs = set(episodes.groups[centred(episodes.rewards, episodes.groups) != 0].tolist())
        alone = sizes(episodes.groups) == 1
        return alone | np.isin(episodes.groups, list(differs))
