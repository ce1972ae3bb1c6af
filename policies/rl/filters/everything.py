"""No filter: the advantages alone say what is learned from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.rl.protocols import Episodes, Flags

__all__ = ["Everything"]


@dataclass(frozen=True)
class Everything:
    """Keep all trajectories.

    Assumption: the advantages are those of an estimator that learns from groups that did alike, as `r3l` does from
    successes alone; others give such groups 0, and then they only dilute the batch.
    Source: R3L, arXiv 2601.03715, trains on its whole batch.
    """

    def keep(self, episodes: Episodes) -> Flags:
        """Return [n], all True."""
        return np.ones(len(episodes.rewards), dtype=np.bool_)
