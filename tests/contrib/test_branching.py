"""From which turns a rollout is branched."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contrib.branching.aepo import aepo
from contrib.branching.arpo import arpo

GRID = st.lists(st.tuples(st.integers(-640, 640), st.integers(0, 63)), max_size=12)


def test_arpo_branches_where_the_draw_less_the_rise_is_small() -> None:
    assert arpo(np.array([0, 0.3, 1]), np.array([0.6, 0.55, 0.65])).tolist() == [False, True, True]
    assert arpo(np.array([0.0]), np.array([0.5])).tolist() == [True], "the limit itself branches"
    assert arpo(np.array([1.0]), np.array([0.65]), weight=0.1).tolist() == [False]


def test_arpo_clips_what_it_compares() -> None:
    rises, draws = np.array([50.0, -50.0]), np.array([0.9, 0.1])
    assert arpo(rises, draws, chance=0.0).tolist() == [True, False]
    assert arpo(rises, draws, chance=1.0).tolist() == [True, True]


@given(turns=GRID)
def test_aepo_without_penalty_is_arpo(turns: list[tuple[int, int]]) -> None:
    """Numbers are such that both compute them without rounding."""
    rises, draws = np.array([rise for rise, _ in turns]) / 64, np.array([draw for _, draw in turns]) / 64
    assert aepo(rises, draws, weight=0.25, penalty=0.0).tolist() == arpo(rises, draws, weight=0.25).tolist()


def test_aepo_wants_more_the_longer_it_branched_on_end_and_begins_anew() -> None:
    """By hand: 0.54 is enough for 0.5, 0.54 x 0.95 = 0.513 too, 0.54 x 0.9 = 0.486 is not, then 0.54 is again."""
    assert aepo(np.zeros(4), np.full(4, 0.46)).tolist() == [True, True, False, True]
    assert aepo(np.array([0.0, 0.0, 0.1]), np.full(3, 0.46)).tolist() == [True, True, True], "0.56 x 0.9 = 0.504"
    assert aepo(np.full(30, 1e3), np.zeros(30)).tolist() == [True] * 20 + [False] + [True] * 9, "a factor of 0"
