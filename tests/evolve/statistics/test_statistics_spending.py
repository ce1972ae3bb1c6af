"""What the stages of all looks at one change may spend, together.

S1  the first stage asks for the minimum wins of the reference's table (p < 0.05)
S2  whatever flips, all that is spent stays below the error; where too few flipped nothing is spent
S3  a change that does nothing crosses a boundary of any of its looks with at most that chance: summed exactly
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.gates.held_out_rules import Rules
from evolve.statistics.paired import minimum_wins
from evolve.statistics.spending import after, level_of, stages

ERROR = Rules().error


def test_stages_double_up_to_all_tasks() -> None:
    assert stages(72, 12) == (12, 24, 48, 72)
    assert (stages(12, 12), stages(5, 12), stages(60, 60)) == ((12,), (5,), (60,))
    assert all(stages(size, 12) == stages(72, 12)[: at + 1] for at, size in enumerate(stages(72, 12)))


def test_s1_the_first_stage_asks_for_what_the_table_asks() -> None:
    """Reference, section 5.6; 4 flips can never be enough."""
    expected = {5: 5, 6: 6, 7: 7, 8: 7, 9: 8, 10: 9, 11: 9, 12: 10}
    assert {flips: minimum_wins(flips, level_of(ERROR)) for flips in expected} == expected
    assert after(ERROR, 4) == ERROR
    assert after(ERROR, 5) == ERROR - 1 / 32


@given(st.lists(st.integers(0, 100), max_size=30))
def test_s2_no_more_is_spent_than_there_is(flips: list[int]) -> None:
    left = ERROR
    for flipped in flips:
        assert 0 < after(left, flipped) <= left
        left = after(left, flipped)


@pytest.mark.parametrize("flips", [[12, 16], [12, 24, 48, 72], [0, 3, 6, 9], [2, 5, 9, 16], [5, 5, 5, 8]])
@pytest.mark.parametrize("looks", [1, 3, 8])
def test_s3_the_chance_to_cross_any_boundary_is_below_the_error(flips: Sequence[int], looks: int) -> None:
    left, missed = ERROR, 1.0
    for _ in range(looks):
        crossed, left = crossing(flips, left)
        missed *= 1 - crossed
    assert 0.01 < 1 - missed < ERROR


def crossing(flips: Sequence[int], left: float) -> tuple[float, float]:
    """Return the exact chance that fair coins cross a boundary of one look, and what the look leaves."""
    below, thrown = {0: 1.0}, 0
    for flipped in flips:
        new = flipped - thrown
        spread: dict[int, float] = {}
        for won, chance in below.items():
            for more in range(new + 1):
                spread[won + more] = spread.get(won + more, 0.0) + chance * comb(new, more) / 2**new
        wins = minimum_wins(flipped, level_of(left))
        below = {won: chance for won, chance in spread.items() if wins is None or won < wins}
        thrown, left = flipped, after(left, flipped)
    return 1 - sum(below.values()), left
