"""Rows as SkyRL takes them: nothing of a row is lost, and what is not the policy's gets no reward.

K1  ids, masks and sampling log-probabilities are the row's own; lists are of equal length, members in their order
K2  an advantage stands on every token of its turn and nowhere else; what a member was paid, at its end and nowhere else
K3  the policy-gradient sum over SkyRL's arrays, with our trainer before its own, is that over our rows
K4  an engine of SkyRL answers ids with ids; a version, an adapter or an answer without log-probabilities is refused
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given as drawn
from hypothesis import strategies as st

from memory.errors import BadInput
from policies.errors import PolicyRefused, PolicyUnavailable
from policies.protocols import SamplingParams
from policies.rl.rows import Span, TrainRow, Turn, rows_of
from policies.rl.skyrl_rows import Answer, ClientEngine, GivenAdvantages, generator_output, spread


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
    """As SkyRL 0.4's trainer: right-aligned, padded to 4 rows or 8, the last row's advantage for all of them."""

    def convert_to_training_input(self, generator_output: dict[str, Any], uids: list[str]) -> dict[str, Any]:
        width = max(map(len, generator_output["response_ids"]))
        padding = [[0.0] * width] * (-len(uids) % 4)
        aligned = {
            name: torch.tensor([[0.0] * (width - len(row)) + list(row) for row in generator_output[theirs]] + padding)
            for name, theirs in (("rewards", "rewards"), ("loss_mask", "loss_masks"))
        }
        return aligned | {"response_mask": torch.ones(len(uids) + len(padding), width)}

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
    paid = [float(each) for each in rng.normal(size=len(made))]
    output = generator_output([Answer(n, made[n], advantages[n], paid[n]) for n in range(len(made))])
    flat = [each for rows in made for each in rows]
    assert {len(values) for name, values in output.items() if name != "rollout_metrics"} == {len(flat)}
    for at, each in enumerate(flat):
        assert output["prompt_token_ids"][at] == list(each.prompt_ids)
        assert output["response_ids"][at] == list(each.completion_ids)
        assert output["loss_masks"][at] == list(each.loss_mask)
        assert output["rollout_logprobs"][at] == list(each.sampling_logprobs)
        outside = [value for value, mask in zip(output["advantages"][at], each.loss_mask, strict=True) if not mask]
        assert outside == [0.0] * len(outside)
    ends = [sum(len(rows) for rows in made[: n + 1]) - 1 for n in range(len(made))]
    assert [at for at, is_last in enumerate(output["is_last_step"]) if is_last] == ends
    assert output["trajectory_ids"] == [n for n, rows in enumerate(made) for _ in rows]
    assert [output["rewards"][at][-1] for at in ends] == paid
    assert sum(sum(map(abs, rewards)) for rewards in output["rewards"]) == pytest.approx(sum(map(abs, paid)))
    ours = sum(
        float(a) * (span.stop - span.start)
        for rows, all_of in zip(made, advantages, strict=True)
        for r, own in zip(rows, all_of, strict=True)
        for span, a in zip(r.spans, own, strict=True)
    )
    trainer = Ours()
    data = trainer.compute_advantages_and_returns(trainer.convert_to_training_input(output, ["uid"] * len(flat)))
    assert torch.equal(data["advantages"], data["returns"])
    assert float((data["advantages"] * data["loss_mask"]).sum()) == pytest.approx(ours, abs=1e-4)


def test_a_batch_that_lost_its_advantages_is_refused() -> None:
    output = generator_output([Answer("id", [row(0, [(0, 1)])], [np.array([1.0])], 1.0)])
    del output["advantages"]
    with pytest.raises(BadInput, match="merge_stepwise_output = false"):
        Ours().convert_to_training_input(output, ["uid"])


def test_recorded_turns_become_its_rows() -> None:
    turns = [
        Turn(step=0, prompt_ids=(1, 2, 3), token_ids=(4, 5), logprobs=(-0.1, -0.2), policy_version="v1"),
        Turn(step=1, prompt_ids=(1, 2, 3, 4, 5, 6), token_ids=(7,), logprobs=(-0.3,), policy_version="v1"),
    ]
    (made,) = rows_of(turns, row(0, [(0, 1)]))
    output = generator_output([Answer("id", [made], [np.array([0.5, -1.0])], 2.0)])
    assert output["response_ids"] == [[4, 5, 6, 7]]
    assert output["loss_masks"] == [[1, 1, 0, 1]]
    assert output["advantages"] == [[0.5, 0.5, 0.0, -1.0]]
    assert output["rewards"] == [[0.0, 0.0, 0.0, 2.0]]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(BadInput, match="members \\[1\\]"):
        generator_output([Answer("a", [row(0, [(0, 1)])], [np.array([1.0])], 1.0), Answer("b", [], [], 1.0)])
    with pytest.raises(BadInput, match="one a turn"):
        spread(row(0, [(0, 1), (1, 1)]), np.array([1.0]))


class Client:
    """Answers as SkyRL's client does, with or without log-probabilities."""

    def __init__(self, logprobs: list[list[float]] | None) -> None:
        self.asked: list[tuple[Mapping[str, Any], str | None]] = []
        self.finished: list[str] = []
        self.logprobs = logprobs

    async def generate(self, input_batch: Mapping[str, Any], model: str | None = None) -> Mapping[str, Any]:
        self.asked.append((input_batch, model))
        return {"response_ids": [[5, 6]], "stop_reasons": ["stop"], "response_logprobs": self.logprobs}

    async def finish_session(self, session_id: str) -> None:
        self.finished.append(session_id)


async def test_an_engine_of_skyrl_answers_ids_with_ids() -> None:
    client = Client([[-0.1, -0.2]])
    told = {"temperature": 0.7, "top_p": 0.5, "top_k": 20, "max_tokens": 99, "logprobs": None, "stop": ["</s>"]}
    engine = ClientEngine(client, 64, "3_1", told, "adapter")
    params = SamplingParams(max_tokens=8, temperature=1.0, top_p=0.9, seed=0, stop=("!",))
    done = await engine.sample([1, 2], params, None)
    assert (done.token_ids, done.logprobs, done.finish_reason) == ((5, 6), (-0.1, -0.2), "stop")
    sampling = {"temperature": 1.0, "top_p": 0.9, "top_k": 20, "max_tokens": 8, "logprobs": 0, "seed": 0}
    batch = {
        "prompt_token_ids": [[1, 2]],
        "session_ids": ["3_1"],
        "sampling_params": sampling | {"stop": ["</s>", "!"]},
    }
    assert client.asked == [(batch, "adapter")]
    assert await engine.context() == 64
    assert await engine.loaded() == frozenset()
    with pytest.raises(PolicyRefused, match="serves what it trains"):
        await engine.sample([1], SamplingParams(), "policy-v1")
    for refused in (engine.load("policy-v1", Path("adapter")), engine.unload("policy-v1")):
        with pytest.raises(PolicyRefused):
            await refused
    with pytest.raises(PolicyUnavailable, match="log-probabilities"):
        await ClientEngine(Client(None), 64, "", {}).sample([1], SamplingParams(), None)
    await engine.aclose()
    assert client.finished == ["3_1"]
