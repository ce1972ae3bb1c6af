"""The canary: what the server computes must be the adapter, and must not be the base."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from labs.pocket.corpus_batches import END
from policies.generations.engine import Sampled
from policies.generations.local_engine import LocalEngine
from policies.generations.server_check import CanaryReport, canary, probes
from policies.generations.vllm_engine import VllmEngine
from policies.protocols import SamplingParams
from tests.policies.generations.vllm_like import MODEL, VllmLike


def report(to_reference: float, to_base: float, tokens: int = 40) -> CanaryReport:
    return CanaryReport(version="policy-v1", tokens=tokens, tolerance=1e-4, to_reference=to_reference, to_base=to_base)


@pytest.mark.parametrize(
    ("found", "failures"),
    [
        (report(1e-6, 0.5), 0),
        (report(1e-4, 2.1e-4), 0),
        (report(1.1e-4, 0.5), 1),
        (report(1e-6, 2e-4), 1),
        (report(0.0, 0.0), 1),
        (report(0.5, 0.0), 2),
        (report(math.nan, math.nan), 2),
        (report(0.0, 0.5, tokens=0), 1),
    ],
)
def test_a_report_decides_by_its_two_differences(found: CanaryReport, failures: int) -> None:
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
    """Says the same two ids to everything; its log-probabilities are `off` those of the base, more with an adapter."""

    def __init__(self, off: float) -> None:
        self.off = off

    async def sample(self, prompt: Sequence[int], params: SamplingParams, version: str | None) -> Sampled:
        return Sampled((7, 8), await self.logprobs(prompt, (7, 8), version), "stop")

    async def logprobs(
        self, prompt: Sequence[int], completion: Sequence[int], version: str | None
    ) -> tuple[float, ...]:
        return tuple(-1.0 + self.off + (0.0 if version is None else 0.5) for _ in completion)


@pytest.mark.parametrize(("off", "passes"), [(5e-5, True), (-5e-5, True), (2e-4, False), (-2e-4, False)])
async def test_unless_told_otherwise_it_allows_what_fp32_rounds_off(off: float, passes: bool) -> None:
    found = await canary(Engine(off), Engine(0.0), "policy-v1", [(2, 5), (2, 3)])
    assert found.passed is passes
    assert found.tokens == 4


async def test_a_server_that_ignores_the_adapter_fails_on_both_counts(
    server: VllmLike, reference: LocalEngine, encoder, adapters
) -> None:
    server.ignores_adapters = True
    engine = VllmEngine([server.url], MODEL)
    for each in (engine, reference):
        await each.load("policy-v1", adapters(1))
    found = await canary(engine, reference, "policy-v1", probes(encoder))
    assert found.to_base < 1e-4
    assert ["off the reference" in found.failures[0], "adapter is ignored" in found.failures[1]] == [True, True]
    await engine.aclose()
    await reference.aclose()


async def test_a_server_that_serves_another_adapter_fails(server: VllmLike, reference, encoder, adapters) -> None:
    engine = VllmEngine([server.url], MODEL)
    await engine.load("policy-v1", adapters(2))
    await reference.load("policy-v1", adapters(1))
    (failure,) = (await canary(engine, reference, "policy-v1", probes(encoder))).failures
    assert "the server computes something else" in failure
    await engine.aclose()
    await reference.aclose()


def test_the_probes_are_chats_of_the_models_own_tokens(encoder) -> None:
    fixed = probes(encoder)
    assert fixed == probes(encoder)
    assert all(END in prompt for prompt in fixed)
    assert len(set(fixed)) == len(fixed)
