"""Products by oneDNN are those of torch, forward and backward, and the decoder says the same by either."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from policies.local import llama, products
from policies.local.llama import LlamaEngine
from policies.local.products import FrozenLinear, onednn_is_faster, packed, quicken, times
from policies.local.request import Request


@pytest.fixture(params=["AuthenticAMD", "GenuineIntel"])
def vendor(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Make this processor one of a vendor's."""
    if request.param == "AuthenticAMD" and torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip("this processor has no AVX512")
    (tmp_path / "cpuinfo").write_text(f"vendor_id\t: {request.param}\n")
    monkeypatch.setattr(products, "CPUINFO", tmp_path / "cpuinfo")
    onednn_is_faster.cache_clear()
    yield request.param
    onednn_is_faster.cache_clear()


def test_onednn_is_asked_on_processors_of_amd(vendor: str) -> None:
    assert onednn_is_faster() == (vendor == "AuthenticAMD")


@pytest.mark.usefixtures("vendor")
@pytest.mark.parametrize("shape", [(3, 64), (0, 64), (64,), (2, 5, 64)])
def test_a_product_is_that_of_torch(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(shape), torch.randn(48, 64)
    expected = functional.linear(x, weight)
    torch.testing.assert_close(times(x, weight), expected)
    torch.testing.assert_close(times(expected, weight.t()), expected @ weight)
    torch.testing.assert_close(times(x.double(), weight.double()), functional.linear(x.double(), weight.double()))


@pytest.mark.parametrize("vendor", ["AuthenticAMD"], indirect=True)
@pytest.mark.parametrize("rows", [1, 8, 300])
def test_a_packed_matrix_multiplies_as_it_does_unpacked(vendor: str, rows: int) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(rows, 64), torch.randn(48, 64)
    torch.testing.assert_close(times(x, packed(weight)), functional.linear(x, weight))


@pytest.mark.usefixtures("vendor")
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_has_the_gradients_of_torchs_own(bias: bool) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 48, bias=bias)
    x, upstream = torch.randn(7, 64, requires_grad=True), torch.randn(7, 48)
    given, made = [x, *layer.parameters()], layer(x)
    expected = torch.autograd.grad(made, given, upstream)
    quicken(layer)
    assert type(layer) is FrozenLinear
    torch.testing.assert_close(layer(x), made)
    torch.testing.assert_close(torch.autograd.grad(layer(x), given, upstream), expected)  # of trained weights too
    layer.requires_grad_(requires_grad=False)
    torch.testing.assert_close(torch.autograd.grad(layer(x), x, upstream)[0], expected[0])


def test_layers_of_another_dtype_are_left_alone() -> None:
    held = torch.nn.Linear(4, 4, dtype=torch.bfloat16)
    quicken(held)
    assert type(held) is torch.nn.Linear


def small() -> Any:
    """Return a Llama of random weights."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return LlamaForCausalLM(config).eval().requires_grad_(requires_grad=False)


def said(engine: LlamaEngine) -> list[list[int]]:
    """Return what an engine answers to two prompts."""
    return [each.tokens for each in engine.generate([Request((1, 2, 3), 12), Request((1, 2, 4, 5), 12)])]


@pytest.mark.usefixtures("vendor")
@pytest.mark.parametrize("most", [llama.PACKED_BYTES, 0])
def test_the_decoder_answers_with_the_weights_as_they_are_after_forgetting(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama, "PACKED_BYTES", most)
    model = small()
    engine = LlamaEngine(model)
    before = said(engine)
    whole = model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=12, do_sample=False, eos_token_id=None)
    assert before[0] == whole[0, 3:].tolist()
    for value in model.parameters():
        value.add_(torch.randn(value.shape) / 4)
    engine.forget()
    after = said(engine)
    whole = model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=12, do_sample=False, eos_token_id=None)
    assert after[0] == whole[0, 3:].tolist()
    assert after != before
