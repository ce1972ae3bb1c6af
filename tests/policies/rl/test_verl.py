"""Rows as verl 0.9.1 takes them, and its servers behind our contract of an engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from policies.errors import PolicyRefused, PolicyUnavailable
from policies.protocols import SamplingParams
from policies.rl.rows import Span, TrainRow
from policies.rl.verl_rows import ServerEngine, agent_loop_outputs

SPANS = (Span(start=0, stop=2, step=0, policy_version="v"), Span(start=3, stop=4, step=1, policy_version="v"))
ROW = TrainRow(
    trajectory_id="tr",
    prompt_ids=(1, 2),
    completion_ids=(4, 5, 6, 7),
    sampling_logprobs=(-0.1, -0.2, 0.0, -0.3),
    spans=SPANS,
)


class Server:
    """Answers as verl's `LLMServerClient` does; each request finds weights of the next step."""

    def __init__(self, **changed: Any) -> None:
        self.asked: list[tuple[str, list[int], dict[str, Any]]] = []
        self.changed = changed

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        self.asked.append((request_id, prompt_ids, dict(sampling_params)))
        sampling_params.clear()  # verl's server takes out what it reads
        step = 6 + len(self.asked)
        said = {"token_ids": [5, 6], "log_probs": [-0.1, -0.2], "stop_reason": "completed"}
        weights = {"extra_fields": {"min_global_steps": step, "max_global_steps": step}}
        return SimpleNamespace(**said | weights | self.changed)


async def test_a_row_becomes_the_fields_of_an_output() -> None:
    engine = ServerEngine(Server(), 64, "uid_3", {})
    for _ in range(3):
        await engine.sample([1], SamplingParams(), None)
    untrained = ROW.model_copy(update={"spans": ()})
    first, second = agent_loop_outputs([ROW, untrained, ROW], 0.5, engine)
    assert first == second
    assert first.pop("metrics")["generate_sequences"] >= 0.0
    assert first == {
        "prompt_ids": [1, 2],
        "response_ids": [4, 5, 6, 7],
        "response_mask": [1, 1, 0, 1],
        "response_logprobs": [-0.1, -0.2, 0.0, -0.3],
        "reward_score": 0.5,
        "num_turns": 4,
        "extra_fields": {"min_global_steps": 7, "max_global_steps": 9, "reward_extra_info": {}},
    }
    assert agent_loop_outputs([untrained], 0.5, engine) == []


async def test_an_engine_of_verl_answers_ids_with_ids() -> None:
    server, told = Server(), {"temperature": 0.7, "top_k": 20, "repetition_penalty": 1.0, "logprobs": False}
    engine = ServerEngine(server, 64, "uid_3", told)
    params = SamplingParams(max_tokens=8, temperature=1.0, top_p=0.9, seed=0)
    done = [await engine.sample([1, 2], params.model_copy(update={"max_tokens": most}), None) for most in (8, 2)]
    assert [(each.token_ids, each.logprobs) for each in done] == [((5, 6), (-0.1, -0.2))] * 2
    assert [each.finish_reason for each in done] == ["stop", "length"]
    sampling = {"temperature": 1.0, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.0, "logprobs": True, "seed": 0}
    assert server.asked == [("uid_3", [1, 2], sampling | {"max_tokens": most}) for most in (8, 2)]


async def test_what_verl_cannot_answer_is_said() -> None:
    with pytest.raises(PolicyRefused, match="verl serves what it trains"):
        await ServerEngine(Server(), 64, "", {}).sample([1], SamplingParams(), "policy-v1")
    with pytest.raises(PolicyUnavailable, match="calculate_log_probs"):
        await ServerEngine(Server(log_probs=None), 64, "", {}).sample([1], SamplingParams(), None)
    with pytest.raises(PolicyUnavailable, match="ended the request"):
        await ServerEngine(Server(stop_reason="aborted"), 64, "", {}).sample([1], SamplingParams(), None)
