"""All weights trained, with moments of 32 or 8 bits: resumed alike, written as a model, and refused where none fits."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from policies.errors import PolicyRefused
from policies.generations.adapters import inspect_adapter, inspect_weights
from policies.generations.errors import AdapterRefused
from policies.generations.local_engine import LocalEngine
from policies.generations.vllm_engine import VllmEngine
from policies.local.loading import load_model
from policies.local.local_policy import POCKET
from policies.rl.backends import make_trainer
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.step_memory import step_memory
from policies.rl.trainer import Trainer
from tests.policies.rl.test_trainer import ADVANTAGES, ROWS

OPTIMIZERS = ("adamw", "adamw_8bit")


def trainer(optimizer: str = "adamw", **settings: Any) -> Trainer:
    chosen = {"weights": "full", "optimizer": optimizer, "learning_rate": 1e-3} | settings
    return Trainer(POCKET, Ppo(), OptimiserOptions.model_validate(chosen))


def weights(made: Trainer) -> torch.Tensor:
    return torch.cat([value.flatten() for _, value in sorted(made.merged())])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = trainer()
    made.step(ROWS, ADVANTAGES)
    path = tmp_path_factory.mktemp("whole") / "model"
    made.save(path)
    return path


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_resumed_training_goes_on_as_if_it_had_not_stopped(optimizer: str, tmp_path: Path) -> None:
    through = trainer(optimizer)
    through.step(ROWS, ADVANTAGES)
    through.checkpoint(tmp_path / "checkpoint.pt")
    start = weights(through)
    through.step(ROWS, ADVANTAGES)
    second = trainer(optimizer)
    second.resume(tmp_path / "checkpoint.pt")
    second.step(ROWS, ADVANTAGES)
    assert torch.equal(weights(through), weights(second))
    assert not torch.equal(weights(through), start)
    other = OPTIMIZERS[optimizer == "adamw"]
    with pytest.raises(PolicyRefused, match="written with"):
        trainer(other).resume(tmp_path / "checkpoint.pt")


def test_moments_of_8_bits_take_what_is_planned_and_train_nearly_alike() -> None:
    known, short = (trainer(optimizer) for optimizer in OPTIMIZERS)
    begin = weights(known)
    for made in (known, short):
        made.step(ROWS, ADVANTAGES)
    moved = [weights(made) - begin for made in (known, short)]
    assert torch.nn.functional.cosine_similarity(moved[0], moved[1], dim=0) > 0.95
    held = short.optimizer.state_dict()["state"].values()
    numbers = sum(_bytes(each) for state in held for each in _tensors(state))
    planned = step_memory(POCKET, short.settings, 64).optimiser
    tables = 2 * 4 * 256 * len(held)  # written beside each tensor's, and held once
    assert abs(numbers - tables - planned) < 0.01 * planned
    assert planned < 0.3 * step_memory(POCKET, known.settings, 64).optimiser


def _tensors(state: dict[str, Any]) -> list[torch.Tensor]:
    found = [value for value in state.values() if isinstance(value, torch.Tensor)]
    return found + [each for value in state.values() if isinstance(value, dict) for each in _tensors(value)]


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def test_what_is_written_is_what_was_trained_and_goes_on_from_there(whole: Path) -> None:
    loaded = load_model(str(POCKET), str(whole)).state_dict()
    trained = Trainer(POCKET, Ppo(), OptimiserOptions(weights="full"), start=whole)
    assert all(torch.equal(loaded[name], value) for name, value in trained.merged())
    base = load_model(str(POCKET), None).state_dict()
    assert any(not torch.equal(loaded[name], value) for name, value in base.items())
    assert inspect_weights(whole, POCKET).rank == 0


@pytest.mark.parametrize("merged", [False, True])
async def test_a_process_answers_with_a_whole_model_beside_its_base(whole: Path, merged: bool) -> None:
    engine = LocalEngine(POCKET, merged=merged)
    try:
        await engine.load("policy-v1", whole)
        own, base = [await engine.logprobs((3, 4, 5), (6, 7), version) for version in ("policy-v1", None)]
        assert own != base
        await engine.unload("policy-v1")
        assert await engine.loaded() == frozenset()
        assert await engine.logprobs((3, 4, 5), (6, 7), None) == base
    finally:
        await engine.aclose()


def cut(path: Path) -> None:
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def reshaped(path: Path) -> None:
    tensors = load_file(path / "model.safetensors")
    tensors["model.norm.weight"] = torch.ones(3)
    save_file(tensors, path / "model.safetensors")


def short_of_one(path: Path) -> None:
    tensors = load_file(path / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, path / "model.safetensors")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (cut, "damaged or cut off"),
        (reshaped, r"model.norm.weight' of shape \(3,\), expected \(256,\)"),
        (short_of_one, r"model.norm.weight' of shape None, expected \(256,\)"),
        (lambda path: (path / "model.safetensors").unlink(), "of shape None"),
        (lambda path: (path / "more.bin").write_bytes(b""), "pickled"),
    ],
)
def test_a_faulty_model_is_refused(whole: Path, tmp_path: Path, fault: Callable[[Path], object], said: str) -> None:
    path = Path(shutil.copytree(whole, tmp_path / "faulty"))
    fault(path)
    with pytest.raises(AdapterRefused, match=said):
        inspect_weights(path, POCKET)


async def test_who_takes_adapters_alone_refuses_a_whole_model(whole: Path) -> None:
    with pytest.raises(AdapterRefused, match="take adapters beside a base; answer with it in process"):
        inspect_adapter(whole, None)
    engine = VllmEngine(["http://127.0.0.1:9"], "policy-v0")
    try:
        with pytest.raises(AdapterRefused, match="take adapters"):
            await engine.load("policy-v1", whole)
    finally:
        await engine.aclose()


@pytest.mark.parametrize("settings", [{"weights": "full"}, {"optimizer": "adamw_8bit"}])
@pytest.mark.parametrize("backend", ["trl_sync", "trl_async"])
def test_other_backends_refuse_both(backend: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(PolicyRefused, match="trains an adapter with AdamW"):
        make_trainer(backend, POCKET, Ppo(), OptimiserOptions.model_validate(settings))


@pytest.mark.parametrize(
    ("more", "said"), [({"dtype": "bfloat16"}, "leave dtype out"), ({"reference_kl": True}, "set it to false")]
)
def test_what_does_not_go_with_all_weights_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        OptimiserOptions.model_validate({"weights": "full"} | more)
