"""Groups that teach nothing are replaced within their iteration (DAPO), the same ones after a kill."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.parity_world import Parity, ParityEpisode
from evolve.config.model import Config
from evolve.config.training import TrainSection
from evolve.episode.rollout import RolloutConfig
from evolve.errors import ConfigError
from evolve.training.curriculum import Curriculum
from evolve.training.ledger import HISTORY, METRICS, lines
from evolve.training.loop import Learning, Plan, World, draw, learn, offered
from evolve.training.partial import Rolling
from evolve.training.refill import Refill
from evolve.training.replies import Kept
from evolve.training.rollouts import Rollout, Sampling, roll
from evolve.training.workspace_rollouts import methods_of
from memory.records import Task
from policies.local import LocalPolicy
from policies.local.local_policy import POCKET
from policies.protocols import Message, Reply, SamplingParams
from policies.rl.advantages.grpo import grpo
from policies.rl.filters.zero_variance import ZeroVariance
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.tracker import BetaTracker
from policies.rl.trainer import Trainer
from policies.scripted import ScriptedPolicy

ACTING = RolloutConfig(world="", max_steps=2, temperature=1.0, max_tokens=6)
PLAN = Plan(iterations=1, chains=3, length=1, refill=4, sampling=Sampling(rollouts=4, skills=False, seed=2))
WORLDS = [World(Parity())]


def speaking(mixed: int) -> ScriptedPolicy:
    """Act so that the rollouts of every `mixed`-th task differ, and those of others succeed alike; 0 = of none."""

    def answer(messages: Sequence[Message], params: SamplingParams) -> Reply:
        number = int("".join(filter(str.isdigit, messages[-1].content if len(messages) < 2 else "")) or 1)
        differs = mixed and len(messages) < 2 and number % mixed == 0 and (params.seed or 0) % 2
        return Reply(text="a" if differs else "b", prompt_token_ids=(1,), token_ids=(2,), logprobs=(-0.5,))

    return ScriptedPolicy(answer, profile="compact")


async def refilled(
    folder: Path, mixed: int, plan: Plan = PLAN
) -> tuple[tuple[Rollout, ...], tuple[Rollout, ...], dict[str, float]]:
    """Return the first rollouts of an iteration, all of them, and the counts."""
    folder.mkdir(exist_ok=True)
    rolling = Rolling(speaking(mixed), ACTING, plan.sampling, Kept(folder), 1)
    policy = rolling.replaying(0)
    first = await roll(draw(WORLDS, plan, 0), policy, ACTING, plan.sampling, 0)
    rounds = [offered(WORLDS, plan, 0, number) for number in range(1, plan.refill + 1)]
    refill = Refill(rounds, Curriculum(), BetaTracker(), ZeroVariance())
    every, counts = await refill.refilled(first, rolling, 0)
    assert every[: len(first)] == first
    return first, every, counts


def tasks(rollouts: Sequence[Rollout]) -> dict[str, set[bool]]:
    """Return by task how its rollouts ended."""
    found: dict[str, set[bool]] = {}
    for each in rollouts:
        found.setdefault(each.links[0].trajectory.task.id, set()).add(each.links[0].trajectory.success)
    return found


async def test_a_batch_is_filled_with_groups_of_other_tasks_that_differ(tmp_path: Path) -> None:
    first, every, counts = await refilled(tmp_path, mixed=3)
    differing = [ends for ends in tasks(every).values() if len(ends) > 1]
    assert len(tasks(first)) == 3 > len([ends for ends in tasks(first).values() if len(ends) > 1])
    assert len(differing) == 3
    assert counts == {"refilled": len(tasks(every)) - 3.0, "unfilled": 0.0}
    assert len(every) == 4 * len({each.group for each in every}) == 4 * len(tasks(every)), "no task is done twice"


@pytest.mark.parametrize(("rounds", "begun"), [(1, 3), (40, 9)])
async def test_it_ends_after_its_rounds_or_with_the_last_task(tmp_path: Path, rounds: int, begun: int) -> None:
    _, every, counts = await refilled(tmp_path, mixed=0, plan=PLAN.model_copy(update={"refill": rounds}))
    assert counts == {"refilled": begun, "unfilled": 3.0}
    assert len(tasks(every)) == 3 + begun


async def test_the_same_iteration_is_refilled_alike_and_another_round_otherwise(tmp_path: Path) -> None:
    done = [(await refilled(tmp_path / name, mixed=3))[1] for name in "ab"]
    assert [each.links[0].trajectory.id for each in done[0]] == [each.links[0].trajectory.id for each in done[1]]
    assert len({each.links[0].trajectory.id for each in done[0]}) == len(done[0])
    ids = [{each.chain.id for each in offered(WORLDS, PLAN, *which)} for which in ((0, 0), (0, 1), (0, 2), (1, 1))]
    assert all(one.isdisjoint(other) for at, one in enumerate(ids) for other in ids[:at])


async def test_where_each_group_teaches_nothing_is_refilled(tmp_path: Path) -> None:
    first, every, counts = await refilled(tmp_path, mixed=1)
    assert every == first
    assert counts == {"refilled": 0.0, "unfilled": 0.0}


class Killed(BaseException):
    """The process ends here."""


class Mortal(Parity):
    """Kills the process when so many episodes were begun."""

    lives = 10_000

    def start(self, task: Task, seed: int = 0) -> ParityEpisode:
        self.lives -= 1
        if self.lives < 0:
            raise Killed
        return super().start(task, seed)


def learning() -> Learning:
    trainer = Trainer(POCKET, Ppo(), OptimiserOptions(learning_rate=1e-3, rank=4, seed=1))
    return Learning(LocalPolicy.pocket(threads=1), trainer, grpo, ZeroVariance(), ACTING)


@pytest.mark.slow
async def test_a_training_that_is_killed_in_a_refill_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    plan = PLAN.model_copy(update={"sampling": PLAN.sampling.model_copy(update={"rollouts": 2})})
    through, killed, world = learning(), learning(), Mortal()
    await learn(WORLDS, through, plan, tmp_path / "through")
    (figures,) = lines(tmp_path / "through" / METRICS)
    assert figures["refilled"] > 0, "every group differed at once: this shows nothing"
    assert figures["episodes"] == 2 * (3 + figures["refilled"])
    world.lives = 2 * 3 + 1
    with pytest.raises(Killed):
        await learn([World(world)], killed, plan, tmp_path / "killed")
    world.lives = 10_000
    again = learning()
    await learn([World(world)], again, plan, tmp_path / "killed")
    assert again.policy.version == through.policy.version
    assert lines(tmp_path / "killed" / HISTORY) == lines(tmp_path / "through" / HISTORY)


@pytest.mark.parametrize(
    "more", [{"partial": {"oversampling": 1.5}}, {"candidates": 2}, {"retries": "rules", "length": 1, "skills": False}]
)
def test_what_is_no_plain_rollout_is_refused(more: dict[str, object]) -> None:
    config = Config(train=TrainSection.model_validate({"refill": 1} | more))
    with pytest.raises(ConfigError, match=r"train\.refill = 1 .*: set 0"):
        methods_of(config)
