"""Branches without a model: which turns, what is said again, who is compared, what is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contrib.branching.arpo import arpo
from evolve.config.training import RECIPES, TrainSection
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.worker import make_worker
from evolve.episode.rollout import RolloutConfig
from evolve.episode.skill_runtime.chains import Link
from evolve.errors import ConfigError
from evolve.seeds import seed_for
from evolve.training.branches import Branching, Grown, branching_of, entropy, places
from evolve.training.chain_tasks import chains
from evolve.training.rollouts import ChainSpec, Rollout, Sampling, roll
from evolve.training.state_replay import Calls
from memory.records import Outcome, Step, Task, Trajectory
from policies.cache import CachedPolicy
from policies.errors import PolicyRefused
from policies.protocols import Message, Policy, Reply, SamplingParams
from policies.recordings import Recordings
from policies.rl.protocols import Array, BranchDecision, Flags
from policies.rl.rows import Turn
from policies.wrapped import WrappedPolicy
from tests.evolve.training.again import ENCODER, Tokened
from tests.evolve.training.test_retries import Restless

BASES, BRANCHES, GROUPS = 2, 3, 4


def every(rises: Array, draws: Array) -> Flags:
    return np.ones(len(rises), dtype=np.bool_)


def none(rises: Array, draws: Array) -> Flags:
    return ~every(rises, draws)


def last(rises: Array, draws: Array) -> Flags:
    return np.arange(len(rises)) == len(rises) - 1


class Noting(WrappedPolicy):
    """Keeps the seeds that it was asked with."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self.seeds: list[int | None] = []

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        self.seeds.append(params.seed)
        return await super().generate(messages, params)


@dataclass(frozen=True)
class Grew:
    """What came of a batch with branches."""

    bases: tuple[Rollout, ...]
    grown: Grown

    def members(self) -> dict[str, list[int]]:
        """Return the numbers of each group's members, sorted."""
        found: dict[str, list[int]] = {}
        for each in (*self.bases, *self.grown.filled, *self.grown.branches):
            found.setdefault(each.group, []).append(each.member)
        return {name: sorted(numbers) for name, numbers in found.items()}


async def grew(
    replies: Recordings,
    decide: BranchDecision,
    office: Office | None = None,
    wrapped: Callable[[Policy], Policy] = lambda policy: policy,
) -> Grew:
    """Roll out four tasks twice each, and branch them; `wrapped` stands before the policy in branches."""
    world = office or Office(OfficeConfig(deployment=3))
    worker = make_worker(world)
    answers = CachedPolicy(Tokened(worker, ENCODER.encode), replies)
    drawn = [ChainSpec(chain, world) for chain in chains(world.tasks("train"), 1, seed=0)[:GROUPS]]
    acting = RolloutConfig(world=world.describe(worker.profile), max_steps=16, temperature=1.0)
    sampling = Sampling(rollouts=BASES, skills=False)
    bases = await roll(drawn, answers, acting, sampling, 0)
    calls = Calls(wrapped(answers), acting, replies.get_reply)
    return Grew(bases, await Branching(decide, BRANCHES).grown(bases, drawn, calls, sampling, 0))


@pytest.fixture
def replies(tmp_path: Path) -> Recordings:
    return Recordings(tmp_path / "replies.jsonl")


async def test_branches_repeat_a_base_up_to_their_turn_and_belong_to_its_group(replies: Recordings) -> None:
    found = await grew(replies, every)
    assert found.grown.counts == {
        "branches": GROUPS * BRANCHES,
        "branches_same": GROUPS * BRANCHES,
        "branches_filled": 0,
        "branches_diverged": 0,
        "branches_not_graded": 0,
    }, "the worker says the same again"
    assert set(map(tuple, found.members().values())) == {tuple(range(BASES + BRANCHES))}
    ids = {each.links[0].trajectory.id for each in (*found.bases, *found.grown.branches)}
    assert len(ids) == GROUPS * (BASES + BRANCHES)
    for branch in found.grown.branches:
        (link,) = branch.links
        said = [step.reply_key for step in link.trajectory.steps]
        bases = [each.links[0].trajectory for each in found.bases if each.group == branch.group]
        (base,) = (each for each in bases if each.seed == link.trajectory.seed)
        again = [step.reply_key for step in base.steps[: len(said)]]
        shared = sum(one == other for one, other in zip(said, again, strict=False))
        assert 0 < shared < len(said), "nothing was said again, or nothing anew"
        assert said[:shared] == again[:shared]
        assert branch.rewards == ({"outcome": float(link.trajectory.success), "skill": 0.0},)


