"""Budgets stop before the call, are shared, and survive a resume."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from memory.records import Usage
from policies.budget import Budget, BudgetedPolicy
from policies.cache import CachedPolicy
from policies.errors import BudgetExceeded, PolicyError, PolicyRefused, PolicyUnavailable
from policies.price import Price
from policies.protocols import Message, Reply, SamplingParams
from policies.recordings import Recordings
from policies.scripted import ScriptedPolicy

HELLO = [Message(role="user", content="hello")]
UNSAID = [Message(role="user", content="are you there?")]
GREEDY = SamplingParams()


def priced(**budget: float) -> BudgetedPolicy:
    reply = Reply(text="x", usage=Usage(prompt_tokens=60, completion_tokens=40, calls=1, cost_usd=0.25))
    return BudgetedPolicy(ScriptedPolicy(lambda *_: reply), Budget(**budget))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limit", "allowed", "said"),
    [
        ({"calls": 3}, 3, "3 of 3 calls"),
        ({"tokens": 250}, 3, "300 of 250 tokens"),
        ({"cost_usd": 0.5}, 2, "0.5 of 0.5 cost_usd"),
        ({"calls": 0}, 0, "0 of 0 calls"),
        ({"calls": 2, "tokens": 150}, 2, "2 of 2 calls; 200 of 150 tokens"),
    ],
)
async def test_a_limit_stops_before_the_next_call(limit: dict[str, float], allowed: int, said: str) -> None:
    policy = priced(**limit)
    for _ in range(allowed):
        await policy.generate(HELLO, GREEDY)
    with pytest.raises(BudgetExceeded, match=f"{said}; raise the limit and resume"):
        await policy.generate(HELLO, GREEDY)
    assert policy.policy.calls == allowed  # type: ignore[attr-defined]


async def test_wall_time_counts_earlier_parts_of_the_run() -> None:
    now = 100.0
    budget = Budget(seconds=10, earlier_s=4, clock=lambda: now)
    policy = BudgetedPolicy(ScriptedPolicy(lambda *_: "x"), budget)
    now = 105.9
    await policy.generate(HELLO, GREEDY)
    now = 106.0
    with pytest.raises(BudgetExceeded, match="10 of 10 seconds"):
        await policy.generate(HELLO, GREEDY)


async def test_parallel_calls_never_exceed_the_number_of_calls() -> None:
    inner = ScriptedPolicy(lambda *_: "x", latency_s=0.01)
    policy = BudgetedPolicy(inner, Budget(calls=5))
    results = await asyncio.gather(*(policy.generate(HELLO, GREEDY) for _ in range(20)), return_exceptions=True)
    assert inner.calls == 5
    assert sum(isinstance(r, BudgetExceeded) for r in results) == 15


class Held(ScriptedPolicy):
    """Answers once it is let."""

    def __init__(self, *answers: str | PolicyError) -> None:
        super().__init__(answers)
        self.let = asyncio.Event()

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        await self.let.wait()
        return await super().generate(messages, params)


@pytest.mark.parametrize("limit", [{"calls": 2}, {"tokens": 1}])
async def test_who_comes_too_late_waits_for_the_calls_in_flight(limit: dict[str, int]) -> None:
    inner = Held("x", "y")
    policy = BudgetedPolicy(inner, Budget(**limit))  # type: ignore[arg-type]
    flying = [asyncio.create_task(policy.generate(HELLO, GREEDY)) for _ in range(2)]
    await asyncio.sleep(0)
    policy.budget.charge(Usage(prompt_tokens=1))  # of another policy
    late = asyncio.create_task(policy.generate(HELLO, GREEDY))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not late.done()
    inner.let.set()
    with pytest.raises(BudgetExceeded):
        await late
    assert [(await each).text for each in flying] == ["x", "y"]
    assert policy.budget.spent.calls == inner.calls == 2


class Down(Held):
    """Answers a greeting once it is let, and nothing else."""

    async def generate(self, messages: Sequence[Message], params: SamplingParams) -> Reply:
        if messages != HELLO:
            raise PolicyUnavailable("down")
        return await super().generate(messages, params)


async def test_a_server_that_does_not_answer_one_lets_the_calls_in_flight_land_first(tmp_path: Path) -> None:
    inner = Down("x", "y")
    policy = CachedPolicy(BudgetedPolicy(inner, Budget()), Recordings(tmp_path / "r.jsonl"))
    seeds = [SamplingParams(seed=at) for at in range(2)]

    async def going_on(params: SamplingParams) -> None:
        while True:
            await policy.generate(HELLO, params)
            params = SamplingParams(seed=(params.seed or 0) + 2)

    flying = [asyncio.create_task(going_on(each)) for each in seeds]
    await asyncio.sleep(0)
    failing = asyncio.create_task(policy.generate(UNSAID, GREEDY))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not failing.done()
    inner.let.set()
    with pytest.raises(PolicyUnavailable):
        await failing
    for each in flying:
        with pytest.raises(PolicyUnavailable):
            await each
    assert inner.calls == 2, "no call was begun meanwhile"
    again = CachedPolicy(inner, Recordings(tmp_path / "r.jsonl"), replay_only=True)
    assert [(await again.generate(HELLO, each)).text for each in seeds] == ["x", "y"]


async def test_where_each_call_stands_for_itself_one_without_an_answer_is_told_at_once() -> None:
    inner = Down("x")
    policy = BudgetedPolicy(inner, Budget(together=False))
    flying = asyncio.create_task(policy.generate(HELLO, GREEDY))
    await asyncio.sleep(0)
    with pytest.raises(PolicyUnavailable):
        await policy.generate(UNSAID, GREEDY)
    assert not flying.done()
    inner.let.set()
    assert (await flying).text == "x"


async def test_who_waits_gets_the_place_of_a_call_that_failed() -> None:
    inner = Held(PolicyRefused("no"), "y")
    policy = BudgetedPolicy(inner, Budget(calls=1))
    first, second = (asyncio.create_task(policy.generate(HELLO, GREEDY)) for _ in range(2))
    await asyncio.sleep(0)
    inner.let.set()
    with pytest.raises(PolicyRefused):
        await first
    assert (await second).text == "y"


async def test_policies_share_a_budget_and_a_failed_call_costs_none() -> None:
    budget = Budget(calls=2)
    down = BudgetedPolicy(ScriptedPolicy([PolicyRefused("no")]), budget)
    up = BudgetedPolicy(ScriptedPolicy(lambda *_: "x"), budget)
    with pytest.raises(PolicyRefused):
        await down.generate(HELLO, GREEDY)
    await up.generate(HELLO, GREEDY)
    await up.generate(HELLO, GREEDY)
    assert budget.spent.calls == 2
    with pytest.raises(BudgetExceeded):
        await down.generate(HELLO, GREEDY)


async def test_a_resumed_run_goes_on_where_it_stopped() -> None:
    first = priced(calls=3)
    await first.generate(HELLO, GREEDY)
    resumed = BudgetedPolicy(first.policy, Budget(calls=3, spent=first.budget.spent))
    await resumed.generate(HELLO, GREEDY)
    await resumed.generate(HELLO, GREEDY)
    with pytest.raises(BudgetExceeded):
        await resumed.generate(HELLO, GREEDY)


async def test_replies_from_the_cache_are_free_even_when_the_budget_is_used_up(tmp_path: Path) -> None:
    policy = CachedPolicy(priced(calls=1), Recordings(tmp_path / "r.jsonl"))
    await policy.generate(HELLO, GREEDY)
    assert (await policy.generate(HELLO, GREEDY)).text == "x"
    with pytest.raises(BudgetExceeded):
        await policy.generate([Message(role="user", content="new")], GREEDY)


def test_cost_of_cached_tokens() -> None:
    usage = Usage(prompt_tokens=1_000_000, cached_tokens=400_000, completion_tokens=100_000)
    assert Price(prompt=1, completion=10).cost(usage) == pytest.approx(2.0)
    assert Price(prompt=1, completion=10, cached=0.1).cost(usage) == pytest.approx(0.6 + 0.04 + 1.0)
