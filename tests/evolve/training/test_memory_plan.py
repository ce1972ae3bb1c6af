"""`evolve train plan --gpu`: the parts of a training's memory, whether it fits, and what to set where it does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import Qwen2Config

from policies.local.local_policy import GPU_BATCH, MAX_BATCH
from tests.evolve.command import invoke

GIB = 1 << 30


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "evolve.toml").write_text("")
    Qwen2Config(
        vocab_size=2000,
        num_hidden_layers=2,
        hidden_size=256,
        intermediate_size=1024,
        num_attention_heads=4,
        num_key_value_heads=2,
    ).save_pretrained(tmp_path / "model")
    return tmp_path


def planned(folder: Path, *more: str) -> dict[str, int]:
    result = invoke(folder, "train", "plan", "--model", str(folder / "model"), *more, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    parts = {part["part"]: part["bytes"] for part in found["parts"]}
    assert sum(parts.values()) == found["update"]
    return parts | {name: found[name] for name in ("fits", "rollouts", "update")}


def test_a_gpu_holds_the_base_in_half_and_several_share_it_out(folder: Path) -> None:
    small = ("--tokens", "256", "--set", "train.pack_tokens=128")
    cpu, one, two = (
        planned(folder, *device, *small) for device in (("--ram", "9"), ("--gpu", "9"), ("--gpu", "9", "--gpus", "2"))
    )
    assert cpu["base"] == 2 * one["base"] == 4 * two["base"]
    assert cpu["trained weights"] == one["trained weights"] == 2 * two["trained weights"]
    assert two["gathered"] > 0
    assert two["merged copy"] == cpu["base"], "the first process rolls out with a copy of its own"
    assert "merged copy" not in one
    served = planned(folder, "--gpu", "9", "--gpus", "2", *small, "--set", "policy.name='served'")
    assert served["rollouts"] == 0
    assert "merged copy" not in served
    assert "gathered" not in one
    assert (one["reserved"], cpu["reserved"]) == (2 * GIB, GIB)
    assert cpu["fits"]


def test_a_gpu_decodes_more_rows_at_a_time(folder: Path) -> None:
    """Beside what is held, so many rows of 256 tokens: as `LocalPolicy` takes at a time, where there are as many."""

    def rows(device: str, chains: int) -> float:
        asked = (device, "9", "--tokens", "256", "--set", "train.rollouts=8", "--set", f"train.chains={chains}")
        return planned(folder, *asked)["rollouts"]

    for device, most in (("--ram", MAX_BATCH), ("--gpu", GPU_BATCH)):
        one, full, more = (rows(device, at) for at in (1, most // 8, most))
        assert full > one
        assert more == full
        assert rows(device, most // 8 - 1) < full


def test_a_server_on_the_same_gpu_is_told_its_share(folder: Path) -> None:
    asked = ("train", "plan", "--model", str(folder / "model"), "--tokens", "256", "--set", "policy.name='served'")
    found = json.loads(invoke(folder, *asked, "--gpu", "4", "--json").stdout)
    assert 0 < found["server_share"] <= 1 - found["update"] / (4 * GIB) < found["server_share"] + 0.01
    told = invoke(folder, *asked, "--gpu", "4").stdout
    assert f"evolve policy serve --gpu-memory {found['server_share']:.2f}` at most" in told
    assert "--gpu-memory" not in invoke(folder, *asked, "--gpu", "0.5").stdout
    assert "--gpu-memory" not in invoke(folder, *asked, "--ram", "4").stdout


def test_what_does_not_fit_is_said_with_what_to_set(folder: Path) -> None:
    arguments = ("train", "plan", "--model", str(folder / "model"), "--tokens", "512", "--ram", "1")
    told = invoke(folder, *arguments)
    assert told.exit_code == 0, told.output
    assert "does NOT fit into 1 GiB" in told.stdout
    assert "set: train.gradient_checkpointing = true" in told.stdout
    assert 'set: train.dtype = "bfloat16"' in told.stdout
    less = invoke(folder, *arguments, "--set", "train.gradient_checkpointing=true", "--set", "train.dtype='bfloat16'")
    assert "gradient_checkpointing" not in less.stdout


def test_one_device_at_a_time(folder: Path) -> None:
    alone = invoke(folder, "train", "plan", "--tokens", "99")
    assert alone.exit_code != 0
    assert "add --gpu or --ram" in alone.output
    both = invoke(folder, "train", "plan", "--gpu", "80", "--ram", "16")
    assert both.exit_code != 0
    assert "--gpu and --ram are two devices" in both.output
