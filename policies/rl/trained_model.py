"""The model under training, what changes its weights, and the precisions that both are held and computed in."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import get_scheduler

from policies.errors import PolicyRefused
from policies.local.loading import peft_package
from policies.rl.optimising import Dtype, OptimiserOptions
from policies.rl.upcasting import upcast


def held_in(settings: OptimiserOptions, *, gpu: bool | None = None) -> Dtype:
    """Return in which dtype the base is held, on a GPU or not (None: as it is here)."""
    here = torch.cuda.is_available() if gpu is None else gpu
    return settings.dtype or ("bfloat16" if here and settings.weights == "lora" else "float32")


def packed_to(settings: OptimiserOptions, *, gpu: bool | None = None) -> int:
    """Return how many tokens are computed at a time, on a GPU or not (None: as it is here)."""
    here = torch.cuda.is_available() if gpu is None else gpu
    return settings.pack_tokens or (8192 if here else 1024)


def trainable(model: Any, settings: OptimiserOptions, start: Path | None = None, *, widened: bool) -> Any:
    """Return a model as it is trained: with an adapter, new or from `start`, or with all of its weights.

    `widened`: what is held in bfloat16 is computed in float32.
    """
    if settings.weights == "full":
        made = model.requires_grad_()
    elif start is not None:
        made = peft_package().PeftModel.from_pretrained(model, str(start), is_trainable=True)
    else:
        made = peft_package().get_peft_model(model, lora(settings))
    if widened:
        upcast(made)
    if settings.gradient_checkpointing:
        _checkpoint_gradients(made)
    return made


def _checkpoint_gradients(model: Any) -> None:
    # transformers 5.24 renamed it
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    try:
        enable({"use_reentrant": False})
    except ValueError as error:
        raise PolicyRefused(f"gradient_checkpointing is true, and transformers refuses it: {error}") from error


def lora(settings: OptimiserOptions) -> Any:
    """Return peft's configuration of a new adapter. Raises `PolicyRefused` where peft is not installed."""
    return peft_package().LoraConfig(
        r=settings.rank, lora_alpha=2 * settings.rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )


def optimizer_of(model: Any, settings: OptimiserOptions) -> torch.optim.Optimizer:
    """Return the optimiser of a model's trained weights. Raises `PolicyRefused` where bitsandbytes is not installed.

    With `adamw_8bit`, weights of fewer than 4,096 numbers keep their moments in float32.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(trained, lr=settings.learning_rate, weight_decay=0.0)
    try:
        bitsandbytes: Any = import_module("bitsandbytes")
    except ModuleNotFoundError as error:
        raise PolicyRefused(
            "train.optimizer = 'adamw_8bit' needs the package bitsandbytes: pip install 'evolve-agents[bitsandbytes]'"
        ) from error
    return bitsandbytes.optim.AdamW8bit(trained, lr=settings.learning_rate, weight_decay=0.0)


def schedule_of(optimizer: Any, settings: OptimiserOptions) -> Any:
    """Return what sets the learning rate of each update; its `last_epoch` is how many were made."""
    name = "constant_with_warmup" if settings.schedule == "constant" else settings.schedule
    return get_scheduler(name, getattr(optimizer, "optimizer", optimizer), settings.warmup_updates, settings.horizon)


def precision(settings: OptimiserOptions, *, gpu: bool | None = None) -> Literal["bf16", "no"]:
    """Return the mixed precision that is computed in: bf16 on a GPU, unless `float32` was asked for; none on a CPU."""
    here = torch.cuda.is_available() if gpu is None else gpu
    return "bf16" if here and settings.dtype != "float32" else "no"
