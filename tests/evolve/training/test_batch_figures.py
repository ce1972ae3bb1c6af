"""What is told of a batch of rollouts, and how a training's figures are put into charts."""

from __future__ import annotations

import pytest

from evolve.episode.skill_runtime.chains import Link
from evolve.training.batch_figures import SampledTokens, rollout_figures, tokens_per_s
from evolve.training.curves import SECTIONS, Panel, drawn, over
from evolve.training.rollouts import Rollout
from memory.records import Outcome, Step, Task, Trajectory, Usage
from policies.cache import CachedPolicy
from policies.protocols import Message, Reply, SamplingParams
from policies.scripted import ScriptedPolicy


def rollout(group: str, member: int, rewards: list[float], written: list[int]) -> Rollout:
    """Return a member of a group that did as many tasks as it was paid for."""
    links = tuple(
        Link(
            Trajectory(
                id=f"{group}-{member}-{at}",
                task=Task(id=f"{group}-{at}", instruction="do"),
                steps=(Step(index=0, action="x"),),
                outcome=Outcome(success=reward > 0, reward=reward),
                usage=Usage(completion_tokens=tokens),
            )
        )
        for at, (reward, tokens) in enumerate(zip(rewards, written, strict=True))
    )
    parts = tuple({"outcome": reward / 2, "skill": reward / 2} for reward in rewards)
    flags = (False,) * len(rewards)
    return Rollout(group, member, links, parts, flags, flags, "", group)


CHAINS = [
    rollout("a", 0, [1.0, 2.0], [10, 20]),
    rollout("a", 1, [1.0, 0.0], [30, 40]),
    rollout("b", 0, [0.0, 0.0], [50, 60]),
    rollout("b", 1, [0.0, 0.0], [70, 100]),
]


def test_rewards_are_told_by_position_and_by_how_many_groups_they_differ_in() -> None:
    figures = rollout_figures(CHAINS)
    assert figures["reward"] == 0.5
    assert figures["reward_std"] == pytest.approx((((0.5**2) * 2 + 1.5**2 + (0.5**2) * 5) / 8) ** 0.5)
    assert (figures["reward_position_0"], figures["reward_position_1"]) == (0.5, 0.5)
    assert figures["groups_differ"] == 0.25, "of two chains at two positions, only the second task of the first"
    assert not [name for name in rollout_figures([rollout("a", 0, [1.0], [5])]) if name.startswith("reward_position")]


def test_lengths_are_told_by_their_percentiles() -> None:
    figures = rollout_figures(CHAINS)
    assert (figures["written"], figures["written_p50"], figures["written_max"]) == (47.5, 45.0, 100.0)
    assert figures["written_p90"] == pytest.approx(79.0)


async def test_what_is_replayed_is_no_token_that_was_sampled() -> None:
    class Shelf(dict[str, dict[str, object]]):
        get_reply = dict.get

        async def put_reply(self, key: str, reply: dict[str, object]) -> None:
            self[key] = reply

    shelf, asked = Shelf(), ([Message(role="user", content="hi")], SamplingParams(seed=1))
    said = Reply(text="hello", usage=Usage(completion_tokens=7, calls=1))
    for tokens in (7, 0):
        sampled = SampledTokens(ScriptedPolicy(lambda *_: said))
        await CachedPolicy(sampled, shelf).generate(*asked)  # type: ignore[arg-type]
        assert bool(sampled.figures) == bool(tokens)
    assert tokens_per_s(6, 2.0) == {"rollout_tokens_per_s": 3.0}


def test_figures_of_one_unit_are_drawn_together_and_one_that_was_missing_is_a_gap() -> None:
    told = [{"iteration": 0.0, "reward_position_1": 2.0, "loss": 1.0}, {"iteration": 1.0, "reward_position_0": 3.0}]
    panels = drawn(told, (panel for some in SECTIONS.values() for panel in some))
    assert panels == {
        "reward by position in the chain": {"reward_position_0": [None, 3.0], "reward_position_1": [2.0, None]},
        "loss": {"loss": [1.0, None]},
    }
    assert over(told) == ("iteration", [0.0, 1.0])
    assert Panel("", ("b", "a*")).series([{"a1": 1.0, "b": 2.0, "c": 3.0}]) == {"b": [2.0], "a1": [1.0]}
