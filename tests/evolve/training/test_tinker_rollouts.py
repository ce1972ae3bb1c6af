"""A training that a service computes: it samples with each new version, and its candidate is one like any other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tinker")
pytest.importorskip("gguf")

import tinker

from evolve.config.model import Config
from evolve.errors import ConfigError
from evolve.generations.workspace_registry import open_registry
from evolve.training import ledger
from evolve.training.memory_plan import planned
from evolve.training.rollout_policy import require_rollouts
from evolve.training.training_session import resume, train
from policies.generations.adapters import inspect_weights
from policies.rl.tinker import STATE
from tests.evolve.toy_doors import doors_config
from tests.policies.rl.hosted import NAME, Service, serving
from tests.policies.tiny_gguf import tiny_model

# peft asks transformers for what that has renamed
pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.*:FutureWarning")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model("llama", tmp_path_factory.mktemp("models") / "tiny")[0]


@pytest.fixture
def service(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with serving(base, tmp_path / "service") as found:
        monkeypatch.setattr(tinker, "ServiceClient", found)
        yield found


def config_of(base: Path, folder: Path, **train: Any) -> Config:
    return doors_config(
        folder,
        policy={"name": "local", "model": str(base), "max_tokens": 6, "profile": "compact"},
        environment={"name": "tests.evolve.toy_doors:Doors", "max_steps": 2},
        train={
            "backend": "tinker",
            "tinker": {"base_model": NAME},
            "skills": False,
            "length": 1,
            "chains": 2,
            "rollouts": 2,
            "iterations": 2,
            "learning_rate": 1e-2,
            "filter": "everything",
            "advantages": "tests.evolve.training.test_resume:praised",
            **train,
        },
    )


def test_each_batch_is_sampled_by_the_weights_it_trains(service: Service, base: Path, tmp_path: Path) -> None:
    config = config_of(base, tmp_path / "ws")
    done = train(config, "grpo")
    told = ledger.lines(done.folder / ledger.METRICS)
    assert done.generation == "policy-v1"
    assert [line["episodes"] for line in told] == [4, 4]
    assert all(0 <= line["rollout_kl"] < 1e-9 for line in told), "the service samples with what it trains"
    assert told[0]["gradient_norm"] > 0
    assert 0 < told[0]["entropy"] < 6
    assert inspect_weights(done.folder / "adapter", base).rank == 16
    with open_registry(config.policy, config.workspace) as registry:
        registry.accept("policy-v1", {})
        registry.promote("policy-v1")
    assert service.asked[-1] == "close: success"
    before = service.asked.count("weights")
    assert train(config, "grpo").generation == "policy-v2"
    assert service.asked.count("weights") == before + 1, f"goes on from {STATE} of what is live"


def test_a_training_that_was_stopped_goes_on_from_the_services_checkpoint(
    service: Service, base: Path, tmp_path: Path
) -> None:
    through = train(config_of(base, tmp_path / "through"), "grpo")
    config = config_of(base, tmp_path / "ws")

    def leave(figures: dict[str, float]) -> None:
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        train(config, "grpo", leave)
    assert service.asked[-1] == "close: errored"
    done = resume(config)
    assert done.updates == through.updates == 2
    told = ledger.lines(done.folder / ledger.METRICS)
    assert [line["iteration"] for line in told] == [0, 1]
    assert service.asked.count("weights and moments") == 1


def test_rollouts_wait_for_a_service_that_is_away(service: Service, base: Path, tmp_path: Path) -> None:
    away = threading.Timer(1.0, lambda: setattr(service, "gone", False))

    def leave(figures: dict[str, float]) -> None:
        if figures["iteration"] == 0:
            service.gone = True
            away.start()

    done = train(config_of(base, tmp_path / "ws"), "grpo", leave)
    away.join()
    told = ledger.lines(done.folder / ledger.METRICS)
    assert [line["episodes"] for line in told] == [4, 4], "no episode failed of it"
    assert service.asked.count("sampler") > 2, "it was asked for anew"


def test_what_cannot_be_is_refused_before_anything_is_asked(service: Service, base: Path, tmp_path: Path) -> None:
    for policy in ({"name": "pocket"}, {"name": "scripted"}, {"name": "openai", "model": "m"}):
        chosen = Config.model_validate({"policy": policy, "train": {"backend": "tinker"}})
        with pytest.raises(ConfigError, match="weights at hand"):
            require_rollouts(chosen)
    with pytest.raises(ConfigError, match="nothing is computed here"):
        planned(config_of(base, tmp_path / "ws"), 80, 2048)
    assert not service.asked
