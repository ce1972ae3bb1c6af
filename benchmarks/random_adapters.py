"""LoRA adapters with small random weights, made by peft: they change what a model says and need no training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from policies.local.loading import load_model, peft_package

TARGETS = ("q_proj", "v_proj", "o_proj", "down_proj")


def random_adapter(model: Path, directory: Path, seed: int, *, scale: float = 0.05, **settings: Any) -> Path:
    """Write the adapter of a seed for a model's directory and return where it is.

    `scale`: standard deviation of the matrices B, which peft begins at zero. `settings` go to `LoraConfig`.
    """
    torch.manual_seed(seed)
    plain = {"r": 4, "lora_alpha": 8, "target_modules": list(TARGETS), "task_type": "CAUSAL_LM"}
    peft = peft_package()
    with torch.no_grad():
        adapted = peft.get_peft_model(load_model(str(model), None), peft.LoraConfig(**(plain | settings)))
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.normal_(0.0, scale)
        adapted.save_pretrained(directory)
    return directory
