"""R3L's retries without a model: what is replayed, guided, cut out, counted and compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.config.training import RECIPES, TrainSection
from evolve.environments.office.environment import Office, OfficeConfig
from evolve.environments.office.episode import OfficeEpisode
from evolve.environments.office.worker import make_worker
from evolve.episode.prompting import opening_messages, step_messages
from evolve.errors import ConfigError
from evolve.protocols import Action, StepResult
from evolve.training.pivot import Pivot
from evolve.training.retries import retrying_of
from evolve.training.state_replay import guided
from memory.errors import BadInput
from memory.records import Outcome, Task, Trajectory
from policies.errors import PolicyRefused
from policies.protocols import Message, Policy, Reply, SamplingParams
from policies.recordings import Recordings
from policies.rl.advantages.r3l import r3l as reweighted
from policies.rl.protocols import Retry
from policies.rl.rows import TrainRow, Turn
from policies.wrapped import WrappedPolicy
from tests.evolve.training.again import ENCODER, Tried, heeding, tried

DROPS = ("no_pivot", "refused", "forked", "diverged", "not_graded", "no_token_ids", "not_cut")


@pytest.fixture
def replies(tmp_path: Path) -> Recordings:
    return Recordings(tmp_path / "replies.jsonl")


def whole(row: TrainRow) -> tuple[int, ...]:
    return (*row.prompt_ids, *row.completion_ids)


def count(found: Tried, why: str) -> int:
    return found.whole.counts[f"retries_{why}"]


def only_dropped(found: Tried, why: str) -> None:
    """Assert that each failed episode was dropped for one reason, and that the batch is the one without retries."""
    failed = sum(not each.trajectory.success for each in found.episodes)
    assert found.whole.counts["retries"] == failed == count(found, why) > 0
    assert found.retries == []
    assert found.whole.rows == found.plain.rows


async def test_a_retry_repeats_its_base_up_to_the_step_and_reads_the_same_without_guidance(replies: Recordings) -> None:
    async def late(trajectory: Trajectory, policy: Policy, params: SamplingParams) -> Pivot | None:
        return Pivot(step=len(trajectory.steps) - 2, lessons=("look twice", "think"))

    found = await tried(replies, finder=late)
    episodes = {each.trajectory.id: each.trajectory for each in found.episodes}
    assert max(retry.step for retry in found.retries) > 3, "all begin early: this shows little"
    for retry in found.retries:
        base = episodes[retry.base.trajectory_id]
        start, stop = retry.guidance
        tokens = whole(retry.retry)
        said = [ENCODER.decode(retry.retry.completion_ids[span.start : span.stop]) for span in retry.retry.spans]
        assert said[: retry.step] == [step.action for step in base.steps[: retry.step]]
        messages = opening_messages(base.task, "", "compact", "")
        for step in base.steps[: retry.step]:
            reply = Reply.model_validate((replies.get_reply(step.reply_key) or {})["reply"])
            messages += step_messages(step, reply)
        unguided = ENCODER.encode(messages)
        cut = (*tokens[:start], *tokens[stop:])
        assert cut[: len(unguided)] == whole(retry.base)[: len(unguided)] == unguided
        assert ENCODER.decode(tokens[start:stop]) == "- look twice [?]\n- think [?]\n"


async def test_guidance_helps_and_what_came_of_retries_is_counted(replies: Recordings) -> None:
    found = await tried(replies)
    gains = Counter(retry.retry.reward - retry.base.reward for retry in found.retries)
    assert gains[1] > 0
    assert (count(found, "better"), count(found, "same"), count(found, "worse")) == (gains[1], gains[0], 0)
    assert count(found, "solved") == gains[1]
    tries = sum(count(found, name) for name in ("better", "same", "worse", *DROPS))
    assert found.whole.counts["retries"] == tries == sum(not each.trajectory.success for each in found.episodes)
    assert found.whole.counts["episodes"] == found.plain.counts["episodes"] == 16


async def test_the_batch_is_what_was_not_retried_and_the_transforms_rows_in_their_groups(replies: Recordings) -> None:
    found = await tried(replies)
    names = list(dict.fromkeys(row.trajectory_id for row in found.whole.rows))
    retried = {retry.base.trajectory_id for retry in found.retries}
    assert len(names) == 16 + 2 * len(found.retries) == len(found.whole.episodes.rewards)
    plain = [row for row in found.plain.rows if row.trajectory_id not in retried]
    assert list(found.whole.rows[: len(plain)]) == plain
    rewards = {row.trajectory_id: row.reward for row in found.whole.rows}
    assert found.whole.episodes.rewards.tolist() == [rewards[name] for name in names]
    assert sum(len(row.spans) for row in found.whole.rows) == len(found.whole.episodes.trajectory)
    groups: dict[str, set[int]] = {}
    numbers = dict(zip(names, found.whole.episodes.groups.tolist(), strict=True))
    for row in found.whole.rows:
        groups.setdefault(row.group, set()).add(numbers[row.trajectory_id])
    assert all(len(each) == 1 for each in groups.values())
    assert len(set.union(*groups.values())) == len(groups)
    rows, advantages = found.whole.advantages(reweighted(found.whole.episodes), found.whole.episodes.rewards > -1)
    assert [len(each) for each in advantages] == [len(row.spans) for row in rows]
    assert all((own == 1).all() for row, own in zip(rows, advantages, strict=True) if row.reward >= 1)


async def test_a_retry_that_is_no_better_is_counted_as_the_same(replies: Recordings) -> None:
    found = await tried(replies, policy=make_worker)
    assert found.whole.counts["retries"] == count(found, "same") == len(found.retries) > 0


class Noting(WrappedPolicy):
    """Keeps the seed of each request, and whether it holds guidance."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self.seeds: dict[bool, list[int | None]] = {True: [], False: []}

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        self.seeds["[?]\n" in messages[0].content].append(params.seed)
        return await super().generate(messages, params)


