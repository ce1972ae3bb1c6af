"""Which models can compute a pack, and that the others compute each row by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, LlamaConfig, MistralConfig, Qwen2Config

from policies.rl.batch import batch_of
from policies.rl.losses.ppo import Ppo
from policies.rl.optimising import OptimiserOptions
from policies.rl.packing import packable, packs
from policies.rl.trainer import Trainer
from tests.policies.rl.test_trainer import ADVANTAGES, ROWS, row

SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}
WINDOW: dict[str, Any] = {"sliding_window": 3}
CONFIGS = {
    "llama": (LlamaConfig(**SIZES), True),
    "llama, eager": (LlamaConfig(**SIZES, attn_implementation="eager"), False),
    "mistral without a window": (MistralConfig(**SIZES, sliding_window=None), True),
    "mistral": (MistralConfig(**SIZES, **WINDOW), False),
    "qwen2": (Qwen2Config(**SIZES), True),
    "qwen2 with a window": (Qwen2Config(**SIZES, **WINDOW, use_sliding_window=True, max_window_layers=1), False),
    "gemma2": (Gemma2Config(**SIZES, **WINDOW, head_dim=16), False),
}


@pytest.mark.parametrize(
    ("length", "shared", "sizes"),
    [
        (1000, 0, [4000, 1000]),
        (3000, 100, [3000] * 5),
        (3000, 1499, [3000] * 5),
        (3000, 1500, [7500, 3000]),
        (9000, 8999, [9000] * 5),
    ],
    ids=["short rows", "long rows", "that share less than half", "or half of their tokens", "longer than a pack"],
)
def test_long_rows_have_a_mask_only_where_they_share_half_of_their_tokens(
    length: int, shared: int, sizes: list[int]
) -> None:
    begun = tuple(range(shared))
    rows = [row([7], prompt=(*begun, *[10**6 + at] * (length - shared - 1))) for at in range(5)]
    made = packs(rows, 8192)
    assert [pack.size for pack in made] == sizes
    assert sorted(at for pack in made for at in pack.rows) == list(range(5))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_row_is_as_likely_in_a_batch_as_alone_whatever_the_model_attends_to(name: str, tmp_path: Path) -> None:
    config, fits = CONFIGS[name]
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config)
    assert packable(model) is fits
    model.save_pretrained(tmp_path)
    with Trainer(tmp_path, Ppo(), OptimiserOptions(rank=4, dtype="float32", pack_tokens=64)) as trainer:
        assert len(packs(ROWS, 64)) == 1
        together = trainer.logprobs(ROWS, batch_of(ROWS, ADVANTAGES))
        for at, (row, advantage) in enumerate(zip(ROWS, ADVANTAGES, strict=True)):
            alone = trainer.logprobs([row], batch_of([row], [advantage]))[0]
            assert torch.allclose(together[at, : len(alone)], alone, atol=1e-5)
