"""How many rollouts each prompt gets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.errors import BadInput
from policies.rl import slots
from policies.rl.allocators.fixed import Fixed
from policies.rl.allocators.knapsack import Knapsack, gain, mixed, value
from policies.rl.protocols import PromptStats


def known(*rates: float) -> PromptStats:
    return PromptStats(np.array(rates), np.ones(len(rates), dtype=np.bool_))


def worth(counts: np.ndarray, rates: list[float]) -> float:
    return sum(value(int(count), rate) for count, rate in zip(counts, rates, strict=True))


@pytest.mark.parametrize("name", slots.names("allocators"))
@settings(deadline=None)
@given(
    rates=st.lists(st.sampled_from([0.0, 1.0]) | st.floats(0, 1), min_size=1, max_size=8),
    seen=st.lists(st.booleans(), min_size=8, max_size=8),
    data=st.data(),
)
def test_what_is_given_sums_to_the_budget(name: str, rates: list[float], seen: list[bool], data: st.DataObject) -> None:
    stats = PromptStats(np.array(rates), np.array(seen[: len(rates)]))
    budget = data.draw(st.integers(2 * len(rates), 32 * len(rates)))
    counts = slots.make("allocators", name).allocate(stats, budget)
    assert counts.sum() == budget
    assert ((counts >= 2) & (counts <= 32)).all()


def test_fixed_gives_everyone_the_same() -> None:
    assert Fixed().allocate(known(0, 0.5, 1), 24).tolist() == [8, 8, 8]
    assert Fixed().allocate(known(0, 0.5, 1), 8).tolist() == [3, 3, 2]
    with pytest.raises(BadInput, match="got a budget of 2 for 3 prompts"):
        Fixed().allocate(known(0, 0.5, 1), 2)


@pytest.mark.parametrize(
    ("rate", "count", "expected"),
    [(0.5, 8, 0.992188), (0.05, 8, 0.336580), (0.05, 64, 0.962476), (0.9, 8, 0.569533), (0.25, 8, 0.899872)],
)
def test_the_chance_of_a_mixed_group(rate: float, count: int, expected: float) -> None:
    assert mixed(count, rate) == pytest.approx(expected, abs=1e-6)


def test_a_mixed_group_is_worth_most_where_success_is_rare_but_not_too_rare() -> None:
    assert value(8, 0.5) == pytest.approx(0.124023, abs=1e-6)
    assert value(8, 0.25) == pytest.approx(0.126544, abs=1e-6)


@given(rate=st.floats(0.001, 0.999), count=st.integers(0, 40))
def test_the_gain_is_the_difference_of_values_and_falls(rate: float, count: int) -> None:
    assert gain(count, rate) == pytest.approx(value(count + 1, rate) - value(count, rate), abs=1e-12)
    assert gain(count + 1, rate) <= gain(count, rate)


def test_rollouts_go_where_groups_are_hard_to_mix() -> None:
    rates = np.array([0.5, 0.125, 0.875, 0.0, 1.0, 0.5])
    stats = PromptStats(rates, np.array([True] * 5 + [False]))
    assert Knapsack().allocate(stats, 48).tolist() == [8, 21, 7, 2, 2, 8]


def test_the_heap_is_better_than_a_program_that_values_no_extra_rollout_at_0() -> None:
    rates = [0.279, 0.059, 0.036, 0.801, 0.896, 0.602]
    released = np.array([11, 16, 3, 8, 3, 7])
    ours = Knapsack(most=16).allocate(known(*rates), 48)
    assert ours.tolist() == [11, 16, 3, 8, 2, 8]
    assert worth(released, rates) == pytest.approx(0.298577, abs=1e-6)
    assert worth(ours, rates) == pytest.approx(0.298852, abs=1e-6)


@settings(deadline=None, max_examples=150)
@given(rates=st.lists(st.floats(0.01, 0.99), min_size=1, max_size=4), data=st.data())
def test_no_other_way_to_spend_the_budget_is_worth_more(rates: list[float], data: st.DataObject) -> None:
    budget = data.draw(st.integers(2 * len(rates), 7 * len(rates)))
    ours = Knapsack(least=2, most=7).allocate(known(*rates), budget)
    ways = itertools.product(range(2, 8), repeat=len(rates))
    best = max(worth(np.array(way), rates) for way in ways if sum(way) == budget)
    assert worth(ours, rates) == pytest.approx(best, abs=1e-12)


def test_what_nobody_else_may_take_goes_to_whoever_has_fewest() -> None:
    assert Knapsack().allocate(known(0.5, 0.0, 1.0), 24).tolist() == [20, 2, 2]
    assert Knapsack(most=8).allocate(known(0.5, 0.0, 1.0), 24).tolist() == [8, 8, 8]
    assert Knapsack().allocate(known(1.0, 0.0), 16).tolist() == [8, 8]


def test_a_budget_that_cannot_be_spent_is_refused() -> None:
    for budget in (3, 65):
        with pytest.raises(BadInput, match=f"budget of {budget} for 2 prompts; expected 2 to 32 rollouts for each"):
            Knapsack().allocate(known(0.5, 0.5), budget)
    with pytest.raises(BadInput, match="expected 1 <= least <= most"):
        Knapsack(least=4, most=2)
