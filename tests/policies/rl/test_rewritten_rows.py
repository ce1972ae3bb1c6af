"""Rows whose past is rewritten: CLEANER's repairs and RLTF's second attempts, with what is then not known of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import BadInput
from policies.rl.advantages.rltf_sd import rltf_sd
from policies.rl.protocols import Retry
from policies.rl.rows import TrainRow
from policies.rl.transforms.cleaner import cleaner
from policies.rl.transforms.rltf import rltf
from tests.policies.rl.batches import batch
from tests.policies.rl.test_transforms import PROMPT, row, said

FIRST, ERROR = (50, 51), 7
"""A first attempt; what the world answers every turn with."""


def repaired(turns: list[list[int]], failed: int, until: int) -> Retry:
    """Return an episode of which the turns `failed` up to `until` failed."""
    base, _ = row("episode", turns[: failed + 1], 0.0)
    whole, _ = row("episode", turns, 1.0)
    starts = [len(PROMPT) + span.start for span in whole.spans]
    return Retry(base, whole, failed, (starts[failed], starts[until]))


def known(made: TrainRow) -> list[bool]:
    return [not math.isnan(each) for each in made.sampling_logprobs]


def test_a_failed_turn_goes_with_its_error_and_the_repair_stands_in_its_place() -> None:
    (clean,) = cleaner([repaired([[10], [20, 21], [30, 31], [40]], 1, 2)])
    assert (clean.prompt_ids, clean.completion_ids) == (PROMPT, (10, 7, 30, 31, 7, 40))
    assert clean.loss_mask == (1, 0, 1, 1, 0, 1)
    assert [span.step for span in clean.spans] == [0, 2, 3]
    assert clean.reward == 1
    assert known(clean) == [True, True, False, False, True, False], "the world's tokens were never sampled"
    assert clean.sampling_logprobs[:2] == pytest.approx((-0.1, 0))


def test_several_failures_on_end_and_one_at_the_beginning_are_overwritten() -> None:
    (clean,) = cleaner([repaired([[10], [11], [12], [13]], 0, 2)])
    assert (clean.prompt_ids, clean.completion_ids) == (PROMPT, (12, 7, 13))


@given(turns=said.filter(lambda turns: len(turns) > 1), data=st.data())
def test_what_is_left_is_the_episode_without_its_failures(turns: list[list[int]], data: st.DataObject) -> None:
    failed = data.draw(st.integers(0, len(turns) - 2))
    until = data.draw(st.integers(failed + 1, len(turns) - 1))
    (clean,) = cleaner([repaired(turns, failed, until)])
    straight, _ = row("episode", turns[:failed] + turns[until:], 1.0)
    assert (clean.prompt_ids, clean.completion_ids) == (straight.prompt_ids, straight.completion_ids)
    assert clean.loss_mask == straight.loss_mask
    cut = straight.spans[failed].start
    assert known(clean) == [at < cut or not on for at, on in enumerate(clean.loss_mask)]


def test_what_is_no_repair_is_refused() -> None:
    good = repaired([[10], [20, 21], [30]], 1, 2)
    start, stop = good.guidance
    for guidance in ((start, start), (0, stop), (start, len(PROMPT) + len(good.retry.completion_ids))):
        with pytest.raises(BadInput, match="and the turn that repaired it behind"):
            cleaner([Retry(good.base, good.retry, 1, guidance)])
    with pytest.raises(BadInput, match="cuts through a turn of 'episode'"):
        cleaner([Retry(good.base, good.retry, 1, (start + 1, stop))])
    with pytest.raises(BadInput, match="expected a range of"):
        cleaner([Retry(good.base, good.retry, 1, (start, 99))])


def criticised(rewards: tuple[float, float] = (0.0, 1.0)) -> Retry:
    """Return a first attempt, and a second whose prompt goes on with the first and its criticism."""
    base, _ = row("first", [list(FIRST)], rewards[0])
    again, _ = row("second", [[60, 61], [62]], rewards[1])
    told = (*again.prompt_ids, *FIRST, ERROR, 90)
    return Retry(base, again.model_copy(update={"prompt_ids": told}), 0, (len(PROMPT), len(told)))


def test_a_second_attempt_is_put_after_the_prompt_of_the_first() -> None:
    first, second = rltf([criticised()])
    assert first.completion_ids == FIRST
    assert known(first) == [True, True]
    assert (second.prompt_ids, second.completion_ids) == (PROMPT, (60, 61, 7, 62))
    assert second.group == first.group
    assert known(second) == [False, False, True, False]


def test_second_attempts_are_learned_by_how_much_better_they_are_than_the_first() -> None:
    """The golden batch of `rltf_sd`, made from retries: first attempts 0, 0, 1, 0 and second ones 1, 0, 1, 1."""
    rows = rltf([criticised(pair) for pair in ((0.0, 1.0), (0.0, 0.0), (1.0, 1.0), (0.0, 1.0))])
    found = rltf_sd(batch([each.reward for each in rows], revisions=[0, 1] * 4))
    assert found == pytest.approx([0, 0.75, 0, -0.25, 0, 0.75, 0, 0.75])


def test_what_is_no_second_attempt_is_refused() -> None:
    good = criticised()
    with pytest.raises(BadInput, match="from step 1; rltf expects attempts from the beginning"):
        rltf([Retry(good.base, good.retry, 1, good.guidance)])
    with pytest.raises(BadInput, match="does not begin with the prompt of 'first'"):
        rltf([Retry(good.base, good.retry, 0, (len(PROMPT), len(PROMPT) + 1))])
    start, stop = good.guidance
    with pytest.raises(BadInput, match="give the tokens of first attempt and criticism"):
        rltf([Retry(good.base, good.retry, 0, (start, stop + 2))])