async def test_a_retry_is_drawn_with_numbers_of_its_own(replies: Recordings) -> None:
    noting: list[Noting] = []

    def noted(office: Office) -> Policy:
        noting.append(Noting(heeding(office)))
        return noting[0]

    await tried(replies, policy=noted)
    bases, retries = set(noting[0].seeds[False]), noting[0].seeds[True]
    assert retries
    assert len(set(retries)) == len(retries)
    assert None not in bases
    assert not bases & set(retries)


class Seeded(Office):
    """An office whose answers tell the seed of their episode."""

    def start(self, task: Task, seed: int = 0) -> OfficeEpisode:
        return Counting(super().start(task, seed), seed)  # type: ignore[return-value]


async def test_a_retry_begins_in_the_world_of_its_base(replies: Recordings) -> None:
    found = await tried(replies, office=Seeded(OfficeConfig(deployment=3)), finder=second)
    assert len(found.retries) == found.whole.counts["retries"] > 0


class Restless(Office):
    """An office that counts its episodes, and says so."""

    started = 0

    def start(self, task: Task, seed: int = 0) -> OfficeEpisode:
        self.started += 1
        return Counting(super().start(task, seed), self.started)  # type: ignore[return-value]


class Counting:
    """An episode whose answers tell a number."""

    def __init__(self, episode: OfficeEpisode, number: int) -> None:
        self._episode, self._number = episode, number

    async def step(self, action: Action) -> StepResult:
        result = await self._episode.step(action)
        return result.model_copy(update={"observation": f"{result.observation}\n(call {self._number})"})

    async def grade(self) -> Outcome:
        return await self._episode.grade()

    async def close(self) -> None:
        await self._episode.close()


async def second(trajectory: Trajectory, policy: Policy, params: SamplingParams) -> Pivot | None:
    return Pivot(step=1, lessons=("look twice",))


async def test_a_world_that_answers_otherwise_gives_no_retry(replies: Recordings) -> None:
    found = await tried(replies, office=Restless(OfficeConfig(deployment=3)), finder=second)
    only_dropped(found, "diverged")


async def test_where_nothing_says_what_went_wrong_there_is_no_retry(replies: Recordings) -> None:
    async def nowhere(trajectory: Trajectory, policy: Policy, params: SamplingParams) -> Pivot | None:
        return None

    only_dropped(await tried(replies, finder=nowhere), "no_pivot")


class Refusing(WrappedPolicy):
    """Refuses what holds guidance."""

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        if "look twice" in messages[0].content:
            raise PolicyRefused("the prompt is too long")
        return await super().generate(messages, params)


async def test_a_retry_that_is_refused_is_dropped_at_its_first_step_and_later(replies: Recordings) -> None:
    async def first(trajectory: Trajectory, policy: Policy, params: SamplingParams) -> Pivot | None:
        return Pivot(step=0, lessons=("look twice",))

    only_dropped(await tried(replies, finder=first, wrapped=Refusing), "refused")
    only_dropped(await tried(replies, finder=second, wrapped=Refusing), "not_graded")


