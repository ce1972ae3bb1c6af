"""Answers that are late: of a server that is slow, which is asked once more and stays in use, and of one that hangs."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest

from policies.errors import PolicyUnavailable, TimedOut
from policies.generations import replicas
from policies.generations.replicas import order
from policies.generations.vllm_engine import VllmEngine
from policies.protocols import SamplingParams
from tests.policies.generations.vllm_like import MODEL, VllmLike
from tests.policies.model_server import serving

GREEDY = SamplingParams(max_tokens=4)
PROMPT = [2, 5, 3]
TIMEOUT_S = 3.0


@pytest.fixture
async def two(server: VllmLike) -> AsyncIterator[tuple[VllmLike, VllmLike]]:
    """Two servers whose model is loaded, first the one that the prompt goes to."""
    await server.engine.sample(PROMPT, GREEDY, None)
    with serving(VllmLike(server.engine)) as other:
        pair = (server, other)
        first, second = order([each.url for each in pair], PROMPT, None)
        yield pair[first], pair[second]
        for each in pair:
            each.silent = False
            each.held.clear()


def engine_of(*servers: VllmLike) -> VllmEngine:
    return VllmEngine([each.url for each in servers], MODEL, slots=4, timeout_s=TIMEOUT_S)


async def test_a_slow_server_is_asked_once_more_and_then_the_error_says_what_to_raise(
    two: tuple[VllmLike, VllmLike], caplog: pytest.LogCaptureFixture
) -> None:
    slow, _ = two
    slow.held.add(MODEL)
    engine = engine_of(slow)
    wanted = r"no whole answer in 3 s\); raise policy\.timeout_s or lower policy\.max_tokens"
    with caplog.at_level(logging.WARNING), pytest.raises(TimedOut, match=wanted):
        await engine.sample(PROMPT, GREEDY, None)
    assert len(slow.requests) == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "asked once more" in caplog.text
    slow.held.clear()
    await engine.sample(PROMPT, GREEDY, None)
    await engine.aclose()


async def test_another_server_is_asked_for_what_one_is_slow_with_and_both_stay_in_use(
    two: tuple[VllmLike, VllmLike], caplog: pytest.LogCaptureFixture
) -> None:
    slow, other = two
    slow.held.add(MODEL)
    engine = engine_of(*two)
    with caplog.at_level(logging.WARNING):
        await engine.sample(PROMPT, GREEDY, None)
    assert (len(slow.requests), len(other.requests)) == (1, 1)
    other.held.add(MODEL)
    with pytest.raises(TimedOut, match=r"policy\.timeout_s"):
        await engine.sample(PROMPT, GREEDY, None)
    assert (len(slow.requests), len(other.requests)) == (2, 2)
    assert "is left out" not in caplog.text
    await engine.aclose()


async def test_a_server_that_says_nothing_more_is_unavailable_and_left_out(
    two: tuple[VllmLike, VllmLike], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(replicas, "LOOK_S", 0.5)
    hanging, other = two
    alone, both = engine_of(hanging), engine_of(*two)
    await alone.context()
    await both.context()
    hanging.silent = True
    with pytest.raises(PolicyUnavailable, match=r"did not say within 0\.5 s what it serves; start it again") as raised:
        await alone.sample(PROMPT, GREEDY, None)
    assert not isinstance(raised.value, TimedOut)
    with caplog.at_level(logging.WARNING):
        await both.sample(PROMPT, GREEDY, None)
    assert len(other.requests) == 1
    assert f"{hanging.url} is left out" in caplog.text
    for engine in (alone, both):
        await engine.aclose()