async def test_each_branch_is_drawn_with_numbers_of_its_own(replies: Recordings) -> None:
    noted: list[Noting] = []

    def noting(policy: Policy) -> Policy:
        """Stand before the cache, which answers the same request with the same seed once for all."""
        noted.append(Noting(policy))
        return noted[0]

    found = await grew(replies, every, wrapped=noting)
    bases = {seed_for(each.links[0].trajectory.seed, step) for each in found.bases for step in range(16)}
    assert None not in noted[0].seeds
    assert len(set(noted[0].seeds)) == len(noted[0].seeds) > GROUPS * BRANCHES
    assert not bases & set(noted[0].seeds)


async def test_what_no_turn_was_branched_for_is_done_whole(replies: Recordings) -> None:
    found = await grew(replies, none)
    assert found.grown.branches == ()
    assert found.grown.counts == Counter(branches_filled=GROUPS * BRANCHES) | dict.fromkeys(
        ("branches", "branches_same", "branches_diverged", "branches_not_graded"), 0
    )
    assert set(map(tuple, found.members().values())) == {(0, 1, 5, 6, 7)}
    found = await grew(replies, last)
    assert found.grown.counts["branches"] == GROUPS * BASES, "one turn of each base"
    assert found.grown.counts["branches_filled"] == GROUPS * (BRANCHES - BASES)
    assert {len(set(numbers)) for numbers in found.members().values()} == {BASES + BRANCHES}


async def test_a_world_that_answers_otherwise_gives_no_branch(replies: Recordings) -> None:
    found = await grew(replies, every, Restless(OfficeConfig(deployment=3)))
    assert found.grown.branches == ()
    assert found.grown.counts["branches"] == found.grown.counts["branches_diverged"] == GROUPS * BRANCHES
    assert found.grown.counts["branches_filled"] == GROUPS * BRANCHES


class Refusing(WrappedPolicy):
    """Refuses to go on."""

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        if len(messages) > 2:
            raise PolicyRefused("the prompt is too long")
        return await super().generate(messages, params)


async def test_a_branch_that_is_not_graded_is_replaced(replies: Recordings) -> None:
    found = await grew(replies, every, wrapped=Refusing)
    assert found.grown.branches == ()
    assert found.grown.counts["branches_not_graded"] == found.grown.counts["branches_filled"] == GROUPS * BRANCHES


GROUP = st.lists(st.lists(st.lists(st.floats(-9, 0), max_size=25), max_size=6), max_size=5)


def group(bases: Sequence[Sequence[Sequence[float]]]) -> tuple[list[Rollout], dict[str, dict[str, Any]]]:
    """Return rollouts whose turns have these log-probabilities, and where their replies are kept."""
    kept: dict[str, dict[str, Any]] = {}
    found: list[Rollout] = []
    for at, turns in enumerate(bases):
        steps = [Step(index=n, action="", observation="", reply_key=f"{at}/{n}") for n in range(len(turns))]
        for n, logprobs in enumerate(turns):
            ids = tuple(range(len(logprobs)))
            reply = Reply(text="", prompt_token_ids=(0,), token_ids=ids, logprobs=tuple(logprobs))
            kept[f"{at}/{n}"] = {"reply": reply.model_dump(mode="json")}
        task = Task(id="t", instruction="")
        made = Trajectory(id=str(at), task=task, steps=tuple(steps), outcome=Outcome(reward=0, success=False), seed=at)
        found.append(Rollout("c", at, (Link(made),), ({"outcome": 0.0},), (False,), (False,), "", "c"))
    return found, kept


