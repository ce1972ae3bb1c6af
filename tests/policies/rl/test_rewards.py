"""Rewards beyond a task's own grade."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import BadInput
from policies.rl.rewards.sage import skill_integrated


def uses(size: int, *pairs: tuple[int, int]) -> np.ndarray:
    """Return [made, used later] with True at the pairs."""
    used = np.zeros((size, size), dtype=np.bool_)
    for pair in pairs:
        used[pair] = True
    return used


@pytest.mark.parametrize(
    ("first", "second", "used", "expected"),
    [
        (1, 1, True, [2, 2]),
        (1, 1, False, [1, 1]),
        (1, 0, True, [1, 0]),
        (0, 1, True, [0, 2]),
        (0, 0, True, [0, 0]),
    ],
)
def test_a_chain_of_two_is_paid_as_in_the_paper(first: int, second: int, used: bool, expected: list[float]) -> None:
    pairs = [(0, 1)] if used else []
    assert skill_integrated(np.array([first, second], dtype=np.float64), uses(2, *pairs)).tolist() == expected


def test_in_a_longer_chain_each_bonus_is_paid_once() -> None:
    success = np.array([1.0, 1.0, 1.0])
    assert skill_integrated(success, uses(3, (0, 1), (0, 2), (1, 2))).tolist() == [2, 3, 2]
    assert skill_integrated(np.array([1.0, 0.0, 1.0]), uses(3, (0, 1))).tolist() == [1, 0, 1]
    assert skill_integrated(np.array([1.0, 0.0, 1.0]), uses(3, (0, 1), (0, 2))).tolist() == [2, 0, 2]


@pytest.mark.parametrize(
    ("success", "malformed", "expected"),
    [
        ([1, 1], [False, True], [1, -1]),
        ([0, 0], [False, True], [0, -1]),
        ([1, 1], [True, False], [-1, 2]),
        ([0, 1], [True, False], [-1, 2]),
        ([1, 1], [True, True], [-1, -1]),
    ],
)
def test_a_malformed_reply_costs_1_and_its_use_of_a_skill_pays_nobody(
    success: list[float], malformed: list[bool], expected: list[float]
) -> None:
    """The use of a function that such an episode wrote is paid as any other, by what became of the later task."""
    rewards = skill_integrated(np.array(success, dtype=np.float64), uses(2, (0, 1)), malformed=np.array(malformed))
    assert rewards.tolist() == expected


@given(st.lists(st.booleans(), min_size=1, max_size=5))
def test_without_skills_the_reward_is_success(success: list[bool]) -> None:
    outcome = np.array(success, dtype=np.float64)
    assert (skill_integrated(outcome, uses(len(success))) == outcome).all()


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(BadInput, match="expected 0 or 1 for each task"):
        skill_integrated(np.array([0.5, 1.0]), uses(2))
    with pytest.raises(BadInput, match="expected 0 or 1 for each task"):
        skill_integrated(np.array([np.nan, 1.0]), uses(2))
    with pytest.raises(BadInput, match="it may be transposed"):
        skill_integrated(np.array([1.0, 1.0]), uses(2, (1, 0)))
    with pytest.raises(BadInput, match=r"expected \[m\], \[m, m\] and \[m\]"):
        skill_integrated(np.array([1.0, 1.0]), uses(3))
