"""Decoding with a cache of fixed size says what a growing cache says; on a GPU it is one graph a step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM

from policies.local import static_step
from policies.local.request import Completion, Request
from policies.local.static_step import COLUMNS, columns_for, fits, rows_for
from policies.local.transformers_engine import TransformersEngine
from policies.rl.optimising import OptimiserOptions
from policies.rl.trained_model import trainable

SIZES = {
    "vocab_size": 400,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def adapted(device: str) -> Any:
    """Return a small model with an adapter that does something, as it is under training."""
    torch.manual_seed(0)
    plain = Qwen2ForCausalLM(Qwen2Config(**SIZES)).to(device).requires_grad_(requires_grad=False)
    model = trainable(plain, OptimiserOptions(dtype="float32"), widened=False).eval()
    for name, value in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(value, std=0.1)
    return model


def requests(*lengths: int, new: int = 12, seed: int = 0) -> list[Request]:
    """Return sampled requests with prompts of so many tokens, the first of them asked twice and once greedily."""
    draw = torch.Generator().manual_seed(seed)
    prompts = [tuple(torch.randint(0, 400, (length,), generator=draw).tolist()) for length in lengths]
    asked = [Request(prompt, new - at, temperature=1.0, seed=at) for at, prompt in enumerate(prompts)]
    return [*asked, Request(prompts[0], new, temperature=1.0, seed=99), Request(prompts[0], new)]


def said(done: list[Completion]) -> list[tuple[list[int], str]]:
    return [(each.tokens, each.finish_reason) for each in done]


@pytest.mark.parametrize("device", DEVICES)
def test_a_cache_of_fixed_size_changes_no_token_and_no_probability(device: str) -> None:
    model = adapted(device)
    grown, fixed = (TransformersEngine(model, static=static) for static in (False, True))
    for asked in (requests(3, 40, 90), requests(5, 2, seed=1), requests(100, 7, 7, 300, new=30, seed=2)):
        one, other = grown.generate(asked), fixed.generate(asked)
        assert said(one) == said(other)
        for ours, theirs in zip(one, other, strict=True):
            assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)
    assert len({tuple(each.tokens) for each in one}) > 4


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("static", [False, True])
def test_prompts_that_are_read_in_pieces_say_the_same(
    device: str, static: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = TransformersEngine(adapted(device), static=static)
    asked = requests(100, 7, 7, 300, new=30, seed=2)
    widths = list[int]()
    forward = engine.model.forward

    def counting(**inputs: Any) -> Any:
        widths.append(inputs["input_ids"].shape[1])
        return forward(**inputs)

    monkeypatch.setattr(engine.model, "forward", counting)
    whole = engine.generate(asked)
    assert widths[0] == 300
    widths.clear()
    monkeypatch.setattr("policies.local.transformers_engine.AT_ONCE", 150)
    pieces = engine.generate(asked)
    assert widths[:9] == [37] * 8 + [4]
    assert said(pieces) == said(whole)
    for ours, theirs in zip(pieces, whole, strict=True):
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_that_was_made_serves_batches_of_its_size_and_new_weights(device: str) -> None:
    model = adapted(device)
    engine = TransformersEngine(model, static=True)
    engine.generate(requests(200, 30))
    assert engine._steps is not None
    (first,) = engine._steps._made.values()
    before = said(engine.generate(requests(4, 9)))
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "lora_B" in name:
                value.mul_(-3.0)
    after = said(engine.generate(requests(4, 9)))
    assert list(engine._steps._made.values()) == [first]
    assert before != after == said(TransformersEngine(model, static=False).generate(requests(4, 9)))
    if device == "cuda":
        assert first._graph is not None


@pytest.mark.parametrize("device", DEVICES)
def test_what_was_recorded_gives_its_memory_to_an_update(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_step, "KEPT", 0.0)
    engine = TransformersEngine(adapted(device), static=True)
    before = said(engine.generate(requests(200, 30)))
    steps = engine._steps
    assert steps is not None
    assert steps._made
    engine.renew()
    assert steps._made, "what was recorded computes with new weights"
    engine.make_room()
    assert not steps._made
    assert said(engine.generate(requests(200, 30))) == before


def test_sizes_come_again() -> None:
    assert [rows_for(count) for count in (1, 8, 9, 64, 65)] == [8, 8, 16, 64, 128]
    assert [columns_for(tokens) for tokens in (1, COLUMNS, COLUMNS + 1)] == [COLUMNS, COLUMNS, 2 * COLUMNS]


def test_models_whose_step_depends_on_its_numbers_grow_their_cache() -> None:
    assert fits(Qwen2ForCausalLM(Qwen2Config(**SIZES)))
    assert not fits(MistralForCausalLM(MistralConfig(**SIZES, sliding_window=16)))
    turned = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    assert not fits(Qwen2ForCausalLM(Qwen2Config(**SIZES, rope_parameters=turned)))
