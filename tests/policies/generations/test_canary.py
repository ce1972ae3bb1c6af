"""The canary: what the server computes must be the adapter, and must not be the base."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import pytest

from labs.pocket.corpus_batches import END
from policies.generations.engine import Sampled
from policies.generations.local_engine import LocalEngine
from policies.generations.server_check import CanaryReport, canary, probes
from policies.generations.vllm_engine import VllmEngine
from policies.protocols import SamplingParams
from tests.policies.generations.vllm_like import MODEL, VllmLike


def report(to_reference: float, rounded: float, arrived: float, tokens: int = 40) -> CanaryReport:
    return CanaryReport(
        version="policy-v1", tokens=tokens, rounded=rounded, to_reference=to_reference, to_base=0.5, arrived=arrived
    )


@pytest.mark.parametrize(
    ("found", "failures"),
    [
        (report(1e-6, 1e-6, 1.0), 0),
        (report(1e-4, 0.0, 0.51), 0),
        (report(1.1e-4, 1e-6, 1.0), 1),
        (report(0.19, 0.05, 1.1), 0),
        (report(0.21, 0.05, 1.1), 1),
        (report(0.5, 0.6, 1.0), 1),
        (report(1e-6, 1e-6, 0.0), 1),
        (report(1e-6, 1e-6, 2.0), 1),
        (report(0.0, 0.0, math.nan), 1),
        (report(math.nan, math.nan, math.nan), 3),
        (report(0.0, 0.0, 1.0, tokens=0), 1),
    ],
)
def test_a_report_decides_by_how_exact_the_server_is_and_by_how_much_of_the_change_is_there(
    found: CanaryReport, failures: int
) -> None:
    assert len(found.failures) == failures
    assert found.passed == (failures == 0)


async def test_a_server_that_serves_the_adapter_passes(server: VllmLike, reference, encoder, adapters) -> None:
    engine = VllmEngine([server.url], MODEL)
    for each in (engine, reference):
        await each.load("policy-v1", adapters(1))
    found = await canary(engine, reference, "policy-v1", probes(encoder))
    assert found.passed
    assert found.tokens > 30
    assert found.to_reference < 1e-4 < 1e-2 < found.to_base
    await engine.aclose()
    await reference.aclose()


class Engine:
    """Says the same ids to everything. A token's log-probability is off the base by rounding, and by the adapter."""

    def __init__(self, change: float, rounding: float = 0.0, off: float = 0.0) -> None:
        self.change, self.rounding, self.off = change, rounding, off

    async def sample(self, prompt: Sequence[int], params: SamplingParams, version: str | None) -> Sampled:
        ids = tuple(range(16))
        return Sampled(ids, await self.logprobs(prompt, ids, version), "stop")

    async def logprobs(
        self, prompt: Sequence[int], completion: Sequence[int], version: str | None
    ) -> tuple[float, ...]:
        noise = Random(f"{prompt} {version}")
        changed = 0.0 if version is None else self.off
        return tuple(
            -1.0
            + noise.uniform(-self.rounding, self.rounding)
            + changed
            + (0.0 if version is None else self.change * (-1) ** token)
            for token in completion
        )


PROMPTS = [(2, 5), (2, 3), (2, 7), (2, 8)]


@pytest.mark.parametrize(("off", "passes"), [(9e-5, True), (-9e-5, True), (2e-4, False), (-2e-4, False)])
async def test_a_server_that_computes_exactly_may_be_off_by_what_fp32_rounds(off: float, passes: bool) -> None:
    found = await canary(Engine(0.5, off=off), Engine(0.5), "policy-v1", PROMPTS)
    assert found.passed is passes
    assert found.tokens == 64


async def test_a_server_in_bfloat16_passes_with_an_adapter_that_changes_less_than_it_rounds() -> None:
    found = await canary(Engine(0.03, rounding=0.05), Engine(0.03), "policy-v1", PROMPTS)
    assert found.passed
    assert 0.03 < found.rounded <= 0.05
    assert found.arrived == pytest.approx(1.0, abs=0.3)


@pytest.mark.parametrize("served", [0.0, 0.06], ids=["ignored", "twice"])
async def test_a_server_in_bfloat16_fails_that_ignores_such_an_adapter_or_applies_it_twice(served: float) -> None:
    (failure,) = (await canary(Engine(served, rounding=0.05), Engine(0.03), "policy-v1", PROMPTS)).failures
    assert "expected about 100%: it is ignored, or scaled otherwise" in failure


async def test_an_adapter_that_changes_nothing_fails() -> None:
    found = await canary(Engine(0.0, rounding=0.05), Engine(0.0), "policy-v1", PROMPTS)
    assert math.isnan(found.arrived)
    assert ["changes nothing" in each for each in found.failures] == [True]


async def test_a_server_that_ignores_the_adapter_fails_on_both_counts(
    server: VllmLike, reference: LocalEngine, encoder, adapters
) -> None:
    server.ignores_adapters = True
    engine = VllmEngine([server.url], MODEL)
    for each in (engine, reference):
        await each.load("policy-v1", adapters(1))
    found = await canary(engine, reference, "policy-v1", probes(encoder))
    assert found.to_base < 1e-4
    assert abs(found.arrived) < 0.01
    assert ["off the reference" in found.failures[0], "it is ignored" in found.failures[1]] == [True, True]
    await engine.aclose()
    await reference.aclose()


async def test_a_server_that_serves_another_adapter_fails(server: VllmLike, reference, encoder, adapters) -> None:
    engine = VllmEngine([server.url], MODEL)
    await engine.load("policy-v1", adapters(2))
    await reference.load("policy-v1", adapters(1))
    failures = (await canary(engine, reference, "policy-v1", probes(encoder))).failures
    assert "the server computes something else" in failures[0]
    await engine.aclose()
    await reference.aclose()


def test_the_probes_are_chats_of_the_models_own_tokens(encoder) -> None:
    fixed = probes(encoder)
    assert fixed == probes(encoder)
    assert all(END in prompt for prompt in fixed)
    assert len(set(fixed)) == len(fixed)
