"""Groups that are put off: who is taken, who is waited for, and that nothing is left running behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evolve.config.training import PartialRollouts
from evolve.environments.office.environment import OfficeConfig
from evolve.environments.office.worker import make_worker
from evolve.episode.rollout import RolloutConfig
from evolve.training.chain_tasks import chains
from evolve.training.partial import (
    Begun,
    Choice,
    Group,
    Rolling,
    begun,
    gathered,
    masked,
    off_policy_share,
    resumed,
)
from evolve.training.replies import Kept, sweep
from evolve.training.rollouts import ChainSpec, Sampling
from memory.errors import BadInput
from policies.protocols import Message, Policy, Reply, SamplingParams
from policies.rl.rows import Span, TrainRow
from policies.wrapped import WrappedPolicy
from tests.evolve.training.held_office import Held, Killed

SAMPLING = Sampling(rollouts=2, skills=False, seed=3)


def office(held: int) -> tuple[Held, list[ChainSpec]]:
    """Return an office with four chains of one task, and the first `held` of them held."""
    made = Held(OfficeConfig(deployment=3))
    drawn = chains(made.tasks("train"), 1, seed=0)[:4]
    made.held = {task.id for chain in drawn[:held] for task in chain.tasks}
    return made, [ChainSpec(chain, made) for chain in drawn]


def rolling(world: Held, folder: Path, staleness: int = 1) -> Rolling:
    return Rolling(make_worker(world), RolloutConfig(world=""), SAMPLING, Kept(folder), staleness)


def aged(settings: list[ChainSpec], *born: int) -> list[Begun]:
    return [begun([each], SAMPLING, at)[0] for each, at in zip(settings, born, strict=True)]


async def test_enough_groups_end_an_iteration_and_the_others_leave_nothing_behind(tmp_path: Path) -> None:
    world, settings = office(held=2)
    before = asyncio.all_tasks()
    choice, rollouts = await gathered(begun(settings, SAMPLING, 0), 2, rolling(world, tmp_path), 0)
    names = [each.chain.id for each in settings]
    assert list(choice.done) == names[2:]
    assert [each.id for each in choice.carried] == names[:2]
    assert [(each.chain_id, each.member) for each in rollouts] == [(name, n) for name in names[2:] for n in (0, 1)]
    assert world.under_way == 0, "the sandboxes of what was cut off are given back"
    assert asyncio.all_tasks() == before
    assert choice.figures == {"groups_begun": 4, "groups_carried": 2, "groups_stale": 0, "cut_turns": 0}


async def test_a_stale_group_is_waited_for_and_one_that_is_not_is_put_off_again(tmp_path: Path) -> None:
    world, settings = office(held=1)
    started = aged(settings, 0, 1, 1, 1)
    choice, _ = await gathered(started, 2, rolling(world, tmp_path, staleness=2), 1)
    assert [(each.id, each.born) for each in choice.carried if each.born == 0] == [(settings[0].chain.id, 0)]
    waiting = asyncio.create_task(gathered(started, 2, rolling(world, tmp_path), 1))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    world.held = ()
    late, _ = await waiting
    assert settings[0].chain.id in late.done
    assert (len(late.done), late.stale) == (2, 1)


async def test_of_those_that_are_done_the_oldest_are_taken(tmp_path: Path) -> None:
    world, settings = office(held=0)
    started = aged(settings, 2, 2, 1, 0)
    choice, _ = await gathered(started, 2, rolling(world, tmp_path, staleness=1), 2)
    assert set(choice.done) == {settings[2].chain.id, settings[3].chain.id}
    assert [each.born for each in choice.carried] == [2, 2]


async def test_what_was_chosen_before_is_chosen_again_and_nothing_else_is_done(tmp_path: Path) -> None:
    world, settings = office(held=0)
    names = [each.chain.id for each in settings]
    chosen = Choice(iteration=0, done=(names[1], names[3]), carried=(), cut_turns=5)
    choice, rollouts = await gathered(begun(settings, SAMPLING, 0), 2, rolling(world, tmp_path), 0, chosen)
    assert choice == chosen
    assert {each.chain_id for each in rollouts} == {names[1], names[3]}


class Sluggish(WrappedPolicy):
    """Answers nothing about one task."""

    def __init__(self, policy: Policy, instruction: str) -> None:
        super().__init__(policy)
        self.instruction = instruction

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        if self.instruction in messages[0].content:
            await asyncio.Event().wait()
        return await super().generate(messages, params)


async def test_calls_that_are_cut_off_are_counted(tmp_path: Path) -> None:
    world, settings = office(held=0)
    how = rolling(world, tmp_path)
    slow = replace(how, policy=Sluggish(how.policy, settings[0].chain.tasks[0].instruction))
    choice, _ = await gathered(begun(settings, SAMPLING, 0), 3, slow, 0)
    assert choice.cut_turns == 2, "one of each member of the group"
    assert [each.id for each in choice.carried] == [settings[0].chain.id]


async def test_an_error_ends_all_of_them(tmp_path: Path) -> None:
    world, settings = office(held=2)
    world.steps = 3
    before = asyncio.all_tasks()
    with pytest.raises(Killed):
        await gathered(begun(settings, SAMPLING, 0), 4, rolling(world, tmp_path), 0)
    assert asyncio.all_tasks() == before
    assert world.under_way == 0


def test_carried_groups_keep_their_members_and_name_tasks_that_are_gone() -> None:
    _, settings = office(held=0)
    group = Group(id=settings[1].chain.id, born=4, rollouts=5)
    (back,) = resumed([group], lambda born: settings if born == 4 else [])
    assert (back.setting.chain, back.setting.rollouts) == (settings[1].chain, 5)
    with pytest.raises(BadInput, match=r"were begun and are not drawn any more"):
        resumed([group.model_copy(update={"born": 3})], lambda born: settings if born == 4 else [])


@pytest.mark.parametrize(
    ("oversampling", "chains", "size"), [(1.0, 8, 8), (1.25, 8, 10), (1.1, 10, 11), (1.25, 2, 3), (2.0, 3, 6)]
)
def test_how_many_are_begun(oversampling: float, chains: int, size: int) -> None:
    plan = PartialRollouts(oversampling=oversampling)
    assert plan.size(chains, last=False) == size
    assert plan.size(chains, last=True) == chains, "the last iteration leaves nothing"


def test_turns_of_other_weights_are_counted_by_tokens_and_masked_by_turns() -> None:
    spans = (
        Span(start=0, stop=3, step=0, policy_version="old"),
        Span(start=3, stop=4, step=1, policy_version="new"),
    )
    ids = (1, 2, 3, 4)
    row = TrainRow(trajectory_id="t", prompt_ids=(0,), completion_ids=ids, sampling_logprobs=(-1.0,) * 4, spans=spans)
    assert off_policy_share([row], "new") == 0.75
    assert off_policy_share([row], "old") == 0.25
    assert off_policy_share([], "new") == 0.0
    (own,) = masked([row], [np.array([2.0, -3.0])], "new")
    assert own.tolist() == [0.0, -3.0]


def test_replies_of_other_iterations_are_removed(tmp_path: Path) -> None:
    for name in ("replies-1.jsonl", "replies-2.jsonl", "replies-10.jsonl", "metrics.jsonl"):
        (tmp_path / name).touch()
    sweep(tmp_path, {10})
    assert {path.name for path in tmp_path.iterdir()} == {"replies-10.jsonl", "metrics.jsonl"}
