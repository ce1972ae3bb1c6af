"""Training by rollouts with the pocket model: rows from sampled ids, an update taken at once, and resumption."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evolve.config.training import TrainingLimits
from evolve.environments.office.environment import Office, OfficeConfig, OfficeEpisode
from evolve.episode.rollout import RolloutConfig
from evolve.errors import EnvironmentFailure
from evolve.training.batches import prepared
from evolve.training.ledger import CHECKPOINT, GOOD, HISTORY, METRICS
from evolve.training.loop import Learning, Plan, World, learn
from evolve.training.rollout_store import StoredRollout, erase, iterations, read
from evolve.training.rollouts import Sampling
from memory.records import Task
from policies.local import LocalPolicy
from policies.local.local_policy import POCKET
from policies.rl.advantages.sage import sage
from policies.rl.filters.everything import Everything
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.protocols import Episodes
from policies.rl.trainer import Trainer, TrainingStopped
from tests.evolve.training.held_office import Held, Killed

pytestmark = pytest.mark.slow
ACTING = RolloutConfig(world="", max_steps=3, temperature=1.0, max_tokens=32, skills=True)
PLAN = Plan(iterations=2, chains=2, sampling=Sampling(rollouts=2, seed=4))
SMALL = Plan(iterations=2, chains=1, length=1, sampling=Sampling(rollouts=2, seed=4))


class Stopped(Exception):
    """The process ends here."""


def stop(figures: dict[str, float]) -> None:
    raise Stopped


def learning(advantages=sage, learning_rate: float = 1e-3) -> Learning:
    policy = LocalPolicy.pocket(threads=1)
    trainer = Trainer(POCKET, Ppo(), OptimiserOptions(learning_rate=learning_rate, rank=4, seed=1))
    return Learning(policy, trainer, advantages, Everything(), ACTING)


class Breaking(Office):
    """An office that breaks after so many episodes."""

    lives = 99

    def start(self, task: Task, seed: int = 0) -> OfficeEpisode:
        self.lives -= 1
        if self.lives < 0:
            raise EnvironmentFailure("the server is gone")
        return super().start(task, seed)


TIMED = ("seconds", "rollout_tokens_per_s", "update_tokens_per_s")
"""Figures that no two trainings have alike."""
WORLDS = [World(Office(OfficeConfig(deployment=600)))]


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def said(rollout: StoredRollout) -> dict[str, Any]:
    """Return all of a rollout but how long its steps took."""
    return rollout.model_dump(exclude={"turns": {"__all__": {"steps": {"__all__": {"seconds"}}}}})


async def test_what_was_rolled_out_is_kept_with_prompts_turns_and_what_was_learned_from_each(tmp_path: Path) -> None:
    parts = learning()
    await learn(WORLDS, parts, PLAN.model_copy(update={"iterations": 1}), tmp_path)
    (line,) = lines(tmp_path / HISTORY)
    kept = read(tmp_path)
    assert sorted(each.id for each in kept) == line["episodes"]
    assert {(each.position, each.rollout) for each in kept} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert len({each.group for each in kept}) == 4
    for each in kept:
        assert [message.role for message in each.prompt][-1] == "user"
        assert all(message.role != "assistant" or message is not each.prompt[-1] for message in each.prompt)
        assert each.turns
        assert {turn.advantage is not None for turn in each.turns} == {True}
        assert all(turn.tokens > 0 and turn.version and turn.steps[0].action for turn in each.turns)
    (figures,) = lines(tmp_path / METRICS)
    assert figures["reward"] == pytest.approx(sum(each.reward for each in kept) / 8)
    assert figures["written_max"] == max(each.tokens for each in kept)
    assert "rollout_tokens_per_s" in figures


async def test_a_training_that_was_stopped_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    through, stopped = learning(), learning()
    await learn(WORLDS, through, PLAN, tmp_path / "through")
    with pytest.raises(Stopped):
        await learn(WORLDS, stopped, PLAN, tmp_path / "stopped", stop)
    history = tmp_path / "stopped" / HISTORY
    history.write_text(history.read_text() + '{"iteration": 1, "episodes": ["x"]}\n{"itera')
    unfinished = tmp_path / "stopped" / "rollouts" / "1.jsonl"
    unfinished.write_text((tmp_path / "stopped" / "rollouts" / "0.jsonl").read_text())
    (tmp_path / "stopped" / "rollouts" / "2.jsonl").write_text("of weights that are gone")
    again = learning()
    await learn(WORLDS, again, PLAN, tmp_path / "stopped")
    assert again.policy.version == through.policy.version
    assert iterations(tmp_path / "stopped") == [0, 1]
    timeless = [[said(each) for each in read(tmp_path / name)] for name in ("stopped", "through")]
    assert timeless[0] == timeless[1], "no rollout is lost or there twice"
    told = lines(history)
    assert told == lines(tmp_path / "through" / HISTORY)
    episodes = [name for line in told for name in line["episodes"]]  # type: ignore[union-attr]
    assert len(episodes) == len(set(episodes)) == 16
    assert [line["iteration"] for line in lines(tmp_path / "stopped" / METRICS)] == [0, 1]
    assert not list((tmp_path / "stopped").glob("replies-*"))
    assert (tmp_path / "stopped" / CHECKPOINT).exists()


async def test_an_iteration_whose_replies_were_purged_is_sampled_anew_to_the_same_weights(tmp_path: Path) -> None:
    folder, office, through = tmp_path / "policies" / "training" / "one", Held(OfficeConfig(deployment=600)), learning()
    await learn(WORLDS, through, SMALL, tmp_path / "through")

    def dying(figures: dict[str, float]) -> None:
        office.steps = 2

    with pytest.raises(Killed):
        await learn([World(office)], learning(), SMALL, folder, dying)
    assert (folder / "replies-1.jsonl").read_text()
    erase(tmp_path)
    assert not list(folder.glob("replies-*"))
    again = learning()
    await learn(WORLDS, again, SMALL, folder)
    assert again.policy.version == through.policy.version
    assert lines(folder / HISTORY) == lines(tmp_path / "through" / HISTORY)


async def test_rows_hold_sampled_ids_and_the_next_batch_comes_from_the_new_weights(
    tmp_path: Path,
) -> None:
    seen: list[Episodes] = []

    def watched(episodes: Episodes) -> np.ndarray:
        seen.append(episodes)
        return sage(episodes) + 0.1

    parts = learning(watched)
    before = parts.policy.version
    await learn(WORLDS, parts, PLAN.model_copy(update={"iterations": 1}), tmp_path)
    assert parts.policy.version != before
    assert len(seen[0].rewards) == 8
    figures = lines(tmp_path / METRICS)[0]
    assert figures["episodes"] == 8
    assert figures["no_token_ids"] == figures["not_graded"] == 0
    assert abs(float(figures["rollout_kl"])) < 1e-3, "the trainer scores the sampled tokens as the engine did"  # type: ignore[arg-type]


async def test_the_policy_makes_room_before_an_update_and_follows_it_after(tmp_path: Path) -> None:
    done: list[str] = []

    class Noting(LocalPolicy):
        async def make_room(self) -> None:
            await super().make_room()
            done.append("room")

        async def sync_weights(self, trainer: Any) -> None:
            await super().sync_weights(trainer)
            done.append(f"{trainer.updates} updates")

    plan = SMALL.model_copy(update={"iterations": 1})
    await learn(WORLDS, replace(learning(), policy=Noting.pocket(threads=1)), plan, tmp_path)
    assert done == ["0 updates", "room", "1 updates"]


async def test_what_collapses_is_stopped_and_goes_back_to_the_weights_before(tmp_path: Path) -> None:
    batches: list[Episodes] = []

    def late(episodes: Episodes) -> np.ndarray:
        """Learn nothing from the first batch, and far too much from the second."""
        batches.append(episodes)
        return np.full(len(episodes.trajectory), float(len(batches) > 1))

    limits = TrainingLimits(patience=1, max_entropy=1.0, max_growth=50, min_valid=0)
    plan = SMALL.model_copy(update={"iterations": 9, "limits": limits})
    parts = learning(late, learning_rate=0.5)
    reason = await learn(WORLDS, parts, plan, tmp_path)
    assert "train.limits.max_entropy" in reason
    assert [line["iteration"] for line in lines(tmp_path / METRICS)] == [0, 1, 2]
    assert [line["iteration"] for line in lines(tmp_path / HISTORY)] == [0]
    assert parts.trainer.updates == 1
    again = learning(late, learning_rate=0.5)
    assert await learn(WORLDS, again, plan, tmp_path) == reason
    assert again.trainer.updates == 1
    one, other = dict(parts.trainer.merged()), dict(again.trainer.merged())
    assert all(one[name].equal(other[name]) for name in one)
    assert not list(tmp_path.glob("replies-*"))


async def test_a_collapse_from_the_first_iteration_on_leaves_nothing_to_publish(tmp_path: Path) -> None:
    plan = SMALL.model_copy(update={"limits": TrainingLimits(patience=1, min_entropy=100)})
    for _ in range(2):
        with pytest.raises(TrainingStopped, match=r"entropy of a token .* nothing to publish"):
            await learn(WORLDS, learning(), plan, tmp_path)
    assert len(lines(tmp_path / METRICS)) == 1


async def test_a_kill_between_two_names_of_a_checkpoint_is_gone_on_from(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        await learn(WORLDS, learning(), SMALL, tmp_path, stop)
    (tmp_path / CHECKPOINT).replace(tmp_path / GOOD)
    (tmp_path / "replies-1.jsonl").touch()
    await learn(WORLDS, learning(), SMALL, tmp_path)
    assert [line["iteration"] for line in lines(tmp_path / HISTORY)] == [0, 1]


async def test_a_world_that_broke_stops_training_and_nothing_of_the_batch_is_trained_on(tmp_path: Path) -> None:
    office = Breaking(OfficeConfig(deployment=600))
    parts = learning()
    await learn([World(office)], parts, SMALL.model_copy(update={"iterations": 1}), tmp_path)
    office.lives = 0
    with pytest.raises(TrainingStopped, match=r"of iteration 1 could not be graded, .* the server is gone"):
        await learn([World(office)], parts, SMALL, tmp_path)
    assert [line["iteration"] for line in lines(tmp_path / HISTORY)] == [0]
    office.lives = 99
    again = learning()
    await learn([World(office)], again, SMALL, tmp_path)
    assert [line["iteration"] for line in lines(tmp_path / HISTORY)] == [0, 1]


def test_an_empty_batch_is_counted_and_has_no_rows() -> None:
    empty = prepared([], lambda _: None)
    assert empty.rows == ()
    assert empty.advantages(np.zeros(0), np.zeros(0, dtype=bool)) == ([], [])
