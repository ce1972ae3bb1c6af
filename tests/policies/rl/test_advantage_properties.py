"""What holds for every advantage that ships here, whatever the batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from policies.rl import slots
from policies.rl.advantages.gigpo import gigpo
from policies.rl.protocols import Episodes
from tests.policies.rl.batches import REWARDS, batch, batches, reordered, steps_taken

every = pytest.mark.parametrize("name", slots.names("advantages"))
OF_BATCHES = ("gdpo", "reinforce_pp", "spo")
"""Those that are normalised over the whole batch."""
of_groups = pytest.mark.parametrize("name", [name for name in slots.names("advantages") if name not in OF_BATCHES])
BY_STEP = {"gigpo": {"step_weight": 0.0}, "aepo": {"strength": 0.0}}
"""Options under which a member gives all steps of a trajectory the same."""
patient = settings(deadline=None, max_examples=30)


def close(values: object) -> object:
    return pytest.approx(np.array(values), abs=1e-6)


@every
@patient
@given(episodes=batches())
def test_there_is_one_finite_advantage_per_step(name: str, episodes: Episodes) -> None:
    advantages = slots.make("advantages", name)(episodes)
    assert advantages.shape == episodes.trajectory.shape
    assert np.isfinite(advantages).all()


@every
@patient
@given(episodes=batches(), data=st.data())
def test_the_order_of_trajectories_does_not_matter(name: str, episodes: Episodes, data: st.DataObject) -> None:
    estimator = slots.make("advantages", name)
    other, rows = reordered(episodes, data.draw(st.permutations(range(len(episodes.rewards)))))
    assert estimator(other) == close(estimator(episodes)[rows])


@every
@patient
@given(episodes=batches())
def test_the_numbers_of_groups_are_mere_names(name: str, episodes: Episodes) -> None:
    estimator = slots.make("advantages", name)
    assert estimator(replace(episodes, groups=5 - 2 * episodes.groups)) == close(estimator(episodes))


@every
@patient
@given(reward=REWARDS.filter(lambda reward: reward < 1), size=st.integers(2, 5))
def test_a_group_that_did_equally_well_gets_0(name: str, reward: float, size: int) -> None:
    episodes = batch([reward] * size, anchors=[3] * size, baselines=[0.5] * size)
    assert (slots.make("advantages", name)(episodes) == 0).all()


@of_groups
@patient
@given(episodes=batches(), reward=REWARDS)
def test_another_groups_rewards_do_not_matter(name: str, episodes: Episodes, reward: float) -> None:
    estimator = slots.make("advantages", name)
    first = episodes.groups[0]
    other = replace(episodes, rewards=np.where(episodes.groups == first, reward, episodes.rewards))
    elsewhere = episodes.spread(episodes.groups) != first
    assert (estimator(other)[elsewhere] == estimator(episodes)[elsewhere]).all()


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "sage"])
@patient
@given(rewards=st.lists(REWARDS, min_size=1, max_size=6))
def test_a_groups_advantages_sum_to_0(name: str, rewards: list[float]) -> None:
    assert slots.make("advantages", name)(batch(rewards)).sum() == close(0.0)


@pytest.mark.parametrize("name", slots.names("advantages"))
@patient
@given(episodes=batches(), times=st.integers(2, 4))
def test_a_trajectory_weighs_the_same_however_many_steps_it_has(name: str, episodes: Episodes, times: int) -> None:
    estimator = slots.make("advantages", name, BY_STEP.get(name))
    rows = np.repeat(np.arange(len(episodes.trajectory)), np.where(episodes.trajectory == 0, times, 1))
    longer = replace(episodes, **steps_taken(episodes, rows))
    assert estimator(longer) == close(estimator(episodes)[rows])


def test_gigpo_across_steps_lets_long_trajectories_dominate() -> None:
    short, long = batch([1, 0], steps=[1, 1]), batch([1, 0], steps=[3, 1])
    assert gigpo(short, step_weight=0, cross_steps=True) == close([0.5, -0.5])
    assert gigpo(long, step_weight=0, cross_steps=True) == close([0.25, 0.25, 0.25, -0.75])


@patient
@given(episodes=batches())
def test_a_step_that_nobody_else_met_adds_nothing_in_gigpo(episodes: Episodes) -> None:
    alone = replace(episodes, anchors=np.arange(len(episodes.anchors)))
    assert (gigpo(alone) == gigpo(alone, step_weight=0)).all()


@patient
@given(rewards=st.lists(REWARDS, min_size=2, max_size=6))
def test_rloo_is_the_reward_minus_the_mean_of_the_others(rewards: list[float]) -> None:
    others = [np.mean(rewards[:i] + rewards[i + 1 :]) for i in range(len(rewards))]
    assert slots.make("advantages", "rloo")(batch(rewards)) == close(np.array(rewards) - others)


@patient
@given(rewards=st.lists(REWARDS, min_size=2, max_size=6), scale=st.floats(0.5, 4), shift=st.floats(-3, 3))
def test_grpo_does_not_depend_on_the_scale_of_rewards(rewards: list[float], scale: float, shift: float) -> None:
    assume(np.std(rewards) > 0.1)
    grpo = slots.make("advantages", "grpo")
    moved = [scale * reward + shift for reward in rewards]
    assert grpo(batch(moved)) == pytest.approx(grpo(batch(rewards)), abs=1e-3)