def merging(messages: Sequence[Message]) -> tuple[int, ...]:
    """Encode as a tokenizer does that makes one token of guidance and what stands before it."""
    ids = ENCODER.encode(messages)
    return (0, *ids[1:]) if "look twice" in messages[0].content else ids


async def test_guidance_that_is_no_tokens_of_its_own_cannot_be_cut(replies: Recordings) -> None:
    only_dropped(await tried(replies, finder=second, encode=merging), "not_cut")


class Broken(Recordings):
    """Of what was sampled under guidance, or without, the engine told no log-probability."""

    guided = False

    def get_reply(self, key: str) -> dict[str, Any] | None:
        found = super().get_reply(key)
        if found is None or ("look twice" in ENCODER.decode(found["reply"]["prompt_token_ids"])) is not self.guided:
            return found
        return found | {"reply": found["reply"] | {"logprobs": [math.nan] * len(found["reply"]["token_ids"])}}


@pytest.mark.parametrize("guided", [False, True])
async def test_where_base_or_retry_has_no_turn_to_train_on_after_the_step_there_is_no_retry(
    tmp_path: Path, guided: bool
) -> None:
    replies = Broken(tmp_path / "replies.jsonl")
    replies.guided = guided
    only_dropped(await tried(replies, finder=second), "no_token_ids")


ids = st.lists(st.integers(0, 3), min_size=1, max_size=6).map(tuple)


@given(before=ids, told=ids, after=ids, said=st.lists(ids, max_size=3))
def test_one_run_of_further_tokens_is_found_and_cut_wherever_it_stands(
    before: tuple[int, ...], told: tuple[int, ...], after: tuple[int, ...], said: list[tuple[int, ...]]
) -> None:
    """What was said comes after a 9, which no opening holds: as an assistant's mark would."""
    turns = [turn(0, (*before, *after, 9))]
    for each in said:
        turns.append(turn(len(turns), (*turns[-1].prompt_ids, *each, 9)))
    last = turns[-1].prompt_ids
    found = guided(turns, turn(0, (*before, *told, *last[len(before) :])))
    assert found is not None
    again, (start, stop) = found
    assert stop - start == len(told)
    assert len(again) == len(said)
    for one, other in zip(again, turns, strict=False):
        assert (*one.prompt_ids[:start], *one.prompt_ids[stop:]) == other.prompt_ids
        assert one.prompt_ids == (*before, *told, *other.prompt_ids[len(before) :])


def turn(step: int, prompt: tuple[int, ...]) -> Turn:
    return Turn(step=step, prompt_ids=prompt, token_ids=(1,), logprobs=(0.0,), policy_version="")


def test_tokens_after_what_was_said_are_no_guidance() -> None:
    turns = [turn(0, (1, 9)), turn(1, (1, 9, 5, 5, 9))]
    assert guided(turns, turn(1, (1, 9, 5, 5, 7, 9))) is None
    assert guided(turns, turn(1, (1, 7, 9, 5, 5, 9))) is not None


async def test_a_transform_that_names_rows_after_nothing_known_is_refused(replies: Recordings) -> None:
    def renamed(retries: Sequence[Retry]) -> tuple[TrainRow, ...]:
        return tuple(each.base.model_copy(update={"trajectory_id": "mine"}) for each in retries)

    with pytest.raises(BadInput, match="made a row of 'mine'; expected the id of a base or of a retry"):
        await tried(replies, transform=renamed)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"skills": True}, "skills = True, length = 1; retries are of single tasks"),
        ({"length": 2}, "skills = False, length = 2; retries are of single tasks"),
        ({"rollouts": 5}, "rollouts = 5; half of them are retries: give an even number"),
        ({"retries": "policy"}, "compact profile, which has no such role"),
    ],
)
def test_what_retries_do_not_go_with_is_refused(more: dict[str, Any], said: str) -> None:
    section = TrainSection(**RECIPES["r3l"] | more)
    with pytest.raises(ConfigError, match=said):
        retrying_of(section, "compact")
    assert retrying_of(TrainSection(**RECIPES["r3l"] | {"retries": "policy"}), "full") is not None
    assert retrying_of(TrainSection(), "compact") is None
