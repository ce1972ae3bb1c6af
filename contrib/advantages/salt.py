"""SALT: what several trajectories of a group did alike gets the mean of their advantages."""

from __future__ import annotations

import numpy as np

from memory.errors import BadInput
from policies.rl.advantages.grpo import grpo
from policies.rl.groups import numbered
from policies.rl.protocols import AdvantageEstimator, Array, Episodes, Ints

__all__ = ["salt"]


def salt(episodes: Episodes, *, base: AdvantageEstimator = grpo, history: int = 0) -> Array:
    """A = mean of `base` over the trajectories that share the step's edge; `base` itself where no other shares it.

    An edge is (group, anchor, action); with `history` h the h edges before it belong to it too. A trajectory that takes
    an edge several times counts once in its mean.
    Assumption: what successes and failures have in common decided nothing, and what sets them apart is where they
    differ.
    Source: SALT, arXiv 2510.20022, from its abstract and descriptions; there is no public code. Deviations: its window
    and what makes two states equal are not known, hence `history`; the state after the action is not compared.
    Raises `BadInput` for episodes without `actions`, and a negative `history`.
    """
    if episodes.actions is None:
        raise BadInput("got episodes without `actions`; salt expects a hash of what each step did")
    if history < 0:
        raise BadInput(f"got history={history}; expected how many earlier edges have to agree, 0 or more")
    own = base(episodes)
    edges = _edges(episodes, episodes.actions, history)
    visits = numbered(edges, episodes.trajectory)
    weights = 1.0 / np.bincount(visits)[visits]
    shared = np.bincount(edges, weights)[edges]
    means = np.bincount(edges, weights * own)[edges] / shared
    return np.where(np.rint(shared) > 1, means, own)


def _edges(episodes: Episodes, actions: Ints, history: int) -> Ints:
    """Return [s]: a number for each edge with the `history` edges before it; none before the first is one too."""
    edges = numbered(episodes.groups[episodes.trajectory], episodes.anchors, actions)
    before = _previous(episodes.trajectory)
    single = edges
    for _ in range(history):
        earlier = np.where(before >= 0, edges[before], -1)
        edges = numbered(single, earlier)
    return edges


def _previous(trajectory: Ints) -> Ints:
    """Return [s]: where the step before stands in the same trajectory, -1 for the first."""
    last: dict[int, int] = {}
    found = np.full(len(trajectory), -1, dtype=np.int64)
    for step, owner in enumerate(trajectory.tolist()):
        found[step] = last.get(owner, -1)
        last[owner] = step
    return found
