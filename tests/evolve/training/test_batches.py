"""What the slots are given of some episodes."""

from __future__ import annotations

import pytest

from evolve.training.batches import ScoredEpisode, prepared
from memory.records import Outcome, Step, Task, Trajectory, Usage
from policies.rl.rows import Turn


def episode(name: str, actions: list[str], rewards: dict[str, float]) -> ScoredEpisode:
    """Return an episode of which each action was asked for by a reply of its own, but one that begins with `and`."""
    steps = tuple(
        Step(index=at, action=action, observation="seen", usage=Usage(calls=int(not action.startswith("and"))))
        for at, action in enumerate(actions)
    )
    done = Trajectory(
        id=name, task=Task(id="t", instruction="do"), steps=steps, outcome=Outcome(success=True, reward=1)
    )
    return ScoredEpisode(trajectory=done, rewards=rewards, group="g")


def turns(trajectory: Trajectory, _: object) -> tuple[Turn, ...]:
    """Return turns of two tokens each, the further on the less likely, with one token of the world between them."""
    return tuple(
        Turn(
            step=step.index,
            prompt_ids=(1,) * (1 + 3 * at),
            token_ids=(1, 1),
            logprobs=(-0.5, -1.5 - at),
            policy_version="v",
        )
        for at, step in enumerate(step for step in trajectory.steps if step.usage.calls)
    )


def test_parts_of_rewards_stand_in_columns_by_name_and_are_0_where_they_are_not() -> None:
    some = [episode("a", ["x"], {"skill": 2.0, "outcome": 1.0}), episode("b", ["x"], {"outcome": 0.5})]
    found = prepared(some, lambda _: None, turns).episodes
    assert found.parts is not None
    assert found.parts.tolist() == [[1, 2], [0.5, 0]]
    assert found.rewards.tolist() == [3, 0.5]


def test_log_probabilities_are_means_over_an_episodes_trained_tokens() -> None:
    some = [episode("a", ["x"], {"outcome": 1.0}), episode("b", ["x", "y"], {"outcome": 1.0})]
    found = prepared(some, lambda _: None, turns).episodes
    assert found.logprobs is not None
    assert found.logprobs.tolist() == pytest.approx([-1.0, -1.25])


def test_actions_are_all_that_a_turn_did() -> None:
    some = [
        episode("a", ["x", "and z", "y"], {}),
        episode("b", ["x", "y"], {}),
        episode("c", ["x", "and z", "x"], {}),
    ]
    found = prepared(some, lambda _: None, turns).episodes
    assert found.actions is not None
    xz, y, x, again, xz_again, x_again = found.actions.tolist()
    assert (xz, y, x) == (xz_again, again, x_again)
    assert len({xz, y, x}) == 3


def test_an_empty_batch_has_empty_arrays() -> None:
    found = prepared([], lambda _: None).episodes
    assert found.parts is not None
    assert found.parts.shape == (0, 0)
