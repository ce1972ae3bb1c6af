"""XRPO's rollouts for each prompt. That any allocator spends its budget is tested with those of the core."""

from __future__ import annotations

import pytest

from contrib.allocators.xrpo import Xrpo
from memory.errors import BadInput
from tests.policies.rl.test_allocators import known


def test_xrpo_gives_to_the_widest_interval_that_a_rollout_narrows_most() -> None:
    """By hand, s = .5, .3 and 0: a third rollout narrows by 6.500506 s, a fourth by .892915 s, a fifth by .349559 s."""
    order = [[3, 2, 2], [3, 3, 2], [4, 3, 2], [4, 4, 2], [5, 4, 2]]
    for more, expected in enumerate(order, start=1):
        assert Xrpo(explore=0.0).allocate(known(0.5, 0.1, 1.0), 6 + more).tolist() == expected


def test_xrpo_explores_what_was_tried_least() -> None:
    assert Xrpo(explore=100.0).allocate(known(0.5, 0.1, 1.0), 12).tolist() == [4, 4, 4]
    assert Xrpo().allocate(known(1.0, 1.0), 10).tolist() == [5, 5]
    assert Xrpo(explore=0.0, most=6).allocate(known(0.5, 1.0), 12).tolist() == [6, 6]


def test_xrpo_refuses_what_it_cannot_spend() -> None:
    with pytest.raises(BadInput, match="budget of 3 for 2 prompts; expected 2 to 32 rollouts for each"):
        Xrpo().allocate(known(0.5, 0.5), 3)
    with pytest.raises(BadInput, match="expected 2 <= least <= most"):
        Xrpo(least=1)