def rises(bases: Sequence[Sequence[Sequence[float]]]) -> Mapping[tuple[int, int], float]:
    """Return by (base, turn) how much less sure each later turn was than the first of its base, by numpy."""
    means = [[-np.mean(turn[:20]) if turn else 0.0 for turn in turns] for turns in bases]
    return {(at, n): mean - own[0] for at, own in enumerate(means) for n, mean in enumerate(own) if n}


@settings(deadline=None)
@given(bases=GROUP, most=st.integers(1, 9))
def test_the_most_unsure_turns_come_first_and_never_more_than_asked(bases: Any, most: int) -> None:
    rollouts, kept = group(bases)
    chosen = places(rollouts, every, most, kept.get)
    known = rises(bases)
    at = [(place.base.member, place.turns[-1].step) for place in chosen]
    assert len(chosen) == min(most, len(known))
    assert len(set(at)) == len(at)
    assert [known[each] for each in at] == pytest.approx(sorted(known.values(), reverse=True)[:most])
    assert all([turn.step for turn in place.turns] == list(range(place.turns[-1].step + 1)) for place in chosen)


@settings(deadline=None)
@given(bases=GROUP)
def test_what_the_decision_leaves_out_is_never_branched_from(bases: Any) -> None:
    rollouts, kept = group(bases)
    told: list[tuple[list[float], list[float]]] = []

    def falling(own: Array, draws: Array) -> Flags:
        told.append((own.tolist(), draws.tolist()))
        return own < 0

    chosen = places(rollouts, falling, 99, kept.get)
    known = rises(bases)
    assert [each for own, _ in told for each in own] == pytest.approx(list(known.values()))
    assert len(chosen) == sum(rise < 0 for own, _ in told for rise in own)
    assert all(place.rise < 0 for place in chosen)
    drawn = [draw for _, draws in told for draw in draws]
    assert all(0 <= draw < 1 for draw in drawn)
    assert len(set(drawn)) == len(drawn)


def test_a_base_that_was_not_graded_or_is_not_known_in_tokens_offers_no_turn() -> None:
    bases, kept = group([[[0.0], [-1.0]], [[0.0], [-2.0]], [[0.0], [-3.0]]])
    (broken,) = bases[1].links
    ungraded = broken.trajectory.model_copy(update={"outcome": None})
    bases[1] = Rollout("c", 1, (Link(ungraded),), *(({"outcome": 0.0},), (False,), (False,), "", "c"))
    del kept["2/1"]
    assert [place.base.member for place in places(bases, every, 9, kept.get)] == [0]


def test_entropy_is_of_the_first_twenty_tokens() -> None:
    logprobs = (*[-1.0] * 10, *[-2.0] * 10, *[-50.0] * 5)
    turn = Turn(step=0, prompt_ids=(), token_ids=tuple(range(25)), logprobs=logprobs, policy_version="")
    assert entropy(turn) == 1.5


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"skills": True}, "skills = True, length = 1; branches are of single tasks"),
        ({"length": 2}, "skills = False, length = 2; branches are of single tasks"),
        ({"retries": "rules"}, "retries = 'rules', candidates = 0; a group is shared out in one way"),
        ({"candidates": 1}, "retries = '', candidates = 1; a group is shared out in one way"),
        ({"branching": {"branches": 8}}, "branches = 8 with rollouts = 8; branches are a part of them"),
    ],
)
def test_what_branches_do_not_go_with_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        branching_of(TrainSection(**RECIPES["grpo"] | {"branching": {"branches": 4}} | more))
    assert branching_of(TrainSection(**RECIPES["grpo"] | {"branching": {"branches": 7}})) == Branching(arpo, 7)
    assert branching_of(TrainSection()) is None
