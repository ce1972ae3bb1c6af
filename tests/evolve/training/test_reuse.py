"""A part of each batch is groups of earlier iterations (rollout replay), the same ones after a kill."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evolve.config.model import Config
from evolve.config.training import RolloutReuse, TrainSection
from evolve.errors import ConfigError
from evolve.generations.workspace_registry import FOLDER as GENERATIONS
from evolve.training import rollout_store
from evolve.training.batches import Prepared, ScoredEpisode, assembled
from evolve.training.ledger import FOLDER, HISTORY, METRICS, REUSED, lines
from evolve.training.loop import Learning, Plan, World, learn
from evolve.training.reuse import Group, drawn, joined, keep
from evolve.training.rollouts import Sampling
from evolve.training.workspace_rollouts import methods_of
from memory.records import Outcome, Step, Task, Trajectory
from policies.local import LocalPolicy
from policies.local.local_policy import POCKET
from policies.rl.advantages.grpo import grpo
from policies.rl.filters.zero_variance import ZeroVariance
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.protocols import Array
from policies.rl.rows import Span, TrainRow
from policies.rl.trainer import Trainer
from tests.evolve.training.test_refill import ACTING, Killed, Mortal

REUSE = RolloutReuse(share=0.5, buffer=3)


def batch(iteration: int, groups: int = 2) -> Prepared:
    """Return a batch of groups of two, of which one succeeded; their chains are named by iteration and number."""
    episodes: list[ScoredEpisode] = []
    rows: list[TrainRow] = []
    for number, member in ((number, member) for number in range(groups) for member in (0, 1)):
        name, own = f"{iteration}/{number}", {"outcome": float(member)}
        where: dict[str, Any] = {"group": f"{name}/0", "chain_id": name, "rollout": member, "rewards": own}
        done = Trajectory(
            id=f"{name}/{member}",
            task=Task(id=f"task-{number}", instruction="x"),
            steps=(Step(index=0, action="a", observation="b"),),
            outcome=Outcome(success=bool(member), reward=float(member)),
        )
        episodes.append(ScoredEpisode(trajectory=done, baseline=0.1 * iteration, **where))
        span = Span(start=0, stop=2, step=0, policy_version=f"v{iteration}")
        tokens: dict[str, Any] = {
            "prompt_ids": (1,),
            "completion_ids": (2, 3),
            "sampling_logprobs": (-0.1 * iteration, -1 / 3),
        }
        rows.append(TrainRow(trajectory_id=done.id, task_id=done.task.id, spans=(span,), **tokens, **where))
    return assembled(episodes, rows, {"episodes": len(episodes)})


def held(folder: Path, iteration: int) -> list[str]:
    """Return the names of what the buffer holds when an iteration begins, in order."""
    wanting = REUSE.model_copy(update={"share": 0.99})
    return sorted(each.episodes[0].chain_id for each in drawn(folder, wanting, 100, iteration, 0))


def test_the_buffer_keeps_the_newest_of_what_taught(tmp_path: Path) -> None:
    assert held(tmp_path, 0) == []
    for iteration, taught in enumerate(([0], [], [0, 1], [1])):
        made = batch(iteration)
        keep(tmp_path, REUSE, iteration, made, [made.rows[2 * each] for each in taught])
        assert (
            held(tmp_path, iteration + 1) == [["0/0"], ["0/0"], ["0/0", "2/0", "2/1"], ["2/0", "2/1", "3/1"]][iteration]
        )
    assert held(tmp_path, 3) == ["0/0", "2/0", "2/1"], "an iteration that is done again draws from what it had"


def test_an_iteration_draws_its_share_and_another_one_otherwise(tmp_path: Path) -> None:
    reuse = RolloutReuse(share=0.5, buffer=20)
    keep(tmp_path, reuse, 0, (made := batch(0, 20)), made.rows)
    ids = [[each.rows[0].chain_id for each in drawn(tmp_path, reuse, 9, at, 7)] for at in (1, 1, 2, 3)]
    assert [len(set(each)) for each in ids] == [4, 4, 4, 4]
    assert ids[0] == ids[1]
    assert len(set(map(frozenset, ids))) == 3
    assert [RolloutReuse(share=share).groups(10) for share in (0, 0.05, 0.29, 0.3, 0.99)] == [0, 0, 2, 3, 9]


def test_a_reused_group_is_what_was_learned_from_and_compares_as_it_did(tmp_path: Path) -> None:
    old, new = batch(1, 1), batch(2, 2)
    keep(tmp_path, REUSE, 1, old, old.rows)
    (group,) = drawn(tmp_path, REUSE, 2, 2, 0)
    assert group == Group(
        iteration=1, episodes=old.scored, rows=tuple(each.model_copy(update={"reused": True}) for each in old.rows)
    )
    whole = joined(new, [group])
    assert whole.counts == new.counts, "nothing that is reused counts as rolled out"
    assert whole.episodes.baselines is not None
    assert whole.episodes.baselines.tolist() == [0.2] * 4 + [0.1] * 2
    rows, advantages = whole.advantages(grpo(whole.episodes), np.ones(6, dtype=np.bool_))
    assert [each.reused for each in rows] == [False] * 4 + [True] * 2
    assert np.allclose(np.concatenate(advantages[4:]), grpo(old.episodes))


def test_a_purge_removes_the_buffer(tmp_path: Path) -> None:
    folder = tmp_path / GENERATIONS / FOLDER / "run-1"
    folder.mkdir(parents=True)
    keep(folder, REUSE, 0, (made := batch(0)), made.rows)
    rollout_store.erase(tmp_path)
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"backend": "trl_sync"}, "backend = 'trl_sync'"),
        ({"candidates": 2}, "candidates = 2"),
        ({"retries": "rules", "length": 1, "skills": False}, "retries = 'rules'"),
        ({"branching": {"branches": 2}}, "branches = 2"),
        ({"partial": {"oversampling": 1.5}}, r"oversampling = 1\.5"),
        ({"partial": {"off_policy": "masked"}}, "off_policy = 'masked'"),
        ({"loss": "sft"}, "loss = 'sft', which has no ratio"),
        ({"chains": 1}, "chains = 1, which is 0 groups"),
        ({"chains": 18}, "which is 9 groups, with buffer = 8"),
    ],
)
def test_what_cannot_be_reused_is_refused(more: dict[str, Any], why: str) -> None:
    plain = Config(train=TrainSection.model_validate({"reuse": {"share": 0.5}}))
    assert methods_of(plain)
    config = Config(train=TrainSection.model_validate({"reuse": {"share": 0.5}} | more))
    with pytest.raises(ConfigError, match=rf"train\.reuse\.share = 0\.5 .*{why}"):
        methods_of(config)


PLAN = Plan(
    iterations=3,
    chains=2,
    length=1,
    reuse=RolloutReuse(share=0.5, buffer=2),
    sampling=Sampling(rollouts=4, skills=False, seed=2),
)


class Remembering(Trainer):
    """Keeps what it was given, and with which weights it met that."""

    killed = False

    def step(self, rows: Sequence[TrainRow], advantages: Sequence[Array]) -> dict[str, float]:
        self.given: list[tuple[list[TrainRow], list[Array]]] = [
            *getattr(self, "given", []),
            (list(rows), [*advantages]),
        ]
        return super().step(rows, advantages)

    def checkpoint(self, path: Path, progress: Any = None) -> None:
        if self.killed:
            raise Killed
        super().checkpoint(path, progress)


def learning() -> Learning:
    trainer = Remembering(POCKET, Ppo(), OptimiserOptions(learning_rate=1e-3, rank=4, seed=1))
    return Learning(LocalPolicy.pocket(threads=1), trainer, grpo, ZeroVariance(), ACTING)


def given(parts: Learning) -> list[tuple[list[TrainRow], list[Array]]]:
    assert isinstance(parts.trainer, Remembering)
    return parts.trainer.given


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory) -> tuple[Learning, Path]:
    """A training that nothing disturbed, and its folder."""
    parts, folder = learning(), tmp_path_factory.mktemp("through")
    asyncio.run(learn([World(Mortal())], parts, PLAN, folder))
    return parts, folder


@pytest.mark.slow
def test_a_part_of_each_batch_is_reused_with_ratios_to_who_sampled_it(through: tuple[Learning, Path]) -> None:
    parts, folder = through
    first, second, third = (rows for rows, _ in given(parts))
    told, history = lines(folder / METRICS), lines(folder / HISTORY)
    assert [each["reused"] for each in told] == [0, 1, 1]
    assert [each["episodes"] for each in told] == [8, 4, 4], "what is reused is not rolled out"
    assert [len({row.chain_id for row in rows if row.reused}) for rows in (first, second, third)] == [0, 1, 1]
    for at, rows in ((1, second), (2, third)):
        own = [row for row in rows if row.reused]
        before = {row.trajectory_id: row for rows, _ in given(parts)[:at] for row in rows if not row.reused}
        assert all(row == before[row.trajectory_id].model_copy(update={"reused": True}) for row in own)
        assert {row.trajectory_id for row in rows} == set(history[at]["episodes"])
        seen = {each.id for each in rollout_store.read(folder, at)}
        assert seen.isdisjoint(row.trajectory_id for row in own), "an episode stands where it was rolled out"
        assert abs(told[at]["approx_kl"]) > 1e-5 > abs(told[0]["approx_kl"]), (
            "the weights moved, and the ratio with them"
        )
    assert not (folder / REUSED).exists(), "nothing is kept to be reused when all is done"


@pytest.mark.slow
async def test_without_it_a_batch_is_what_it_was(through: tuple[Learning, Path], tmp_path: Path) -> None:
    parts, plan = learning(), PLAN.model_copy(update={"reuse": RolloutReuse(), "iterations": 2})
    await learn([World(Mortal())], parts, plan, tmp_path)
    with_it = given(through[0])[0]
    assert given(parts)[0][0] == with_it[0], "the first batch, whose buffer is empty, is the same"
    assert all(map(np.array_equal, given(parts)[0][1], with_it[1]))
    assert not any(row.reused for rows, _ in given(parts) for row in rows)
    assert [("reused" in line, line["episodes"]) for line in lines(tmp_path / METRICS)] == [(False, 8), (False, 8)]
    assert not (tmp_path / REUSED).exists()


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["rolling out", "having kept"])
async def test_a_kill_ends_in_the_same_weights(phase: str, through: tuple[Learning, Path], tmp_path: Path) -> None:
    killed, world = learning(), Mortal()
    assert isinstance(killed.trainer, Remembering)
    trainer = killed.trainer

    def told(figures: dict[str, float]) -> None:
        world.lives = 2 if phase == "rolling out" else 10_000
        trainer.killed = phase == "having kept"

    with pytest.raises(Killed):
        await learn([World(world)], killed, PLAN, tmp_path, told)
    in_file = [Group.model_validate(line) for line in lines(tmp_path / REUSED)]
    assert {each.iteration for each in in_file} == ({0} if phase == "rolling out" else {0, 1})
    names = [each.episodes[0].chain_id for each in in_file]
    assert len(names) == len(set(names)), "what was reused is not put in once more"
    again = learning()
    await learn([World(Mortal())], again, PLAN, tmp_path)
    assert again.policy.version == through[0].policy.version
    assert lines(tmp_path / HISTORY) == lines(through[1] / HISTORY)
    assert [line["reused"] for line in lines(tmp_path / METRICS)] == [0, 1, 1]
