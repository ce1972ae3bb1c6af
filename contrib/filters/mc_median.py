"""MC-GRPO's filter: the trajectory at the median is not trained on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.rl.protocols import Episodes, Flags

__all__ = ["McMedian"]


@dataclass(frozen=True)
class McMedian:
    """Drop one trajectory, the first, at the median reward of each group of an odd number, three at least.

    Assumption: the advantages are those of `mc_grpo`, 0 at the median, and one trajectory more was sampled than is
    trained on; an even group has none in its middle and stays whole.
    Source: MC-GRPO, arXiv 2601.22582.
    """

    def keep(self, episodes: Episodes) -> Flags:
        """Return [n], False for what is dropped."""
        kept = np.ones(len(episodes.rewards), dtype=np.bool_)
        for group in np.unique(episodes.groups):
            members = np.flatnonzero(episodes.groups == group)
            if len(members) >= 3 and len(members) % 2:
                rewards = episodes.rewards[members]
                kept[members[np.argmax(rewards == np.median(rewards))]] = False
        return kept
