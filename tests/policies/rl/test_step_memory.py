"""The plan of an update's memory is what an update takes, and grows with the tokens of a row, not with their square."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, Qwen2Config, Qwen2ForCausalLM

from policies.errors import PolicyRefused
from policies.local.loading import computes_bfloat16
from policies.rl.optimising import OptimiserOptions
from policies.rl.step_memory import StepMemory, step_memory

SIZES = {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 4, "num_key_value_heads": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("qwen")
    Qwen2Config(vocab_size=2000, num_hidden_layers=2, **SIZES).save_pretrained(path)
    return path


def of(folder: Path, tokens: int, **settings: object) -> StepMemory:
    return step_memory(folder, OptimiserOptions.model_validate(settings), tokens)


def test_it_grows_with_the_tokens_and_not_with_their_square(folder: Path) -> None:
    for checkpointing in (False, True):
        at = [of(folder, n, gradient_checkpointing=checkpointing).activations for n in (1024, 2048, 4096)]
        assert (at[2] - at[1]) / (at[1] - at[0]) == pytest.approx(2, rel=0.02)


def test_parts_are_those_of_the_model(folder: Path) -> None:
    plain = Qwen2ForCausalLM(Qwen2Config.from_pretrained(folder))
    weights = sum(each.numel() for each in plain.parameters())
    lora, full, half = of(folder, 64, rank=8), of(folder, 64, weights="full"), of(folder, 64, dtype="bfloat16")
    assert (lora.base, full.base, half.base) == (4 * weights, 0, 2 * weights)
    layer = 8 * (256 * 3 + 128 * 2 + 256 + 2 * 256) + 8 * 3 * (256 + 1024)  # A and B of q, k, v, o, gate, up, down
    assert lora.trained == lora.gradients == 4 * 2 * layer
    assert full.trained == 4 * weights
    assert full.optimiser == pytest.approx(2 * full.trained, rel=1e-3)
    widened = not computes_bfloat16()  # then pieces in float32 come on top
    assert (half.activations > lora.activations) == widened
    assert lora.root == 4 * (2 * 2000 * 256 + 256)  # embedding, output layer, norm
    assert 2 * lora.unit + lora.root == lora.base + lora.trained
    assert lora.token == 2 * 2 * 2 * 64
    assert not lora.plain_llama
    again = of(folder, 1024, gradient_checkpointing=True)
    assert 1.5 * again.activations < of(folder, 1024).activations


def test_a_plain_llama_has_a_merged_copy_for_rollouts(tmp_path: Path) -> None:
    LlamaConfig(vocab_size=500, num_hidden_layers=1, **SIZES).save_pretrained(tmp_path)
    found = of(tmp_path, 64)
    assert found.plain_llama
    assert found.merged == found.base


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyRefused, match=r"expected a folder with config\.json"):
        of(tmp_path / "nothing", 64)


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux tells of a process")
def test_a_real_update_takes_what_was_planned(folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(1)
    Qwen2ForCausalLM(Qwen2Config.from_pretrained(folder)).save_pretrained(tmp_path)
    settings = OptimiserOptions(gradient_checkpointing=False)
    command = [sys.executable, "-m", "benchmarks.step_memory", str(tmp_path), "2048", settings.model_dump_json()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    taken = json.loads(done.stdout)["bytes"]
    assert taken == pytest.approx(step_memory(tmp_path, settings, 2048).step, rel=0.15)
