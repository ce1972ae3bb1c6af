"""Rows as SkyRL takes them: nothing of a row is lost, and what is not the policy's gets no reward.

K1  ids, masks and sampling log-probabilities are the row's own; lists are of equal length, members in their order
K2  an advantage stands on every token of its turn and nowhere else; SkyRL's trainer, ours before it, leaves it there
K3  the policy-gradient sum over SkyRL's arrays is that over our rows
K4  an engine of SkyRL answers ids with ids; a version, an adapter or an answer without log-probabilities is refused
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from memory.errors import BadInput
from policies.errors import PolicyRefused, PolicyUnavailable
from policies.protocols import SamplingParams
from policies.rl.rows import Span, TrainRow, Turn, rows_of
from policies.rl.skyrl_rows import ClientEngine, GivenAdvantages, generator_output, spread


def row(at: int, turns: list[tuple[int, int]], chain: str = "chain", rollout: int = 0) -> TrainRow:
    """Return a row whose turns are (tokens of the world before it, tokens of the policy)."""
    ids: list[int] = []
    logprobs: list[float] = []
    spans: list[Span] = []
    for step, (world, own) in enumerate(turns):
        ids += [7] * world
        logprobs += [0.0] * world
        spans.append(Span(start=len(ids), stop=len(ids) + own, step=step, policy_version="v"))
        ids += [9] * own
        logprobs += [-0.5] * own
    return TrainRow(
        trajectory_id=f"tr-{at}",
        chain_id=chain,
        rollout=rollout,
        rewards={"outcome": 1.0},
        prompt_ids=(1, 2),
        completion_ids=tuple(ids),
        sampling_logprobs=tuple(logprobs),
        spans=tuple(spans),
    )


class Theirs:
    """As SkyRL 0.3's trainer does where trajectories have several rows: the last one's advantage for all of them."""

    def compute_advantages_and_returns(self, data: dict[str, Any]) -> dict[str, Any]:
        last = data["rewards"][-1:].sum()
        return data | {"advantages": last * data["response_mask"], "returns": last * data["response_mask"]}


class Ours(GivenAdvantages, Theirs):
    """How the two are put together."""


TURNS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), min_size=1, max_size=4)
MEMBERS = st.lists(st.lists(TURNS, min_size=1, max_size=3), min_size=1, max_size=4)


@drawn(members=MEMBERS, seed=st.integers(0, 100))
def test_nothing_of_a_row_is_lost(members: list[list[list[tuple[int, int]]]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    made = [[row(at, turns, f"c{n}", n) for at, turns in enumerate(rows)] for n, rows in enumerate(members)]
    advantages = [[rng.normal(size=len(each.spans)) for each in rows] for rows in made]
    output = generator_output(list(zip(made, advantages, strict=True)))
    flat = [each for rows in made for each in rows]
    assert {len(values) for name, values in output.items() if name != "rollout_metrics"} == {len(flat)}
    for at, each in enumerate(flat):
        assert output["prompt_token_ids"][at] == list(each.prompt_ids)
        assert output["response_ids"][at] == list(each.completion_ids)
        assert output["loss_masks"][at] == list(each.loss_mask)
        assert output["rollout_logprobs"][at] == list(each.sampling_logprobs)
        outside = [value for value, mask in zip(output["rewards"][at], each.loss_mask, strict=True) if not mask]
        assert outside == [0.0] * len(outside)
    ends = [sum(len(rows) for rows in made[: n + 1]) - 1 for n in range(len(made))]
    assert [at for at, is_last in enumerate(output["is_last_step"]) if is_last] == ends
    assert [each.instance_id for each in output["trajectory_ids"]] == [each.chain_id for each in flat]
    ours = sum(
        float(a) * span.stop - float(a) * span.start
        for rows, all_of in zip(made, advantages, strict=True)
        for r, own in zip(rows, all_of, strict=True)
        for span, a in zip(r.spans, own, strict=True)
    )
    theirs = 0.0
    for rewards, mask in zip(output["rewards"], output["loss_masks"], strict=True):
        data = {"rewards": np.array([rewards]), "response_mask": np.array([mask])}
        done = Ours().compute_advantages_and_returns(data)
        assert np.array_equal(done["advantages"], done["returns"])
        theirs += float((done["advantages"] * np.array(mask)).sum())
    assert theirs == pytest.approx(ours, abs=1e-9)


def test_recorded_turns_become_its_rows() -> None:
    turns = [
        Turn(step=0, prompt_ids=(1, 2, 3), token_ids=(4, 5), logprobs=(-0.1, -0.2), policy_version="v1"),
        Turn(step=1, prompt_ids=(1, 2, 3, 4, 5, 6), token_ids=(7,), logprobs=(-0.3,), policy_version="v1"),
    ]
    (made,) = rows_of(turns, row(0, [(0, 1)]))
    output = generator_output([([made], [np.array([0.5, -1.0])])])
    assert output["response_ids"] == [[4, 5, 6, 7]]
    assert output["loss_masks"] == [[1, 1, 0, 1]]
    assert output["rewards"] == [[0.5, 0.5, 0.0, -1.0]]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(BadInput, match="members \\[1\\]"):
        generator_output([([row(0, [(0, 1)])], [np.array([1.0])]), ([], [])])
    with pytest.raises(BadInput, match="one a turn"):
        spread(row(0, [(0, 1), (1, 1)]), np.array([1.0]))


class Client:
    """Answers as SkyRL's client does, with or without log-probabilities."""

    def __init__(self, logprobs: list[list[float]] | None) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self.logprobs = logprobs

    async def generate(self, input_batch: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append(input_batch)
        return {"response_ids": [[5, 6]], "stop_reasons": ["stop"], "response_logprobs": self.logprobs}


async def test_an_engine_of_skyrl_answers_ids_with_ids() -> None:
    client = Client([[-0.1, -0.2]])
    engine = ClientEngine(client, context=64)
    done = await engine.sample([1, 2], SamplingParams(max_tokens=8, temperature=1.0, seed=0), None)
    assert (done.token_ids, done.logprobs, done.finish_reason) == ((5, 6), (-0.1, -0.2), "stop")
    assert client.asked == [
        {
            "prompt_token_ids": [[1, 2]],
            "sampling_params": {"temperature": 1.0, "max_tokens": 8, "logprobs": 0, "seed": 0},
        }
    ]
    assert await engine.context() == 64
    assert await engine.loaded() == frozenset()
    with pytest.raises(PolicyRefused, match="weights it trains"):
        await engine.sample([1], SamplingParams(), "policy-v1")
    for refused in (engine.load("policy-v1", Path("adapter")), engine.unload("policy-v1")):
        with pytest.raises(PolicyRefused):
            await refused
    with pytest.raises(PolicyUnavailable, match="log-probabilities"):
        await ClientEngine(Client(None), 64).sample([1], SamplingParams(), None)
    await engine.aclose()
