"""Generations on llama.cpp: served beside the base, asked for by name, and measured as they are served."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

from benchmarks.random_adapters import random_adapter
from evolve.config.model import Config
from evolve.generations.llama_cpp import answering, converted
from evolve.generations.workspace_registry import open_registry
from evolve.loop.assembly import make_policy
from evolve.training.promotion_gate import judged, on_llama
from memory.errors import BadInput, NotFound
from policies.errors import PolicyRefused, PolicyUnavailable
from policies.llama_server import LlamaOptions, llama_server
from policies.protocols import Message, SamplingParams
from policies.server_process import free_port
from tests.evolve.command import complaint
from tests.evolve.toy_doors import doors_config
from tests.policies.tiny_gguf import CONTEXT, tiny_model

ASK = [Message(role="user", content="Open the red door.")]
SMALL = LlamaOptions(context=CONTEXT, slots=1, threads=1)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return tiny_model("llama", tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def config(tmp_path: Path, models: tuple[Path, Path]) -> Config:
    """A workspace with one candidate; the base is live."""
    policy = {"name": "openai", "model": "tiny", "weights": str(models[0]), "max_tokens": 8}
    made = doors_config(
        tmp_path / "ws",
        policy=policy,
        run={"concurrency": 1, "attempts": 2},
        environment={"name": "tests.evolve.toy_doors:Doors", "max_steps": 1},
        gate={"held_out": {"tasks": 2}},
    )
    adapter = random_adapter(models[0], tmp_path / "adapter", 1, scale=0.5)
    with open_registry(made.policy, made.workspace) as registry:
        registry.publish(adapter, base=registry.base)
    return made


def promoted(config: Config) -> Config:
    with open_registry(config.policy, config.workspace) as registry:
        registry.accept("policy-v1", {})
        registry.promote("policy-v1", "a test")
    return config


async def replied(config: Config, url: str, **keys: str) -> tuple[str, str]:
    """Return a reply's text and the version that gave it."""
    section = config.policy.model_copy(update={"base_url": url, **keys})
    policy = make_policy(section, config.workspace)
    try:
        reply = await policy.generate(ASK, SamplingParams(max_tokens=8))
    finally:
        await policy.aclose()
    return reply.text, reply.policy_version


@pytest.mark.served
async def test_a_server_answers_with_the_live_generation_or_not_at_all(
    config: Config, models: tuple[Path, Path], tmp_path: Path
) -> None:
    promoted(config)
    beside = converted(config.policy, config.workspace, models[1], None, config.workspace / "policies")
    assert beside is not None
    assert re.fullmatch(r"policy-v1\.[0-9a-f]{12}\.gguf", beside.name)
    options = SMALL.model_copy(update={"adapter": beside})
    with llama_server(models[1], log=tmp_path / "log", name="tiny", options=options) as url:
        text, version = await replied(config, url)
        assert version == f"tiny/{beside.stem}"
        assert answering(config.policy, config.workspace).file == beside.stem
        with pytest.raises(PolicyRefused, match=r"policy-v0 is to answer .* serves adapter policy-v1\.\w+; serve it"):
            await replied(config, url, adapter="policy-v0")
    with llama_server(models[1], log=tmp_path / "log", name="tiny", options=SMALL) as url:
        plain, version = await replied(config, url, adapter="policy-v0")
        assert (version, plain != text) == ("tiny", True)
        with pytest.raises(PolicyRefused, match=r"policy-v1 is to answer .* serves the base alone; serve it: `evolve"):
            await replied(config, url)


@pytest.mark.served
def test_the_gate_measures_a_generation_as_it_is_served(config: Config, models: tuple[Path, Path]) -> None:
    trial = judged(config, "policy-v1", on_llama(models[1], SMALL))
    assert (trial.live, trial.candidate, trial.accepted) == ("policy-v0", "policy-v1", False)
    assert {arm.n for arm in trial.arms.values()} == {2}
    assert trial.reason.startswith("0 tasks gained, 0 lost"), "a random model opens no door"


async def test_a_server_that_is_not_there_is_one_sentence(config: Config) -> None:
    with pytest.raises(
        PolicyUnavailable, match=r"gave no answer in \d attempts \(last: ConnectError: .*\); start the server"
    ):
        await replied(config, f"http://127.0.0.1:{free_port()}/v1")


def test_what_cannot_be_served_beside_the_base_is_one_sentence(
    config: Config, models: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "converted"
    assert converted(config.policy, config.workspace, models[1], None, folder) is None, "the base is live"
    tuned, other = tiny_model("llama", tmp_path / "tuned", seed=1)
    del tuned
    with pytest.raises(BadInput, match="are not the same model"):
        converted(config.policy, config.workspace, other, "policy-v1", folder)
    with pytest.raises(NotFound, match=r"no generation 'policy-v7'; there are policy-v0, policy-v1"):
        converted(config.policy, config.workspace, models[1], "policy-v7", folder)
    with pytest.raises(NotFound, match="no generation '3' and no such adapter: this workspace has none"):
        converted(config.policy, tmp_path / "empty", models[1], "3", folder)
    text = tmp_path / "adapter.txt"
    text.write_text("nothing")
    with pytest.raises(BadInput, match="is no GGUF file; give a GGUF adapter, a PEFT directory or a generation"):
        converted(config.policy, config.workspace, models[1], str(text), folder)
    assert not list(folder.glob("*/*.gguf"))


def test_the_command_refuses_an_adapter_of_another_model(models: tuple[Path, Path], tmp_path: Path) -> None:
    wide, _ = tiny_model("llama", tmp_path / "wide", width=128)
    adapter = random_adapter(wide, tmp_path / "adapter", 1)
    said = complaint(tmp_path, "policy", "serve", str(models[1]), "--ctx", "256", "--adapter", str(adapter), code=2)
    assert "does not fit" in said
    assert said.endswith("it was trained on another base model: serve the GGUF file of that one")
    said = complaint(tmp_path, "policy", "serve", ".", "--adapter", "policy-v1", code=2)
    assert "--adapter is for a GGUF file" in said
