"""What the slots are given is checked once, where it is put together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memory.errors import BadInput
from policies.rl.protocols import PromptStats
from tests.policies.rl.batches import batch


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_no_number_is_refused(bad: float) -> None:
    with pytest.raises(BadInput, match=rf"got rewards\[1\] = {bad}; expected finite numbers: drop what could not"):
        batch([1, bad])
    episodes = batch([1, 0])
    with pytest.raises(BadInput, match=rf"got step_rewards\[0\] = {bad}"):
        replace(episodes, step_rewards=np.array([bad, 0]))
    with pytest.raises(BadInput, match=rf"got baselines\[0\] = {bad}"):
        replace(episodes, baselines=np.array([bad, 0]))


@pytest.mark.parametrize("name", ["groups", "tokens", "baselines", "truncated", "logprobs"])
def test_what_is_not_one_entry_per_trajectory_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=rf"got {name} of shape \(3,\); expected \(2,\): one entry for each trajectory"):
        replace(batch([1, 0], steps=[2, 2]), **{name: np.zeros(3, dtype=np.int64)})


@pytest.mark.parametrize("name", ["step_rewards", "anchors", "actions", "entropies"])
def test_what_is_not_one_entry_per_step_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=rf"got {name} of shape \(2,\); expected \(4,\): one entry for each step"):
        replace(batch([1, 0], steps=[2, 2]), **{name: np.zeros(2, dtype=np.int64)})


@pytest.mark.parametrize(
    ("name", "values"),
    [("truncated", np.array([0, 1])), ("rewards", np.array([0, 1])), ("groups", np.array([0.0, 1.0]))],
)
def test_another_kind_of_number_is_refused(name: str, values: np.ndarray) -> None:
    with pytest.raises(BadInput, match=f"got {name} of {values.dtype}; expected the dtype"):
        replace(batch([1, 0]), **{name: values})


@pytest.mark.parametrize("owners", [[0, 2], [-1, 0]])
def test_a_step_of_no_trajectory_is_refused(owners: list[int]) -> None:
    with pytest.raises(BadInput, match="expected 0 to 1, the rows of rewards"):
        replace(batch([1, 0]), trajectory=np.array(owners))


def test_spread_gives_each_step_the_value_of_its_trajectory() -> None:
    assert batch([1, 0], steps=[2, 1]).spread(np.array([5.0, 7.0])).tolist() == [5, 5, 7]


def test_a_rate_that_is_no_share_is_refused() -> None:
    with pytest.raises(BadInput, match=r"expected shares in \[0, 1\]: successes / attempts"):
        PromptStats(np.array([1.5]), np.array([True]))


def test_parts_of_rewards_have_a_row_for_each_trajectory() -> None:
    episodes = batch([1, 0])
    assert replace(episodes, parts=np.zeros((2, 3))).parts is not None
    for shape in ((3, 2), (2,), (2, 1, 1)):
        with pytest.raises(BadInput, match="got parts of shape"):
            replace(episodes, parts=np.zeros(shape))
    with pytest.raises(BadInput, match=r"got parts\[3\] = nan"):
        replace(episodes, parts=np.array([[0, 0], [0, np.nan]]))
