"""Which trajectories are trained on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from evolve.training.batches import Prepared
from memory.errors import BadInput
from policies.rl.advantages.grpo import grpo
from policies.rl.filters.everything import Everything
from policies.rl.filters.overlong import Overlong
from policies.rl.filters.zero_variance import ZeroVariance
from policies.rl.protocols import Episodes
from tests.policies.rl.batches import batch, batches


def test_a_group_that_did_equally_well_is_dropped_and_a_group_of_one_kept() -> None:
    episodes = batch([1, 0, 1, 1, 1, 0.3], [0, 0, 4, 4, 2, 0])
    assert ZeroVariance().keep(episodes).tolist() == [True, True, False, False, True, True]


def test_of_nothing_nothing_is_kept() -> None:
    for each in (ZeroVariance(), Overlong(), Everything()):
        assert each.keep(Prepared().episodes).tolist() == []


def test_rewards_that_are_no_round_numbers_are_equal_all_the_same() -> None:
    assert ZeroVariance().keep(batch([0.1, 0.1, 0.1])).tolist() == [False] * 3


@settings(deadline=None)
@given(episodes=batches())
def test_what_is_dropped_would_have_taught_nothing(episodes: Episodes) -> None:
    dropped = ~ZeroVariance().keep(episodes)
    assert (grpo(episodes)[episodes.spread(dropped.astype(np.float64)) == 1] == 0).all()


def test_what_a_limit_cut_off_is_dropped() -> None:
    episodes = batch([1, 0])
    assert Overlong().keep(replace(episodes, truncated=np.array([False, True]))).tolist() == [True, False]
    with pytest.raises(BadInput, match="without `truncated`"):
        Overlong().keep(episodes)
