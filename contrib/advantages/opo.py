"""OPO: the reward minus the mean of its group in which long answers count more."""

from __future__ import annotations

from policies.rl.groups import Singleton, centred
from policies.rl.protocols import Array, Episodes

__all__ = ["opo"]


def opo(episodes: Episodes, *, singleton: Singleton = "zero") -> Array:
    """A = r - sum_g(l r) / sum_g(l), l the trained tokens of a trajectory.

    Assumption: the gradient of a trajectory's log-probability has a squared norm in proportion to its length, for which
    this baseline has the least variance; and every batch is trained on once, by the policy that sampled it.
    Source: On-policy RL with optimal reward baseline, arXiv 2505.23585. `singleton="raw"` is verl's rule for a group of
    one. A group without a trained token has the baseline of its first trajectory; there is nothing to train in it.
    """
    return episodes.spread(centred(episodes.rewards, episodes.groups, singleton, episodes.tokens))
