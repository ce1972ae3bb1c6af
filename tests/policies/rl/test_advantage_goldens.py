"""Advantages of known batches, as computed with the reference code or by hand from the papers' formulas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memory.errors import BadInput
from policies.rl.advantages.dr_grpo import dr_grpo
from policies.rl.advantages.gigpo import gigpo, returns
from policies.rl.advantages.grpo import grpo
from policies.rl.advantages.r3l import r3l
from policies.rl.advantages.rloo import rloo
from policies.rl.advantages.sage import sage
from policies.rl.advantages.spo import spo
from policies.rl.protocols import AdvantageEstimator, Array
from policies.rl.rewards.sage import skill_integrated
from tests.policies.rl.batches import batch

GROUPS = batch([1, 0, 0, 1, 0, 1, 1, 1], [0, 0, 0, 0, 0, 1, 1, 2])
WALK = batch([1, 0, 1], steps=[3, 2, 3], anchors=[0, 1, 2, 0, 1, 0, 3, 1])
"""Trajectory a meets the observations 0, 1, 2, b meets 0, 1 and c meets 0, 3, 1; a and c succeed."""


def close(values: object) -> object:
    return pytest.approx(np.array(values), abs=1e-6)


@pytest.mark.parametrize(
    ("estimator", "of_groups", "of_one"),
    [
        (grpo, [1.095443, -0.730295, -0.730295, 1.095443, -0.730295, 0, 0], 0.999999),
        (dr_grpo, [0.6, -0.4, -0.4, 0.6, -0.4, 0, 0], 1),
        (rloo, [0.75, -0.5, -0.5, 0.75, -0.5, 0, 0], 1),
    ],
)
def test_groups_are_compared_as_in_verl_but_a_group_of_one_gets_0_unless_raw(
    estimator: AdvantageEstimator, of_groups: list[float], of_one: float
) -> None:
    assert estimator(GROUPS) == close([*of_groups, 0])
    assert estimator(GROUPS, singleton="raw") == close([*of_groups, of_one])  # type: ignore[call-arg]


def test_gigpo_discounts_what_comes_later() -> None:
    assert returns(WALK, 0.95) == close([0.9025, 0.95, 1, 0, 0, 0.9025, 0.95, 1])


def test_gigpo_keeps_the_trajectories_apart_when_their_steps_are_interleaved() -> None:
    order = [3, 0, 5, 1, 4, 6, 2, 7]
    mixed = replace(WALK, trajectory=WALK.trajectory[order], step_rewards=WALK.step_rewards[order])
    assert returns(mixed, 0.95) == close(np.array([0.9025, 0.95, 1, 0, 0, 0.9025, 0.95, 1])[order])


STEP_MEAN = [0.300833, 0.3, 0, -0.601667, -0.65, 0.300833, 0, 0.35]
STEP_STD = [0.577349, 0.532413, 0, -1.154698, -1.153561, 0.577349, 0, 0.621148]


def per_step(of_a_and_c: float, of_b: float) -> Array:
    return WALK.spread(np.array([of_a_and_c, of_b, of_a_and_c]))


@pytest.mark.parametrize(
    ("norm", "cross_steps", "episode", "step"),
    [
        ("mean", False, (0.333333, -0.666667), STEP_MEAN),
        ("mean", True, (0.25, -0.75), STEP_MEAN),
        ("mean_std", False, (0.577349, -1.154699), STEP_STD),
        ("mean_std", True, (0.540061, -1.620182), STEP_STD),
    ],
)
def test_gigpo_counts_trajectories_as_in_the_paper_or_steps_as_in_the_code(
    norm: str, cross_steps: bool, episode: tuple[float, float], step: list[float]
) -> None:
    options = {"norm": norm, "cross_steps": cross_steps}
    assert gigpo(WALK, step_weight=0, **options) == close(per_step(*episode))  # type: ignore[arg-type]
    assert gigpo(WALK, **options) == close(per_step(*episode) + np.array(step))  # type: ignore[arg-type]


def test_gigpo_as_released_counts_every_step() -> None:
    expected = [0.550833, 0.55, 0.25, -1.351667, -1.4, 0.550833, 0.25, 0.6]
    assert gigpo(WALK, cross_steps=True) == close(expected)
    expected = [1.117410, 1.072473, 0.540061, -2.774880, -2.773743, 1.117410, 0.540061, 1.161209]
    assert gigpo(WALK, cross_steps=True, norm="mean_std") == close(expected)


def test_gigpo_counts_trajectories_unless_told_otherwise() -> None:
    assert gigpo(WALK) == close(gigpo(WALK, cross_steps=False, norm="mean", gamma=0.95, step_weight=1))


def test_gigpo_keeps_equal_observations_of_different_prompts_apart() -> None:
    alone = batch([1, 0], [0, 1], anchors=[7, 7])
    assert gigpo(alone) == close([0, 0])
    assert gigpo(batch([1, 0], anchors=[7, 7])) == close([1, -1])


def test_r3l_triples_what_went_well_and_caps_success() -> None:
    assert r3l(batch([1, 0.5, 0, 0])) == close([1, 0.375, -0.375, -0.375])


def test_r3l_keeps_a_success_without_peers_and_a_group_of_successes() -> None:
    assert r3l(batch([1, 0.5], [0, 1])) == close([1, 1.5])
    assert r3l(batch([1, 0.5], [0, 1]), singleton="zero") == close([1, 0])
    assert r3l(batch([1, 1])) == close([1, 1])


def test_sage_compares_the_same_position_of_the_same_chain() -> None:
    first = skill_integrated(np.array([1.0, 1.0]), np.array([[False, True], [False, False]]))
    second = skill_integrated(np.array([1.0, 0.0]), np.array([[False, True], [False, False]]))
    assert sage(batch([*first, *second], [0, 1, 0, 1])) == close([0.5, 1, -0.5, -1])
    assert sage(batch([2.0])) == close([0])


def test_spo_takes_the_trackers_value_from_the_reward() -> None:
    assert spo(batch([1], baselines=[0.388889]), normalise=False) == close([0.611111])
    assert spo(batch([1, 0], baselines=[0.5, 0.25])) == close([0.5**0.5, -(0.5**0.5)])


def test_spo_refuses_a_batch_without_baselines_and_a_batch_of_one() -> None:
    with pytest.raises(BadInput, match="without `baselines`"):
        spo(batch([1, 0]))
    with pytest.raises(BadInput, match="batch of 1; expected at least 2"):
        spo(batch([1], baselines=[0.5]))


def test_a_misspelt_option_is_refused() -> None:
    with pytest.raises(BadInput, match="got singleton='none'; expected 'zero' or 'raw'"):
        grpo(GROUPS, singleton="none")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="got norm='std'; expected 'mean' or 'mean_std'"):
        gigpo(WALK, norm="std")  # type: ignore[arg-type]
