"""Training by rollouts with the pocket model: rows from sampled ids, an update taken at once, and resumption."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from evolve.environments.office.environment import Office, OfficeConfig
from evolve.rollout import Acting
from evolve.training.batches import prepared
from evolve.training.loop import CHECKPOINT, HISTORY, METRICS, Learning, Plan, World, learn
from evolve.training.rollouts import Sampling
from policies.local import LocalPolicy
from policies.local.policy import POCKET
from policies.rl.advantages.sage import sage
from policies.rl.losses.ppo import Ppo
from policies.rl.protocols import Episodes, Flags
from policies.rl.trainer import Optimising, Trainer

pytestmark = pytest.mark.slow
ACTING = Acting(world="", max_steps=4, temperature=1.0, max_tokens=60, skills=True)
PLAN = Plan(iterations=2, chains=2, sampling=Sampling(rollouts=2, seed=4))


class Everything:
    """Keeps every trajectory."""

    def keep(self, episodes: Episodes) -> Flags:
        return np.ones(len(episodes.rewards), dtype=bool)


class Stopped(Exception):
    """The process ends here."""


def stop(figures: dict[str, float]) -> None:
    raise Stopped


def learning(advantages=sage) -> Learning:
    policy = LocalPolicy.pocket(threads=1)
    trainer = Trainer(POCKET, Ppo(), Optimising(learning_rate=1e-3, rank=4, seed=1))
    return Learning(policy, trainer, advantages, Everything(), ACTING)


WORLDS = [World(Office(OfficeConfig(deployment=600)))]


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_a_training_that_was_stopped_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    through, stopped = learning(), learning()
    await learn(WORLDS, through, PLAN, tmp_path / "through")
    with pytest.raises(Stopped):
        await learn(WORLDS, stopped, PLAN, tmp_path / "stopped", stop)
    history = tmp_path / "stopped" / HISTORY
    history.write_text(history.read_text() + '{"iteration": 1, "episodes": ["x"]}\n{"itera')
    again = learning()
    await learn(WORLDS, again, PLAN, tmp_path / "stopped")
    assert again.policy.version == through.policy.version
    told = lines(history)
    assert told == lines(tmp_path / "through" / HISTORY)
    episodes = [name for line in told for name in line["episodes"]]  # type: ignore[union-attr]
    assert len(episodes) == len(set(episodes)) == 16
    assert [line["iteration"] for line in lines(tmp_path / "stopped" / METRICS)] == [0, 1]
    assert not list((tmp_path / "stopped").glob("replies-*"))
    assert (tmp_path / "stopped" / CHECKPOINT).exists()


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


def test_an_empty_batch_is_counted_and_has_no_rows() -> None:
    empty = prepared([], lambda _: None)
    assert empty.rows == ()
    assert empty.advantages(np.zeros(0), np.zeros(0, dtype=bool)) == ([], [])
