"""A vLLM server dies, and comes back without its adapters, while another serves: no request fails or is answered by
another version."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import uvicorn

from policies.errors import PolicyUnavailable
from policies.generations import replicas
from policies.generations.engine import Sampled
from policies.generations.errors import AdapterRefused, UnknownGeneration
from policies.generations.local_engine import LocalEngine
from policies.generations.vllm_engine import VllmEngine
from policies.protocols import SamplingParams
from policies.server_process import free_port
from tests.policies.generations.vllm_like import MODEL, VllmLike

GREEDY = SamplingParams(max_tokens=4)
HANGS_S = 600


class Mortal:
    """A server on a port of its own, which dies amid its requests and is started there again."""

    def __init__(self, served: VllmLike) -> None:
        self.served, self._port = served, free_port()
        served.url = f"http://127.0.0.1:{self._port}/v1"
        self.start()

    def start(self) -> None:
        app, port = self.served.app(), self._port
        config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical", ws="none", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + HANGS_S
        while not self._server.started:
            assert self._thread.is_alive(), "the test server did not start"
            assert time.monotonic() < deadline, "the test server did not start in ten minutes"
            time.sleep(0.01)

    def die(self) -> None:
        """Close every connection at once, answered or not, and forget the adapters."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(timeout=HANGS_S)
        self.served.adapters.clear()


@pytest.fixture
def two(model: Path) -> Iterator[tuple[Mortal, Mortal]]:
    engine = LocalEngine(model, threads=1)
    pair = Mortal(VllmLike(engine)), Mortal(VllmLike(engine))
    yield pair
    for each in pair:
        each.die()


@pytest.fixture
async def engine(two: tuple[Mortal, Mortal], reference: LocalEngine, adapters) -> AsyncIterator[VllmEngine]:
    """Two servers that have policy-v1; the reference has policy-v2 too."""
    made = VllmEngine([each.served.url for each in two], MODEL, slots=4)
    await made.load("policy-v1", adapters(1))
    for seed in (1, 2):
        await reference.load(f"policy-v{seed}", adapters(seed))
    yield made
    await made.aclose()


async def ask(engine: VllmEngine, version: str, count: int) -> list[Sampled]:
    """Ask at once for completions of prompts that begin differently."""
    return await asyncio.gather(*(engine.sample([2, 5, at], GREEDY, version) for at in range(count)))


async def require_of(reference: LocalEngine, version: str, answers: list[Sampled]) -> None:
    """See that the answers are what the version computes, and no other."""
    for at, answer in enumerate(answers):
        for each in (None, "policy-v1", "policy-v2"):
            scored = await reference.logprobs([2, 5, at], answer.token_ids, each)
            assert (answer.logprobs == pytest.approx(scored, abs=1e-4)) == (each == version)


async def until_asked(engine: VllmEngine, mortal: Mortal, version: str) -> list[Sampled]:
    """Ask until a server answers again; return what was answered last."""
    mortal.served.requests.clear()
    answers: list[Sampled] = []
    async with asyncio.timeout(HANGS_S):
        while not mortal.served.requests:
            answers = await ask(engine, version, 8)
    return answers


async def test_a_replica_that_dies_amid_requests_fails_none_and_is_left_out(
    two: tuple[Mortal, Mortal], engine: VllmEngine, reference: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "LEFT_OUT_S", 1e9)
    dying, other = two
    dying.served.held.add("policy-v1")
    stream = asyncio.create_task(ask(engine, "policy-v1", 40))
    async with asyncio.timeout(HANGS_S):
        while len(dying.served.requests) < 4 or not other.served.requests:
            await asyncio.sleep(0.01)
    await asyncio.to_thread(dying.die)
    await require_of(reference, "policy-v1", await stream)
    dying.served.held.clear()
    dying.served.requests.clear()
    await asyncio.to_thread(dying.start)
    await require_of(reference, "policy-v1", await ask(engine, "policy-v1", 8))
    assert not dying.served.requests
    assert dying.served.adapters == {}


async def test_one_that_comes_back_gets_what_the_others_serve_before_it_answers(
    two: tuple[Mortal, Mortal], engine: VllmEngine, reference: LocalEngine, adapters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "LEFT_OUT_S", 0.2)
    dying, other = two
    await asyncio.to_thread(dying.die)
    await engine.load("policy-v2", adapters(2))
    assert await engine.loaded() == {"policy-v1", "policy-v2"} == set(other.served.adapters)
    await engine.unload("policy-v1")
    await asyncio.to_thread(dying.start)
    await require_of(reference, "policy-v2", await until_asked(engine, dying, "policy-v2"))
    assert dying.served.adapters == other.served.adapters == {"policy-v2": str(adapters(2).resolve())}


