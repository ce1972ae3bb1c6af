"""Rollouts on llama.cpp: it samples with each new adapter, and tells what the trainer computes for every token."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

from benchmarks.random_adapters import random_adapter
from evolve.config.model import Config
from evolve.errors import ConfigError
from evolve.training import ledger
from evolve.training.rollout_policy import ServedRollouts, require_rollouts, rollout_policy
from evolve.training.training_session import train
from memory.errors import BadInput
from policies.generations.errors import AdapterRefused, UnknownGeneration
from policies.generations.llama_cpp_engine import LlamaCppEngine
from policies.generations.local_engine import LocalEngine
from policies.llama_server import LlamaOptions
from policies.protocols import Message, SamplingParams
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.trainer import Trainer
from tests.evolve.toy_doors import doors_config
from tests.policies.tiny_gguf import CONTEXT, END, tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.served]
PROMPT = (5, 6, 7, 8, 9)
NOTHING = 0
"""`<|endoftext|>`, which llama.cpp takes for an end as well."""
OPTIONS = LlamaOptions(slots=2, context=CONTEXT, threads=1)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return tiny_model("llama", tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
async def engine(models: tuple[Path, Path], tmp_path: Path) -> AsyncIterator[LlamaCppEngine]:
    made = LlamaCppEngine(models[1], tmp_path / "llama.cpp", OPTIONS)
    yield made
    await made.aclose()


def config_of(models: tuple[Path, Path], folder: Path, **train: Any) -> Config:
    return doors_config(
        folder,
        policy={"name": "local", "model": str(models[0]), "max_tokens": 6, "profile": "compact"},
        environment={"name": "tests.evolve.toy_doors:Doors", "max_steps": 2},
        train={
            "llama_cpp": {"gguf": str(models[1]), "slots": 2, "context": CONTEXT},
            "skills": False,
            "length": 1,
            "chains": 2,
            "rollouts": 2,
            "iterations": 2,
            "filter": "everything",
            "advantages": "tests.evolve.training.test_resume:praised",
            **train,
        },
    )


@pytest.mark.parametrize("temperature", [1.0, 0.6])
async def test_it_tells_how_likely_a_token_was_when_it_was_sampled(
    engine: LlamaCppEngine, models: tuple[Path, Path], tmp_path: Path, temperature: float
) -> None:
    adapter = random_adapter(models[0], tmp_path / "adapter", 1, scale=0.5)
    await engine.load("v1", adapter)
    reference = LocalEngine(models[0], threads=1)
    try:
        await reference.load("v1", adapter)
        said: dict[str | None, list[Any]] = {"v1": [], None: []}
        for version, found in said.items():
            for seed in range(4):
                params = SamplingParams(temperature=temperature, max_tokens=60, seed=seed)
                done = await engine.sample(PROMPT, params, version)
                found.append(done)
                if temperature == 1.0:
                    expected = await reference.logprobs(PROMPT, done.token_ids, version)
                    assert done.logprobs == pytest.approx(expected, abs=0.02), "keys and values are float16"
        every = [done for found in said.values() for done in found]
        assert {done.finish_reason for done in every} == {"stop", "length"}
        ended = [done.token_ids[-1] for done in every if done.finish_reason == "stop"]
        assert set(ended) <= {NOTHING, END}, "the token that ended a completion is told with it"
        assert said["v1"] != said[None]
        raw = [await reference.logprobs(PROMPT, done.token_ids, "v1") for done in said["v1"]]
        sharper = sum(sum(done.logprobs) for done in said["v1"]) - sum(map(sum, raw))
        assert (sharper > 10) == (temperature < 1), "what is told is told after the temperature"
    finally:
        await reference.aclose()


async def test_a_version_is_loaded_in_place_of_another_and_never_under_one_name(
    engine: LlamaCppEngine, models: tuple[Path, Path], tmp_path: Path
) -> None:
    one, two = (random_adapter(models[0], tmp_path / name, seed, scale=0.5) for seed, name in enumerate(("1", "2")))
    with pytest.raises(UnknownGeneration, match=r"v1 is not loaded on llama.cpp \(none is\)"):
        await engine.sample(PROMPT, SamplingParams(max_tokens=2), "v1")
    await engine.load("v1", one)
    first = await engine.sample(PROMPT, SamplingParams(max_tokens=8), "v1")
    with pytest.raises(AdapterRefused, match="give another name"):
        await engine.load("v1", two)
    await engine.load("v2", two)
    assert await engine.loaded() == {"v2"}
    assert await engine.sample(PROMPT, SamplingParams(max_tokens=8), "v2") != first
    with pytest.raises(UnknownGeneration, match=r"v1 is not loaded on llama.cpp \(v2 is\)"):
        await engine.sample(PROMPT, SamplingParams(max_tokens=2), "v1")
    await engine.unload("v2")
    assert await engine.loaded() == frozenset()


async def test_a_server_that_was_killed_is_started_again(models: tuple[Path, Path], tmp_path: Path) -> None:
    config = config_of(models, tmp_path / "ws")
    trainer = Trainer(models[0], Ppo(), OptimiserOptions(rank=4))
    policy = rollout_policy(config, tmp_path / "training", trainer)
    assert isinstance(policy, ServedRollouts)
    try:
        await policy.sync_weights(trainer)
        ask, params = [Message(role="user", content="Open the red door.")], SamplingParams(max_tokens=6)
        before = await policy.generate(ask, params)
        servers = subprocess.run(["pgrep", "-f", str(models[1])], capture_output=True, text=True).stdout.split()
        for server in servers:
            os.kill(int(server), signal.SIGKILL)
        assert servers
        assert await policy.generate(ask, params) == before
    finally:
        await policy.aclose()


def test_each_batch_is_sampled_by_the_adapter_it_trains(models: tuple[Path, Path], tmp_path: Path) -> None:
    done = train(config_of(models, tmp_path / "ws", learning_rate=1e-2), "grpo")
    told = ledger.lines(done.folder / ledger.METRICS)
    assert done.generation == "policy-v1"
    assert [line["episodes"] for line in told] == [4, 4]
    for line in told:
        assert 0 <= line["rollout_kl"] < 1e-4, "llama.cpp computes what the trainer computes, with each new adapter"


def test_what_it_cannot_sample_for_is_refused(models: tuple[Path, Path], tmp_path: Path) -> None:
    for policy in ({"name": "pocket"}, {"name": "served"}, {"name": "openai", "model": "m"}):
        chosen = Config.model_validate({"policy": policy, "train": {"llama_cpp": {"gguf": "base.gguf"}}})
        with pytest.raises(ConfigError, match="adapters of weights at hand"):
            require_rollouts(chosen)
    with pytest.raises(ConfigError, match="weights = 'full'"):
        require_rollouts(config_of(models, tmp_path / "full", weights="full"))
    other = tiny_model("llama", tmp_path / "other", seed=1)
    config = config_of((models[0], other[1]), tmp_path / "ws")
    with pytest.raises(BadInput, match="not the same model"):
        train(config, "grpo")
