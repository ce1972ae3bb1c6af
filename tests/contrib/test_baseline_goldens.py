"""Experimental advantages that compare whole trajectories: reference figures, or by hand from the papers' formulas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from contrib.advantages.gdpo import gdpo
from contrib.advantages.mc_grpo import mc_grpo
from contrib.advantages.opo import opo
from contrib.advantages.pass_at_k import pass_at_k
from contrib.advantages.reinforce_pp import reinforce_pp
from contrib.filters.mc_median import McMedian
from memory.errors import BadInput
from policies.rl.protocols import Array, Episodes
from tests.policies.rl.batches import batch, batches

GROUPS = batch([1, 0, 0, 1, 0, 1, 1, 1], [0, 0, 0, 0, 0, 1, 1, 2])


def close(values: object) -> object:
    return pytest.approx(np.array(values), abs=1e-6)


def parts(values: list[list[float]], groups: list[int]) -> Episodes:
    return replace(batch([sum(row) for row in values], groups), parts=np.array(values, dtype=np.float64))


def test_opo_is_as_in_verl_where_lengths_are_equal_and_gives_a_group_of_one_0_unless_raw() -> None:
    assert opo(GROUPS) == close([0.6, -0.4, -0.4, 0.6, -0.4, 0, 0, 0])
    assert opo(GROUPS, singleton="raw")[-1] == 1


def test_opo_weighs_the_baseline_by_length() -> None:
    """Lengths 3, 6, 9: the baseline is (3 x 1) / 18."""
    found = opo(batch([1, 0, 0], steps=[1, 2, 3]))
    assert found == close([5 / 6, *[-1 / 6] * 5])
    nothing_said = replace(batch([1, 0]), tokens=np.zeros(2, dtype=np.int64))
    assert np.isfinite(opo(nothing_said)).all()


def test_reinforce_pp_whitens_over_tokens_as_in_verl() -> None:
    expected = [0.913036, -1.009145, -1.009145, 0.913036, -1.009145, -0.240273, -0.240273, 1.681908]
    assert reinforce_pp(GROUPS, singleton="raw") == close(expected)


def test_reinforce_pp_counts_a_trajectory_by_its_tokens() -> None:
    """x = +-.5 with 3 and 9 tokens: mean -.25, variance (3 x .75^2 + 9 x .25^2) / 11 = 2.25 / 11."""
    found = reinforce_pp(batch([1, 0], steps=[1, 3]))
    deviation = np.sqrt(2.25 / 11 + 1e-8)
    assert found == close([0.75 / deviation, *[-0.25 / deviation] * 3])
    with pytest.raises(BadInput, match="batch of 1 trained tokens; expected at least 2"):
        reinforce_pp(replace(batch([1]), tokens=np.array([1])))


def test_pass_at_k_pays_the_best_for_its_lead() -> None:
    """By hand: .9 - .6 in the first group; two are best in the second; the third has one alone."""
    found = pass_at_k(batch([0.2, 0.9, 0.6, 1, 1, 0, 0.7], [0, 0, 0, 1, 1, 1, 2]))
    assert found == close([0, 0.3, 0, 0, 0, 0, 0])
    assert pass_at_k(batch([0, 1], steps=[1, 2])) == close([0, 1, 1])


def test_mc_grpo_is_as_released_where_its_mad_is_above_the_floor() -> None:
    five = batch([0, 0.2, 0.4, 0.7, 1])
    expected = [-1.66113, -0.830565, 0, 1.245847, 2.491695]
    assert mc_grpo(five) == close(expected)
    assert mc_grpo(five, floor=0.0) == close(expected)
    assert McMedian().keep(five).tolist() == [True, True, False, True, True]


@pytest.mark.parametrize(
    ("rewards", "released", "ours"),
    [([0, 1, 0, 0, 1], 2500, 2.5 / 0.251), ([0, 0, 0, 0, 1], 5000, 5 / 0.251)],
)
def test_mc_grpo_does_not_blow_up_where_most_did_alike(rewards: list[float], released: float, ours: float) -> None:
    won = np.array(rewards)
    assert mc_grpo(batch(rewards), floor=0.0) == pytest.approx(released * won)
    assert mc_grpo(batch(rewards)) == close(ours * won)
    with pytest.raises(BadInput, match=r"got floor=-0\.1"):
        mc_grpo(batch(rewards), floor=-0.1)


def test_one_is_dropped_of_each_odd_group_and_none_of_an_even_one() -> None:
    episodes = batch([0, 1, 0, 0, 1, 0, 1, 3, 2, 1, 7], [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3])
    dropped = [False, True, True, True, True, True, True, True, False, True, True]
    assert McMedian().keep(episodes).tolist() == dropped


@settings(deadline=None)
@given(episodes=batches())
def test_what_is_dropped_at_the_median_taught_nothing(episodes: Episodes) -> None:
    dropped = ~McMedian().keep(episodes)
    assert (mc_grpo(episodes)[dropped[episodes.trajectory]] == 0).all()


def of_two_parts(weights: list[float] | None = None) -> Array:
    """Return advantages of two pairs: in the first the skill's part is equal, in the second it differs too."""
    return gdpo(parts([[1, 0], [0, 0], [1, 1], [0, 0]], [0, 0, 1, 1]), weights=weights)


def test_gdpo_keeps_what_a_sum_made_first_would_make_equal() -> None:
    """TRL's `normalize_then_sum` by hand.

    Each part that differs is +-.5 / (.707107 + 1e-4) = +-.707007; sums +-.707007 and +-1.414014, of mean 0 and
    deviation sqrt(2 (.499859 + 1.999435) / 3) = 1.290812; divided by that + 1e-4.
    """
    assert of_two_parts() == close([0.547680, -0.547680, 1.095360, -1.095360])


def test_gdpo_weighs_the_parts() -> None:
    """A part of weight 0 is not there: +-.707007 four times, of deviation sqrt(4 x .499859 / 3) = .816381."""
    assert of_two_parts([1, 0]) == close([0.707007 / 0.816481, -0.707007 / 0.816481] * 2)
    with pytest.raises(BadInput, match="got 1 weights for 2 parts"):
        of_two_parts([1])
    with pytest.raises(BadInput, match="episodes without `parts`"):
        gdpo(replace(batch([1, 0]), parts=None))
