"""Weights that are held in bfloat16 compute what the same numbers in float32 do, forward and backward."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from policies.errors import PolicyRefused
from policies.rl import trained_model
from policies.rl.trained_model import upcast


@pytest.mark.parametrize("piece", [trained_model.PIECE, 200])
def test_forward_and_gradient_are_those_of_float32(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        trained_model, "PIECE", piece
    )  # 200: matrices are widened in several pieces, the last one smaller
    torch.manual_seed(1)
    config = Qwen2Config(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    held: Any = Qwen2ForCausalLM(config).to(torch.bfloat16).requires_grad_(requires_grad=False)
    for name, value in held.named_parameters():
        if name.endswith("bias"):
            value.normal_()
    wide = copy.deepcopy(held).float()
    upcast(held)
    assert {value.dtype for value in held.parameters()} == {torch.bfloat16}
    ids = torch.randint(0, 50, (2, 9))
    torch.testing.assert_close(held(input_ids=ids).logits, wide(input_ids=ids).logits, rtol=0, atol=1e-5)
    seen = torch.randn(2, 9, 32)
    gradients: list[Any] = []
    for model in (held, wide):
        given = seen.clone().requires_grad_()
        model(inputs_embeds=given).logits.square().sum().backward()
        gradients.append(given.grad)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


def test_a_layer_that_cannot_be_widened_is_refused_and_a_norm_is_widened() -> None:
    norm = torch.nn.LayerNorm(4, dtype=torch.bfloat16).requires_grad_(requires_grad=False)
    upcast(norm)
    seen = torch.randn(2, 4)
    torch.testing.assert_close(norm(seen), torch.nn.functional.layer_norm(seen, (4,)))
    experts = torch.nn.Conv1d(4, 4, 1, dtype=torch.bfloat16).requires_grad_(requires_grad=False)
    with pytest.raises(PolicyRefused, match=r'Conv1d cannot be widened .* set train\.dtype = "float32"'):
        upcast(torch.nn.ModuleList([norm, experts]))


def test_what_is_trained_or_in_float32_is_left_alone() -> None:
    trained = torch.nn.Linear(4, 4, dtype=torch.bfloat16)
    wide = torch.nn.Linear(4, 4).requires_grad_(requires_grad=False)
    upcast(torch.nn.ModuleList([trained, wide]))
    assert type(trained) is type(wide) is torch.nn.Linear
