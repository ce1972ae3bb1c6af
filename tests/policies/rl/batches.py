"""Batches of episodes for the tests of the slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from policies.rl.protocols import Episodes


def batch(
    rewards: Sequence[float],
    groups: Sequence[int] | None = None,
    *,
    steps: Sequence[int] | None = None,
    anchors: Sequence[int] | None = None,
    baselines: Sequence[float] | None = None,
) -> Episodes:
    """Return trajectories of `steps` steps each (1), rewarded at the last; one group and new anchors unless given."""
    lengths = [1] * len(rewards) if steps is None else list(steps)
    owners = np.repeat(np.arange(len(rewards)), lengths)
    step_rewards = np.zeros(len(owners))
    step_rewards[np.cumsum(lengths) - 1] = rewards
    return Episodes(
        rewards=np.array(rewards, dtype=np.float64),
        groups=np.array([0] * len(rewards) if groups is None else groups, dtype=np.int64),
        tokens=np.array(lengths, dtype=np.int64) * 3,
        trajectory=owners,
        step_rewards=step_rewards,
        anchors=np.arange(len(owners)) if anchors is None else np.array(anchors, dtype=np.int64),
        baselines=None if baselines is None else np.array(baselines, dtype=np.float64),
    )


def reordered(episodes: Episodes, order: Sequence[int]) -> tuple[Episodes, np.ndarray]:
    """Return the batch with its trajectories in another order, and for each of its steps where that stood before."""
    rows = np.concatenate([np.flatnonzero(episodes.trajectory == old) for old in order])
    place = np.argsort(order)
    return (
        replace(
            episodes,
            rewards=episodes.rewards[list(order)],
            groups=episodes.groups[list(order)],
            tokens=episodes.tokens[list(order)],
            trajectory=place[episodes.trajectory[rows]],
            step_rewards=episodes.step_rewards[rows],
            anchors=episodes.anchors[rows],
            baselines=None if episodes.baselines is None else episodes.baselines[list(order)],
        ),
        rows,
    )


REWARDS = st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0, 2.0]) | st.floats(-2, 2, allow_subnormal=False)


@st.composite
def batches(draw: st.DrawFn) -> Episodes:
    """Draw 2 to 7 trajectories of 1 to 3 steps in up to 3 groups, with few different observations."""
    size = draw(st.integers(2, 7))
    several = {"min_size": size, "max_size": size}
    steps = draw(st.lists(st.integers(1, 3), **several))
    return batch(
        draw(st.lists(REWARDS, **several)),
        draw(st.lists(st.integers(0, 2), **several)),
        steps=steps,
        anchors=draw(st.lists(st.integers(0, 3), min_size=sum(steps), max_size=sum(steps))),
        baselines=draw(st.lists(st.sampled_from([0.1, 0.5, 0.7]), **several)),
    )
