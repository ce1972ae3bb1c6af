"""Requests over a server while generations come and go: none fails, each is answered whole by one version."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from benchmarks.random_adapters import random_adapter
from policies.generations.errors import AdapterRefused, CanaryFailed, UnknownGeneration
from policies.generations.generation_registry import Registry
from policies.generations.router import RoutedPolicy
from policies.generations.server_check import differences, probes
from policies.generations.swap import Inspection
from policies.generations.vllm_engine import VllmEngine
from policies.protocols import Message, Reply, SamplingParams
from tests.policies.generations.vllm_like import MODEL, VllmLike

ASKED = [Message(role="user", content="ban karalo")]
SHORT = SamplingParams(max_tokens=6)
HANGS_S = 600


@pytest.fixture
async def routed(registry: Registry, server: VllmLike, encoder) -> AsyncIterator[RoutedPolicy]:
    policy = RoutedPolicy(registry, VllmEngine([server.url], MODEL), encoder)
    yield policy
    await policy.aclose()


@pytest.fixture
async def inspection(reference, encoder) -> AsyncIterator[Inspection]:
    yield Inspection(reference, probes(encoder))
    await reference.aclose()


Publish = Callable[[int], str]


@pytest.fixture
def publish(registry: Registry, adapters) -> Publish:
    return lambda seed: registry.publish(adapters(seed), base=registry.base).version


async def test_a_swap_moves_new_requests_and_a_rollback_moves_them_back(
    routed: RoutedPolicy, inspection: Inspection, publish: Publish, server: VllmLike
) -> None:
    before = await routed.generate(ASKED, SHORT)
    report = await routed.swap(publish(1), inspection)
    after = await routed.generate(ASKED, SHORT)
    assert (before.policy_version, after.policy_version, routed.version) == ("policy-v0", "policy-v1", "policy-v1")
    assert report.passed
    assert before.token_ids != after.token_ids
    loads = len(server.adapters)
    await routed.rollback()
    again = await routed.generate(ASKED, SHORT)
    assert again.policy_version == "policy-v0"
    assert again.token_ids == before.token_ids
    assert (loads, len(server.adapters)) == (1, 0), "what was rolled back is not kept on the server"


async def test_a_generation_that_is_named_answers_whatever_is_live(
    routed: RoutedPolicy, inspection: Inspection, publish: Publish, server: VllmLike, registry: Registry, encoder
) -> None:
    first, second = publish(1), publish(2)
    named = RoutedPolicy(registry, VllmEngine([server.url], MODEL), encoder, named=first)
    before = await named.generate(ASKED, SHORT)
    await routed.swap(first, inspection)
    await routed.swap(second, inspection)
    await routed.rollback()
    await routed.rollback()
    assert routed.version == "policy-v0"
    after = await named.generate(ASKED, SHORT)
    assert (before.policy_version, after.policy_version, named.version) == (first, first, first)
    assert before.token_ids == after.token_ids != (await routed.generate(ASKED, SHORT)).token_ids
    await named.sweep()
    assert first in server.adapters, "what it answers with stays loaded though it is retired"
    await named.engine.aclose()


async def test_what_a_reply_says_is_what_its_version_computes(
    routed: RoutedPolicy, inspection: Inspection, publish: Publish
) -> None:
    replies = [await routed.generate(ASKED, SHORT)]
    for seed in (1, 2):
        await routed.swap(publish(seed), inspection)
        replies.append(await routed.generate(ASKED, SHORT))
    reference = inspection.reference
    for reply in replies:
        generation = routed.registry.get(reply.policy_version)
        if generation.adapter is not None:
            await reference.load(generation.version, generation.adapter)
        name = generation.adapter and generation.version
        scored = await reference.logprobs(reply.prompt_token_ids or (), reply.token_ids or (), name)
        assert max(differences(reply.logprobs or (), scored)) < 1e-4
    assert len({reply.logprobs for reply in replies}) == 3


async def test_no_request_of_a_stream_fails_while_generations_change(
    routed: RoutedPolicy, inspection: Inspection, publish: Publish, server: VllmLike
) -> None:
    server.delay_s = 0.05
    live: list[tuple[str, Reply]] = []
    moved = asyncio.Event()

    async def ask() -> None:
        while not moved.is_set():
            began = routed.version
            live.append((began, await routed.generate(ASKED, SHORT)))

    async def answered() -> None:
        """Wait until a request that began under the live version has its reply: changes are as far apart as that."""
        seen = len(live)
        while routed.version not in {began for began, _ in live[seen:]}:
            await asyncio.sleep(0.01)

    async def move() -> None:
        await answered()
        for seed in (1, 2, 3):
            await routed.swap(publish(seed), inspection)
            await answered()
        await routed.rollback()
        await answered()
        moved.set()

    async with asyncio.timeout(HANGS_S), asyncio.TaskGroup() as group:
        for each in (ask(), ask(), ask(), move()):
            group.create_task(each)
    assert [began for began, reply in live if reply.policy_version != began] == []
    assert {reply.policy_version for _, reply in live} == {f"policy-v{at}" for at in range(4)}
    assert not +routed.in_flight
    await routed.sweep()
    assert routed.version == "policy-v2"
    assert set(server.adapters) == {"policy-v2"}, "neither the rolled back one nor the oldest"


async def test_a_version_that_still_answers_is_unloaded_when_it_is_done(
    routed: RoutedPolicy, inspection: Inspection, publish: Publish, server: VllmLike
) -> None:
    await routed.swap(publish(1), inspection)
    server.held.add("policy-v1")
    slow = asyncio.create_task(routed.generate(ASKED, SHORT))
    while not routed.in_flight["policy-v1"]:
        await asyncio.sleep(0.01)
    for seed in (2, 3):
        await routed.swap(publish(seed), inspection)
    assert set(server.adapters) == {"policy-v1", "policy-v2", "policy-v3"}
    server.held.clear()
    assert (await slow).policy_version == "policy-v1"
    assert set(server.adapters) == {"policy-v2", "policy-v3"}


async def test_an_adapter_that_the_server_ignores_never_goes_live(
    routed: RoutedPolicy, inspection: Inspection, publish: Publish, server: VllmLike
) -> None:
    server.ignores_adapters = True
    version = publish(1)
    with pytest.raises(CanaryFailed, match=r"policy-v1 failed its canary.*ignored"):
        await routed.swap(version, inspection)
    assert (await routed.generate(ASKED, SHORT)).policy_version == "policy-v0"
    assert server.adapters == {}
    said = routed.registry.history(version)[-1]
    assert (said.type, said.state) == ("refused", "candidate")
    assert "ignored" in said.reason
    assert said.data["to_base"] < 1e-4


async def test_adapters_that_do_nothing_are_cut_off_or_too_large_never_go_live(
    routed: RoutedPolicy, inspection: Inspection, model: Path, tmp_path: Path, server: VllmLike
) -> None:
    registry = routed.registry
    idle = registry.publish(random_adapter(model, tmp_path / "idle", 1, scale=0.0), base=registry.base)
    cut = registry.publish(random_adapter(model, tmp_path / "cut", 2), base=registry.base)
    large = registry.publish(random_adapter(model, tmp_path / "large", 3, r=32), base=registry.base)
    weights = cut.adapter / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    for made, error, message in (
        (idle, CanaryFailed, "changes nothing"),
        (cut, AdapterRefused, "cut off"),
        (large, AdapterRefused, "got rank 32, expected at most 16"),
    ):
        with pytest.raises(error, match=message):
            await routed.swap(made.version, inspection)
        assert registry.get(made.version).state == "candidate"
        assert message in registry.history(made.version)[-1].reason
    assert registry.live().version == "policy-v0"
    assert server.adapters == {}


async def test_a_reference_that_breaks_leaves_the_version_off_the_server_and_tells_why(
    routed: RoutedPolicy, inspection: Inspection, publish: Publish, server: VllmLike, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> object:
        assert "policy-v1" in server.adapters
        raise RuntimeError("out of memory")

    monkeypatch.setattr(inspection.reference, "logprobs", broken)
    version = publish(1)
    with pytest.raises(RuntimeError, match="out of memory"):
        await routed.swap(version, inspection)
    assert routed.registry.history(version)[-1].reason == "RuntimeError: out of memory"
    assert server.adapters == {}


async def test_a_version_that_aged_out_is_asked_for_once_more_as_what_is_live(
    routed: RoutedPolicy, inspection: Inspection, publish: Publish, server: VllmLike
) -> None:
    await routed.swap(publish(1), inspection)
    server.adapters.clear()  # the server was started anew
    replies = await asyncio.gather(*(routed.generate(ASKED, SHORT) for _ in range(4)))
    assert {reply.policy_version for reply in replies} == {"policy-v1"}
    assert set(server.adapters) == {"policy-v1"}
    server.adapters.clear()
    server.refuses_to_load = True
    with pytest.raises(AdapterRefused, match="HTTP 500"):
        await routed.generate(ASKED, SHORT)


async def test_another_process_moves_the_alias_and_this_one_follows(
    routed: RoutedPolicy, inspection: Inspection, publish: Publish, server: VllmLike
) -> None:
    await routed.swap(publish(1), inspection)
    with Registry(routed.registry.folder) as other:
        other.rollback("from elsewhere")
    assert (await routed.generate(ASKED, SHORT)).policy_version == "policy-v0"


async def test_a_sweep_that_cannot_reach_the_server_is_told_and_harms_no_request(
    routed: RoutedPolicy, inspection: Inspection, publish: Publish, caplog: pytest.LogCaptureFixture
) -> None:
    await routed.swap(publish(1), inspection)

    async def gone(version: str) -> None:
        raise UnknownGeneration(f"{version} was unloaded by somebody else")

    routed.engine.unload = gone  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING):
        await routed.rollback()
    assert "unloaded by somebody else" in caplog.text
    assert (await routed.generate(ASKED, SHORT)).policy_version == "policy-v0"
