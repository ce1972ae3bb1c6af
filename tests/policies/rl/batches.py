"""Batches of episodes for the tests of the slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

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
    actions: Sequence[int] | None = None,
) -> Episodes:
    """Return trajectories of `steps` steps each (1), rewarded at the last; one group and new anchors unless given.

    What else a member may want is there: parts of the reward (a half each, the second up to 1), log-probabilities and
    entropies that fall, and actions that follow from the anchor.
    """
    lengths = [1] * len(rewards) if steps is None else list(steps)
    owners = np.repeat(np.arange(len(rewards)), lengths)
    step_rewards = np.zeros(len(owners))
    step_rewards[np.cumsum(lengths) - 1] = rewards
    given = np.array(rewards, dtype=np.float64)
    seen = np.arange(len(owners)) if anchors is None else np.array(anchors, dtype=np.int64)
    return Episodes(
        rewards=given,
        groups=np.array([0] * len(rewards) if groups is None else groups, dtype=np.int64),
        tokens=np.array(lengths, dtype=np.int64) * 3,
        trajectory=owners,
        step_rewards=step_rewards,
        anchors=seen,
        baselines=None if baselines is None else np.array(baselines, dtype=np.float64),
        parts=np.stack([given / 2, np.minimum(given, 1)], axis=1),
        logprobs=-np.arange(len(given)) / 4,
        actions=seen % 2 if actions is None else np.array(actions, dtype=np.int64),
        entropies=1 / (1 + np.arange(len(owners))),
    )


def steps_taken(episodes: Episodes, rows: np.ndarray) -> dict[str, Any]:
    """Return the arrays that have an entry for each step, with the given ones of these."""
    names = ("trajectory", "step_rewards", "anchors", "actions", "entropies")
    return {name: getattr(episodes, name)[rows] for name in names if getattr(episodes, name) is not None}


def reordered(episodes: Episodes, order: Sequence[int]) -> tuple[Episodes, np.ndarray]:
    """Return the batch with its trajectories in another order, and for each of its steps where that stood before."""
    rows = np.concatenate([np.flatnonzero(episodes.trajectory == old) for old in order])
    names = ("rewards", "groups", "tokens", "baselines", "parts", "logprobs")
    moved = {name: getattr(episodes, name)[list(order)] for name in names if getattr(episodes, name) is not None}
    own = steps_taken(episodes, rows)
    own["trajectory"] = np.argsort(order)[own["trajectory"]]
    return replace(episodes, **moved, **own), rows


REWARDS = st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0, 2.0]) | st.floats(-2, 2, allow_subnormal=False)


@st.composite
def batches(draw: st.DrawFn) -> Episodes:
    """Draw 2 to 7 trajectories of 1 to 3 steps in up to 3 groups, with few different observations."""
    size = draw(st.integers(2, 7))
    several = {"min_size": size, "max_size": size}
    steps = draw(st.lists(st.integers(1, 3), **several))
    groups = draw(st.lists(st.integers(0, 2), **several))
    return batch(
        draw(st.lists(REWARDS, **several)),
        groups,
        steps=steps,
        anchors=draw(st.lists(st.integers(0, 3), min_size=sum(steps), max_size=sum(steps))),
        baselines=draw(st.lists(st.sampled_from([0.1, 0.5, 0.7]), **several)),
    )