async def test_one_that_was_started_again_unseen_gets_them_too(
    two: tuple[Mortal, Mortal], engine: VllmEngine, reference: LocalEngine
) -> None:
    two[0].served.adapters.clear()
    await require_of(reference, "policy-v1", await ask(engine, "policy-v1", 8))
    await require_of(reference, "policy-v1", await until_asked(engine, two[0], "policy-v1"))
    for each in two:
        each.served.adapters.clear()
    with pytest.raises(UnknownGeneration, match="policy-v1 is not loaded"):
        await engine.sample([2, 5, 3], GREEDY, "policy-v1")


async def test_where_all_are_dead_one_error_names_them_and_one_that_is_back_is_enough(
    two: tuple[Mortal, Mortal], engine: VllmEngine, reference: LocalEngine, adapters
) -> None:
    for each in two:
        await asyncio.to_thread(each.die)
    both = rf"^none of 2 servers answers: {two[0].served.url} gave no answer .*; {two[1].served.url} gave no answer"
    for _ in range(2):
        with pytest.raises(PolicyUnavailable, match=both):
            await engine.sample([2, 5, 3], GREEDY, "policy-v1")
        with pytest.raises(PolicyUnavailable, match=both):
            await engine.load("policy-v2", adapters(2))
    await asyncio.to_thread(two[1].start)
    await require_of(reference, "policy-v1", await ask(engine, "policy-v1", 8))
    assert set(two[1].served.adapters) == {"policy-v1"}, "what was loaded here, and not what could not be"


async def test_one_that_was_away_forgets_what_was_unloaded_and_needs_no_file_of_it(
    two: tuple[Mortal, Mortal], engine: VllmEngine, reference: LocalEngine, adapters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "LEFT_OUT_S", 0.0)
    away, other = two
    had = dict(away.served.adapters)
    await asyncio.to_thread(away.die)
    await engine.load("policy-v2", adapters(2))
    await engine.unload("policy-v1")
    away.served.adapters |= had
    await asyncio.to_thread(away.start)
    await require_of(reference, "policy-v2", await until_asked(engine, away, "policy-v2"))
    assert set(away.served.adapters) == set(other.served.adapters) == {"policy-v2"}


async def test_what_was_unloaded_where_none_had_it_any_more_is_not_loaded_again(
    two: tuple[Mortal, Mortal], engine: VllmEngine, adapters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "LEFT_OUT_S", 0.0)
    for each in two:
        each.served.adapters.clear()
    with pytest.raises(UnknownGeneration, match="nothing to unload"):
        await engine.unload("policy-v1")
    await asyncio.to_thread(two[0].die)
    await engine.load("policy-v2", adapters(2))
    await asyncio.to_thread(two[0].start)
    await until_asked(engine, two[0], "policy-v2")
    assert set(two[0].served.adapters) == {"policy-v2"}


async def test_one_in_use_that_was_restarted_with_another_adapter_gives_way_to_the_right_one(
    two: tuple[Mortal, Mortal], engine: VllmEngine, reference: LocalEngine, adapters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "LEFT_OUT_S", 0.0)
    right, wrong = two
    had = dict(right.served.adapters)
    await asyncio.to_thread(right.die)
    await ask(engine, "policy-v1", 8)
    wrong.served.adapters["policy-v1"] = str(adapters(2))
    right.served.adapters |= had
    await asyncio.to_thread(right.start)
    await until_asked(engine, right, "policy-v1")
    wrong.served.requests.clear()
    await require_of(reference, "policy-v1", await ask(engine, "policy-v1", 8))
    assert not wrong.served.requests


async def test_one_that_comes_back_with_another_adapter_under_the_name_answers_nothing(
    two: tuple[Mortal, Mortal], engine: VllmEngine, adapters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "LEFT_OUT_S", 0.0)
    other, wrong = two
    await asyncio.to_thread(wrong.die)
    await ask(engine, "policy-v1", 8)
    wrong.served.adapters["policy-v1"] = str(adapters(2))
    await asyncio.to_thread(wrong.start)
    await ask(engine, "policy-v1", 8)
    await asyncio.to_thread(other.die)
    with pytest.raises(PolicyUnavailable, match=r"gave no answer .* serves policy-v1 from .*/2', expected .*/1'"):
        await engine.sample([2, 5, 3], GREEDY, "policy-v1")
    assert not wrong.served.requests


async def test_a_replica_that_refuses_an_adapter_keeps_it_from_all_that_can_be_reached(
    two: tuple[Mortal, Mortal], engine: VllmEngine, adapters
) -> None:
    await asyncio.to_thread(two[0].die)
    two[1].served.refuses_to_load = True
    with pytest.raises(AdapterRefused, match="HTTP 500"):
        await engine.load("policy-v2", adapters(2))
    assert await engine.loaded() == {"policy-v1"}
