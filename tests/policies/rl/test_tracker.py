"""What a prompt is expected to pay, and how often it comes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import BadInput
from policies.rl.protocols import PromptStats
from policies.rl.samplers.difficulty import difficulty
from policies.rl.samplers.spo import spo
from policies.rl.samplers.uniform import uniform
from policies.rl.tracker import BetaTracker, retention


def close(value: object) -> object:
    return pytest.approx(value, abs=1e-6)


def test_rollouts_before_training_count_for_eight() -> None:
    tracker = BetaTracker()
    tracker.start("task-1", successes=3, attempts=8)
    assert tracker.counts("task-1") == close((3.111111, 4.888889))
    assert tracker.value("task-1") == close(0.388889)
    assert spo(tracker.stats(["task-1"])) == close(np.array([0.537498]))


def test_a_reward_is_learned_and_the_past_fades_with_the_drift() -> None:
    tracker = BetaTracker()
    tracker.start("task-1", successes=3, attempts=8)
    assert retention(0.03) == 0.875
    tracker.update("task-1", reward=1, drift=0.03)
    assert tracker.counts("task-1") == close((3.722222, 4.277778))
    assert tracker.value("task-1") == close(0.465278)


def test_without_drift_nearly_all_is_kept() -> None:
    assert retention(0) == 0.96
    assert retention(0.006) == close(2**-0.1)
    assert retention(9) == 0.875


def test_nothing_is_known_of_a_new_prompt() -> None:
    tracker = BetaTracker()
    tracker.start("untried", successes=0, attempts=0)
    tracker.update("tried", reward=0.25)
    assert tracker.counts("new") == (0.5, 0.5)
    assert tracker.counts("tried") == close((0.48 + 0.25, 0.48 + 0.75))
    stats = tracker.stats(["new", "untried", "tried"])
    assert stats.rates.tolist() == close([0.5, 0.5, 0.73 / 1.96])
    assert stats.seen.tolist() == [False, False, True]


def test_a_group_is_learned_at_once_and_its_order_does_not_matter() -> None:
    tracker = BetaTracker()
    tracker.start("task", successes=3, attempts=8)
    tracker.update("task", reward=2, attempts=4)
    assert tracker.counts("task") == close((0.96 * 3.111111 + 2, 0.96 * 4.888889 + 2))
    with pytest.raises(BadInput, match=r"got reward 5 for .* of 4 rollouts"):
        tracker.update("task", reward=5, attempts=4)


@given(rewards=st.lists(st.floats(0, 1), max_size=30), drift=st.floats(0, 1))
def test_the_value_stays_a_probability(rewards: list[float], drift: float) -> None:
    tracker = BetaTracker()
    for reward in rewards:
        tracker.update("task", reward, drift)
    assert 0 <= tracker.value("task") <= 1


def test_what_is_no_success_rate_is_refused() -> None:
    tracker = BetaTracker()
    for reward in (2.0, -1.0, float("nan")):
        with pytest.raises(BadInput, match=f"got reward {reward} for 'task'; expected .* not a shaped reward"):
            tracker.update("task", reward)
    with pytest.raises(BadInput, match="got drift -1"):
        tracker.update("task", 1, drift=-1)
    with pytest.raises(BadInput, match="expected 0 <= successes <= attempts"):
        tracker.start("task", successes=3, attempts=2)


def test_prompts_nearest_the_target_come_most_often() -> None:
    stats = PromptStats(np.array([0.0, 0.25, 0.5, 0.9]), np.array([True] * 4))
    assert difficulty(stats) == close(np.array([0.006738, 0.082085, 1.0, 0.018316]))
    assert difficulty(stats, target=0.9, spread=0.4) == close(np.array([0.105399, 0.196912, 0.367879, 1.0]))


def test_uncertain_prompts_come_most_often_and_none_never() -> None:
    stats = PromptStats(np.array([0.0, 0.1, 0.5, 1.0]), np.array([True] * 4))
    assert spo(stats) == close(np.array([0.05, 0.35, 0.55, 0.05]))
    assert uniform(stats).tolist() == [1, 1, 1, 1]
