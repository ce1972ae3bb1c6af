"""Engines where things go wrong: servers that refuse, that are gone, that cannot load at run time, several at once."""

from __future__ import annotations

import asyncio
import logging
from math import isnan
from pathlib import Path

import pytest

from memory.errors import BadInput
from policies.errors import PolicyRefused, PolicyUnavailable
from policies.generations.errors import AdapterRefused, UnknownGeneration
from policies.generations.local_engine import LocalEngine
from policies.generations.vllm_engine import SLOTS, VllmEngine
from policies.protocols import SamplingParams
from tests.policies.generations.vllm_like import MODEL, VllmLike
from tests.policies.model_server import ModelServer, serving

GREEDY = SamplingParams(max_tokens=4)


async def test_a_version_that_one_replica_refuses_is_loaded_nowhere(server: VllmLike, adapters) -> None:
    with serving(VllmLike(server.engine, refuses_to_load=True)) as other:
        engine = VllmEngine([server.url, other.url], MODEL)
        with pytest.raises(AdapterRefused, match=r"HTTP 500: .*rank 64"):
            await engine.load("policy-v1", adapters(1))
        assert server.adapters == {}
        other.refuses_to_load = False
        await engine.load("policy-v1", adapters(1))
        assert await engine.loaded() == {"policy-v1"}
        del other.adapters["policy-v1"]
        assert await engine.loaded() == frozenset(), "a version that one of them lost is not there"
        await engine.load("policy-v1", adapters(1))
        await asyncio.gather(*(engine.sample([2, 5, 3], GREEDY, "policy-v1") for _ in range(2)))
        assert len(server.requests) == len(other.requests) == 1, "none has two while another has none"
        for _ in range(2):
            await engine.sample([2, 5, 3], GREEDY, "policy-v1")
        assert {len(server.requests), len(other.requests)} == {1, 3}, "what begins alike goes to one"
        await engine.aclose()


async def test_no_more_is_asked_at_once_than_a_server_answers(server: VllmLike) -> None:
    """384 turns asked of 32 slots waited against their own clocks, and 128 of them were given up (B4)."""
    server.slots = 3
    for said, most in ((None, 3), (2, 2)):
        server.most = 0
        engine = VllmEngine([server.url], MODEL, slots=said)
        await asyncio.gather(*(engine.sample([2, 5, at], GREEDY, None) for at in range(12)))
        assert (await engine.slots(), server.most) == (most, most)
        await engine.aclose()
    silent = VllmEngine([f"{server.url}/nothing", server.url], MODEL)
    assert await silent.slots() == 3, "what one of them says counts"
    server.slots = None
    assert await VllmEngine([server.url], MODEL).slots() == SLOTS


async def test_what_a_server_answers_at_once_is_asked_again_after_it_was_away(server: VllmLike) -> None:
    server.slots, server.statuses = 3, {"/server_info": 503}
    engine = VllmEngine([server.url], MODEL)
    await engine.sample([2, 5, 3], GREEDY, None)
    assert await engine.slots() == SLOTS
    server.statuses.clear()
    await asyncio.gather(*(engine.sample([2, 5, at], GREEDY, None) for at in range(12)))
    assert (await engine.slots(), server.most) == (3, 3)
    await engine.aclose()


async def test_log_probabilities_of_before_temperature_are_warned_of_once(
    server: VllmLike, caplog: pytest.LogCaptureFixture
) -> None:
    server.slots = 3
    for mode, warnings in (("processed_logprobs", 0), ("raw_logprobs", 1)):
        server.started["model_config"] = {"logprobs_mode": mode}
        engine = VllmEngine([server.url], MODEL)
        with caplog.at_level(logging.WARNING):
            await asyncio.gather(*(engine.slots() for _ in range(3)))
        assert caplog.text.count("start it with --logprobs-mode processed_logprobs") == warnings


async def test_a_server_with_a_name_of_its_own_for_the_base_is_asked_by_that(server: VllmLike, adapters) -> None:
    with serving(VllmLike(server.engine, model="small-7b")) as foreign:
        engine = VllmEngine([foreign.url, server.url], MODEL)
        await asyncio.gather(*(engine.sample([2, 5, at], GREEDY, None) for at in range(4)))
        assert {body["model"] for body in foreign.requests} == {"small-7b"}
        assert {body["model"] for body in server.requests} == {MODEL}
        await engine.load("policy-v1", adapters(1))
        await asyncio.gather(*(engine.sample([2, 5, at], GREEDY, "policy-v1") for at in range(4)))
        assert foreign.requests[-1]["model"] == server.requests[-1]["model"] == "policy-v1"
        await engine.aclose()


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_server_that_is_away_has_refused_no_adapter(server: VllmLike, adapters, status: int) -> None:
    server.statuses = {"/v1/load_lora_adapter": status}
    engine = VllmEngine([server.url], MODEL)
    with pytest.raises(PolicyUnavailable, match=f"cannot load policy-v1 now .HTTP {status}"):
        await engine.load("policy-v1", adapters(1))
    server.statuses.clear()
    await engine.load("policy-v1", adapters(1))
    await engine.aclose()


async def test_the_replica_with_least_to_do_is_asked(server: VllmLike) -> None:
    with serving(VllmLike(server.engine, delay_s=30.0, slots=1)) as slow:
        engine = VllmEngine([slow.url, server.url], MODEL, slots=2)
        both = [asyncio.ensure_future(engine.sample([2, 5, 3], GREEDY, None)) for _ in range(2)]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for _ in range(4):
            await engine.sample([2, 5, 3], GREEDY, None)
        assert (len(slow.requests), len(server.requests)) == (1, 5), "whichever their beginning prefers"
        for each in both:
            each.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        await engine.aclose()


