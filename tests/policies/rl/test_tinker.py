"""A service that trains: the updates are those of our own trainer, and what it hands out is an adapter like any other.

T1  losses, aggregations, corrections, echo, epochs and minibatches: the adapter of the service is our trainer's
T2  a checkpoint goes on with its moments, live weights go on where the service keeps them, others are refused
T3  an engine samples from the version that it names, and tells what the trainer computes
T4  what a service does not take, a service that is gone and a name that it does not know are told in a sentence
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("tinker")

import tinker

from policies.errors import PolicyRefused, PolicyUnavailable
from policies.generations.adapters import CONFIG, WEIGHTS, inspect_weights
from policies.generations.errors import AdapterRefused, UnknownGeneration
from policies.generations.tinker_engine import TinkerEngine, client_package
from policies.protocols import SamplingParams
from policies.rl.backends import make_trainer
from policies.rl.corrections.tis import Tis
from policies.rl.losses.cispo import Cispo
from policies.rl.losses.gspo import Gspo
from policies.rl.losses.ppo import Ppo
from policies.rl.losses.sft import Sft
from policies.rl.optimising import OptimiserOptions
from policies.rl.trainer import Trainer, TrainingStopped
from tests.policies.rl.hosted import NAME, Service, serving
from tests.policies.rl.test_trainer import ADVANTAGES, ROWS, model

# peft asks transformers for what that has renamed
pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.*:FutureWarning")
_ = model  # a fixture


@pytest.fixture(params=[True, False], ids=["newer", "older"])
def service(
    request: pytest.FixtureRequest, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Service]:
    with serving(model, tmp_path / "service", newer=request.param) as found:
        monkeypatch.setattr(tinker, "ServiceClient", found)
        yield found


def made(backend: Any, model: Path, loss: Any = None, **settings: Any) -> Trainer:
    correction, start = settings.pop("correction", None), settings.pop("start", None)
    named = {"hosted_model": NAME} if backend == "tinker" else {}
    chosen = OptimiserOptions(**({"learning_rate": 1e-2, "rank": 4, "max_tokens": 32} | named | settings))
    return make_trainer(backend, model, loss or Ppo(), chosen, correction=correction, start=start)


def adapter(trainer: Trainer, folder: Path) -> dict[str, torch.Tensor]:
    trainer.save(folder)
    return load_file(folder / WEIGHTS)


@pytest.mark.parametrize(
    ("loss", "settings"),
    [
        (Ppo(), {}),
        (Ppo(low=0.01, high=0.01, aggregation="seq-mean-token-sum-norm"), {"epochs": 2, "minibatches": 2}),
        (Cispo(), {"correction": Tis()}),
        (Gspo(low=0.01, high=0.02), {"epochs": 2}),
        (Sft(), {"echo": 0.3, "schedule": "linear", "warmup_updates": 1, "horizon": 4}),
    ],
)
def test_an_update_is_the_one_that_our_trainer_makes(
    service: Service, model: Path, tmp_path: Path, loss: Any, settings: dict[str, Any]
) -> None:
    hosted, own = made("tinker", model, loss, **settings), made("torch", model, loss, **settings)
    for _ in range(2):
        theirs, ours = hosted.step(ROWS, ADVANTAGES), own.step(ROWS, ADVANTAGES)
        same = set(ours) - {"seconds", "update_tokens_per_s", "computed_share", "entropy"}
        assert {name: theirs[name] for name in same} == pytest.approx({name: ours[name] for name in same}, abs=1e-4)
    found, expected = adapter(hosted, tmp_path / "theirs"), adapter(own, tmp_path / "ours")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.allclose(found[name], value, atol=2e-5), name
    assert any(value.abs().max() > 1e-3 for name, value in found.items() if "lora_B" in name), "nothing was trained"
    assert inspect_weights(tmp_path / "theirs", model).modules == inspect_weights(tmp_path / "ours", model).modules
    assert sorted(each.name for each in (tmp_path / "theirs").iterdir()) == [CONFIG, WEIGHTS, "training.json"]


def test_a_checkpoint_goes_on_to_the_same_weights(service: Service, model: Path, tmp_path: Path) -> None:
    kept: dict[str, Any] = {"minibatches": 2, "schedule": "linear", "warmup_updates": 1, "horizon": 5}
    through, first = (made("tinker", model, **kept) for _ in range(2))
    for _ in range(2):
        through.step(ROWS, ADVANTAGES)
    first.step(ROWS, ADVANTAGES)
    named = first.save_for_sampling(tmp_path / "sampled")
    first.checkpoint(tmp_path / "checkpoint", {"iterations": 1})
    written = json.loads((tmp_path / "checkpoint").read_text())
    written["settings"] |= {"aggregation": "token-mean", "max_tokens": 4096}  # as earlier versions wrote it
    (tmp_path / "checkpoint").write_text(json.dumps(written))
    then = made("tinker", model, **kept)
    assert then.resume(tmp_path / "checkpoint") == {"iterations": 1}
    assert then.save_for_sampling(tmp_path / "again") == named, "the same weights have the same name"
    then.step(ROWS, ADVANTAGES)
    assert then.updates == through.updates == 4
    assert service.asked.count("create") == 2, "a training that goes on begins no other one"
    found, expected = adapter(then, tmp_path / "then"), adapter(through, tmp_path / "through")
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    with pytest.raises(PolicyRefused, match="was written with"):
        made("tinker", model).resume(tmp_path / "checkpoint")
    with pytest.raises(PolicyRefused, match="name another"):
        then.save(tmp_path / "then")


def test_it_goes_on_from_live_weights_that_the_service_keeps(service: Service, model: Path, tmp_path: Path) -> None:
    first = made("tinker", model)
    first.step(ROWS, ADVANTAGES)
    expected = adapter(first, tmp_path / "live")
    then = made("tinker", model, start=tmp_path / "live")
    found = adapter(then, tmp_path / "then")
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    elsewhere = made("torch", model)
    elsewhere.step(ROWS, ADVANTAGES)
    elsewhere.save(tmp_path / "elsewhere")
    with pytest.raises(PolicyRefused, match="was not trained by a service"):
        made("tinker", model, start=tmp_path / "elsewhere")


async def test_an_engine_tells_what_the_trainer_computes(service: Service, model: Path, tmp_path: Path) -> None:
    trainer = made("tinker", model)
    engine = TinkerEngine(service, NAME, {0}, 64)
    own = made("torch", model)
    for update in range(2):
        name, place = f"u{update}", tmp_path / f"u{update}"
        told = trainer.save_for_sampling(place)
        await engine.load(name, place)
        await engine.load(name, place)
        found = await engine.sample((5, 6, 7), SamplingParams(temperature=1.0, max_tokens=12), name)
        row = ROWS[0].model_copy(
            update={
                "prompt_ids": (5, 6, 7),
                "completion_ids": found.token_ids,
                "sampling_logprobs": found.logprobs,
                "spans": (ROWS[0].spans[0].model_copy(update={"start": 0, "stop": len(found.token_ids)}),),
            }
        )
        step = trainer.step([row], [ADVANTAGES[2]])
        assert step["rollout_kl"] < 1e-9
        assert own.step([row], [ADVANTAGES[2]])["rollout_kl"] < 1e-9, "the version named is the one that sampled"
        assert len(told) == 8
    assert (found.finish_reason == "stop") == (found.token_ids[-1] == 0)
    assert await engine.loaded() == {"u0", "u1"}
    other = tmp_path / "other"
    trainer.save_for_sampling(other)
    with pytest.raises(AdapterRefused, match="give another name"):
        await engine.load("u1", other)
    await engine.unload("u0")
    with pytest.raises(UnknownGeneration, match="u0 is not loaded"):
        await engine.sample((5,), SamplingParams(temperature=1.0, max_tokens=2), "u0")
    with pytest.raises(PolicyRefused, match="stop at ids alone"):
        await engine.sample((5,), SamplingParams(temperature=1.0, max_tokens=2, stop=("x",)), "u1")
    base = await engine.sample((5,), SamplingParams(temperature=1.0, max_tokens=2), None)
    assert len(base.token_ids) in (1, 2)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"temperature": 0.7}, "temperature = 0.7"),
        ({"dtype": "bfloat16"}, "dtype = 'bfloat16'"),
        ({"reference_kl": True}, "reference_kl = True"),
        ({"optimizer": "adamw_8bit"}, "adamw_8bit"),
        ({"hosted_model": ""}, "needs train.tinker.base_model"),
    ],
)
def test_what_a_service_does_not_take_is_refused(
    service: Service, model: Path, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(PolicyRefused, match=said):
        made("tinker", model, **settings)
    assert not service.asked


def test_a_service_that_is_gone_and_a_name_it_does_not_know_are_told(service: Service, model: Path) -> None:
    with pytest.raises(PolicyRefused, match=r"does not train 'Other/Model'.*no model"):
        made("tinker", model, hosted_model="Other/Model").step(ROWS, ADVANTAGES)
    trainer = made("tinker", model)
    trainer.step(ROWS, ADVANTAGES)
    service.gone = True
    with pytest.raises(PolicyUnavailable, match="does not make this update"), trainer:
        trainer.step(ROWS, ADVANTAGES)
    for refused in (lambda: trainer.acting, trainer.merged):
        with pytest.raises(PolicyRefused, match="here"):
            refused()


def test_a_loss_that_is_no_number_changes_nothing(service: Service, model: Path) -> None:
    class Broken(Sft):
        def __call__(self, logp: Any, old: Any, advantages: Any, mask: Any) -> Any:
            loss, metrics = super().__call__(logp, old, advantages, mask)
            return loss * torch.nan, metrics

    trainer = made("tinker", model, Broken())
    with pytest.raises(TrainingStopped, match="became nan at update 1"):
        trainer.step(ROWS, ADVANTAGES)
    assert "optim_step" not in service.asked


def test_a_service_that_sums_otherwise_is_refused_before_a_step(service: Service, model: Path) -> None:
    service.divides = True
    told = "loss:sum" if service.newer else r"told the loss None.*nothing was updated"  # the newer client asks itself
    with pytest.raises(PolicyRefused, match=told):
        made("tinker", model).step(ROWS, ADVANTAGES)
    assert "optim_step" not in service.asked


def test_without_its_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tinker", None)
    with pytest.raises(PolicyUnavailable, match=r"evolve-agents\[tinker\]"):
        client_package()
