"""R3L's retries: credit from the pivotal step on, training copies without guidance, rewards for what helped."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import BadInput
from policies.rl.advantages.r3l import r3l as reweighted
from policies.rl.protocols import Retry
from policies.rl.rows import TrainRow, Turn, rows_of
from policies.rl.transforms.r3l import r3l
from tests.policies.rl.batches import batch

PROMPT, GUIDANCE = (1, 2, 3), (90, 91)


def row(name: str, said: list[list[int]], reward: float, guided_at: int | None = None) -> tuple[TrainRow, int]:
    """Return an episode that said these tokens, a world's 7 between them, and where guidance stands before a step."""
    turns: list[Turn] = []
    prompt, place = PROMPT, 0
    for step, ids in enumerate(said):
        if step == guided_at:
            place = len(prompt)
            prompt = (*prompt, *GUIDANCE)
        logprobs = tuple(-float(each) / 100 for each in ids)
        turns.append(Turn(step=step, prompt_ids=prompt, token_ids=tuple(ids), logprobs=logprobs, policy_version="1"))
        prompt = (*prompt, *ids, 7)
    empty = TrainRow(
        trajectory_id=name,
        group="task",
        rewards={"outcome": reward},
        prompt_ids=(),
        completion_ids=(),
        sampling_logprobs=(),
        spans=(),
    )
    (made,) = rows_of(turns, empty)
    return made, place


def retried(base: list[list[int]], again: list[list[int]], step: int, rewards: tuple[float, float]) -> Retry:
    """Return a retry from `step` that said `again` from there on."""
    first, _ = row("base", base, rewards[0])
    other, place = row("retry", base[:step] + again, rewards[1], guided_at=step)
    reflection, _ = row("reflection", [[50, 51]], 0.0)
    return Retry(first, other, step, (place, place + len(GUIDANCE)), reflection)


def trained(made: TrainRow) -> list[int]:
    return [token for token, on in zip(made.completion_ids, made.loss_mask, strict=True) if on]


def test_the_golden_retry() -> None:
    base, retry, guided, reflection = r3l([retried([[10, 11], [20], [30, 31]], [[40, 41], [42]], 1, (0.5, 1.0))])
    assert base.completion_ids == (10, 11, 7, 20, 7, 30, 31)
    assert base.loss_mask == (0, 0, 0, 1, 0, 1, 1)
    assert (retry.prompt_ids, retry.completion_ids) == (PROMPT, (10, 11, 7, 40, 41, 7, 42))
    assert retry.loss_mask == (0, 0, 0, 1, 1, 0, 1)
    assert retry.sampling_logprobs == pytest.approx([-0.1, -0.11, 0, -0.4, -0.41, 0, -0.42], abs=1e-6)
    assert guided.completion_ids == (10, 11, 7, 90, 91, 40, 41, 7, 42)
    assert guided.loss_mask == (0, 0, 0, 0, 0, 1, 1, 0, 1)
    assert [each.group for each in (base, retry, guided, reflection)] == [
        "task",
        "task",
        "task/retry/0",
        "task/reflect/0",
    ]
    assert [each.reward for each in (base, retry, guided, reflection)] == [0.5, 1.0, 1.0, 1.0]
    assert len({each.trajectory_id for each in (base, retry, guided, reflection)}) == 4


def test_the_golden_advantages_of_two_retries() -> None:
    """The group of the task has the rewards .5, 1, 0, 0; guided retries and reflections stand alone."""
    some = [
        retried([[10], [20]], [[40]], 1, (0.5, 1.0)),
        retried([[10], [21]], [[41]], 1, (0.0, 0.0)),
    ]
    rows = r3l(some)
    groups = {name: at for at, name in enumerate(dict.fromkeys(each.group for each in rows))}
    found = reweighted(batch([each.reward for each in rows], [groups[each.group] for each in rows]))
    expected = [0.375, 1.0, 1.0, 1.0, -0.375, -0.375, 0.0, 0.0]
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("again", "rewards", "worth"),
    [
        ([[40]], (0.0, 0.5), 1.0),
        ([[40]], (0.5, 0.0), 0.0),
        ([[40]], (0.5, 0.5), 1.0),
        ([[40], [41]], (0.5, 0.5), 0.0),
        ([[40], [41], [42]], (0.5, 0.5), 0.0),
    ],
)
def test_a_retry_is_worth_one_where_it_is_better_or_as_good_and_shorter(
    again: list[list[int]], rewards: tuple[float, float], worth: float
) -> None:
    *_, guided, reflection = r3l([retried([[10], [20], [30]], again, 1, rewards)])
    assert (guided.reward, reflection.reward) == (worth, worth)


def test_guidance_in_the_prompt_is_cut_out_too() -> None:
    _, retry, guided, _ = r3l([retried([[10]], [[40, 41]], 0, (0.0, 1.0))])
    assert guided.prompt_ids == (*PROMPT, *GUIDANCE)
    assert (retry.prompt_ids, retry.completion_ids, retry.loss_mask) == (PROMPT, (40, 41), (1, 1))


said = st.lists(st.lists(st.integers(10, 80), min_size=1, max_size=4), min_size=1, max_size=5)


@given(base=said, again=said, data=st.data())
def test_all_that_was_said_from_the_step_on_is_trained_and_nothing_else(
    base: list[list[int]], again: list[list[int]], data: st.DataObject
) -> None:
    step = data.draw(st.integers(0, len(base) - 1))
    first, retry, guided, reflection = r3l([retried(base, again, step, (0.0, 1.0))])
    assert trained(first) == [token for turn in base[step:] for token in turn]
    assert trained(retry) == trained(guided) == [token for turn in again for token in turn]
    assert trained(reflection) == [50, 51]
    unguided, _ = row("retry", base[:step] + again, 1.0)
    assert (retry.prompt_ids, retry.completion_ids) == (unguided.prompt_ids, unguided.completion_ids)
    assert retry.sampling_logprobs == unguided.sampling_logprobs
    assert [span for span in unguided.spans if span.step >= step] == list(retry.spans)
    common = len(PROMPT) + sum(len(turn) + 1 for turn in base[:step])
    whole = [(*each.prompt_ids, *each.completion_ids) for each in (first, retry)]
    assert whole[0][:common] == whole[1][:common], "the two part at the step, not before"


@given(
    rewards=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
)
def test_the_order_of_retries_does_not_matter_to_the_groups_rewards(
    rewards: list[tuple[float, float]], order: random.Random
) -> None:
    some = [retried([[10], [20]], [[40]], 1, pair) for pair in rewards]
    other = list(some)
    order.shuffle(other)
    one, two = ([each.reward for each in r3l(given) if each.group == "task"] for given in (some, other))
    assert sorted(one) == sorted(two)


def test_retries_that_are_none_are_refused() -> None:
    good = retried([[10], [20]], [[40]], 1, (0, 1))
    with pytest.raises(BadInput, match="from step 5; expected a step that 'base' reached"):
        r3l([Retry(good.base, good.retry, 5)])
    other, _ = row("other", [[11], [40]], 1.0)
    with pytest.raises(BadInput, match="'other' does not repeat 'base' up to step 1"):
        r3l([Retry(good.base, other, 1)])
    with pytest.raises(BadInput, match=r"got guidance at \(3, 99\); expected a range of"):
        r3l([Retry(good.base, good.retry, 1, (3, 99))])
    with pytest.raises(BadInput, match="tokens of the policy itself"):
        r3l([Retry(good.base, good.retry, 1, (7, 8))])
    assert len(r3l([Retry(good.base, good.retry, 1)])) == 3