async def test_a_log_probability_that_could_not_be_computed_is_no_number(server: VllmLike) -> None:
    server.breaks = {0}
    engine = VllmEngine([server.url], MODEL)
    broken, whole = [await engine.sample([2, 5, 3], GREEDY, None) for _ in range(2)]
    assert all(map(isnan, broken.logprobs))
    assert not any(map(isnan, whole.logprobs))
    await engine.aclose()


async def test_a_server_is_told_not_to_sample_as_the_model_was_shipped(server: VllmLike) -> None:
    engine = VllmEngine([server.url], MODEL)
    await engine.sample([2, 5, 3], GREEDY, None)
    sent = server.requests[0]
    assert (sent["top_k"], sent["min_p"], sent["repetition_penalty"]) == (-1, 0.0, 1.0)
    await engine.aclose()


async def test_a_key_is_sent_with_every_request_without_the_blanks_around_it(server: VllmLike, adapters) -> None:
    server.key = "k3y"
    engine = VllmEngine([server.url], MODEL, api_key="k3y\n")
    await engine.load("policy-v1", adapters(1))
    await engine.sample([2, 5, 3], GREEDY, "policy-v1")
    assert server.authorizations == {"Bearer k3y"}
    await engine.aclose()


async def test_a_server_that_cannot_load_at_run_time_says_how_to_start_it(model: Path, adapters) -> None:
    with serving(VllmLike(LocalEngine(model, threads=1), run_time_lora=False)) as server:
        engine = VllmEngine([server.url], MODEL)
        with pytest.raises(PolicyRefused, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"):
            await engine.load("policy-v1", adapters(1))
        await engine.aclose()


async def test_a_version_that_a_server_lists_and_no_longer_has_is_unknown(server: VllmLike, adapters) -> None:
    engine = VllmEngine([server.url, server.url], MODEL)
    await engine.load("policy-v1", adapters(1))
    with pytest.raises(UnknownGeneration, match="has no policy-v1 to unload"):  # one of two unloads it first
        await engine.unload("policy-v1")
    with pytest.raises(UnknownGeneration, match="nothing to unload"):
        await engine.unload("policy-v1")
    await engine.aclose()


async def test_a_prompt_counts_as_computed_unless_the_server_says_otherwise(server: VllmLike) -> None:
    engine = VllmEngine([server.url], MODEL)
    assert (await engine.sample([2, 5, 3], GREEDY, None)).cached == 0
    await engine.aclose()


async def test_an_adapter_is_added_in_the_forward_pass_unless_merging_is_asked_for(model: Path, adapters) -> None:
    found = []
    for options in ({}, {"merged": False}, {"merged": True}):
        engine = LocalEngine(model, threads=1, **options)
        await engine.load("policy-v1", adapters(1))
        found.append(await engine.logprobs([2, 5, 3], range(4, 40), "policy-v1"))
        await engine.aclose()
    assert found[0] == found[1]
    assert found[0] != found[2] == pytest.approx(found[0], abs=1e-4)


async def test_no_server_and_a_dead_one(adapters, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="at least one vLLM"):
        VllmEngine([], MODEL)
    engine = VllmEngine(["http://127.0.0.1:9/v1"], MODEL)
    monkeypatch.setattr(asyncio, "sleep", lambda *_: asyncio.get_running_loop().run_in_executor(None, int))
    with pytest.raises(PolicyUnavailable, match="gave no answer"):
        await engine.load("policy-v1", adapters(1))
    await engine.aclose()


async def test_a_server_that_is_no_vllm_is_told_apart() -> None:
    with serving(ModelServer()) as server:
        engine = VllmEngine([server.url], "echo-1")
        with pytest.raises(PolicyRefused, match="expected a vLLM server"):
            await engine.context()
        await engine.aclose()


async def test_ids_that_do_not_match_their_log_probabilities_are_refused(server: VllmLike) -> None:
    server.drops_a_token = True
    engine = VllmEngine([server.url], MODEL)
    with pytest.raises(PolicyRefused, match="one log-probability for each token"):
        await engine.sample([2, 5, 3], GREEDY, None)
    await engine.aclose()


async def test_a_refused_adapter_leaves_the_local_engine_as_it_was(
    reference: LocalEngine, adapters, tmp_path: Path
) -> None:
    before = await reference.logprobs([2, 5, 3], [7, 8], None)
    for _ in range(2):
        with pytest.raises(AdapterRefused, match="peft cannot load policy-v9"):
            await reference.load("policy-v9", tmp_path)
    await reference.load("policy-v1", adapters(1))
    with pytest.raises(AdapterRefused):
        await reference.load("policy-v9", tmp_path)
    changed = await reference.logprobs([2, 5, 3], [7, 8], "policy-v1")
    assert changed != before
    assert await reference.logprobs([2, 5, 3], [7, 8], None) == before
    await reference.unload("policy-v1")
    assert await reference.logprobs([2, 5, 3], [7, 8], None) == before
    await reference.load("policy-v1", adapters(1))
    assert await reference.logprobs([2, 5, 3], [7, 8], "policy-v1") == changed
    await reference.aclose()
    with pytest.raises(PolicyUnavailable, match="was closed"):
        await reference.context()
    with pytest.raises(UnknownGeneration):
        await reference.unload("policy-v1")
