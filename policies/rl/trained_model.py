"""The model under training, what changes its weights, and the precisions that both are held and computed in.

Processors without instructions for bfloat16 need some 35 times as long for a product of bf16 matrices as for one of
float32. There a frozen base is held in bfloat16 and computed with in float32: each matrix is widened piece by piece as
it is multiplied with, and not kept. Half the memory then costs next to nothing. Activations are float32.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional
from transformers import get_scheduler

from policies.errors import PolicyRefused
from policies.local.loading import peft_package
from policies.local.products import times
from policies.rl.optimising import Dtype, OptimiserOptions

PIECE = 1 << 22
"""Numbers of a matrix that are widened at a time (16 MiB in float32)."""


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


def upcast(model: Any) -> None:
    """Make the frozen bf16 layers of a model compute in float32, in place.

    Linear layers, embeddings and layer norms; other norms multiply by a vector, which torch widens by itself. Raises
    `PolicyRefused` for other layers that hold a matrix (experts in one tensor, convolutions).
    """
    for module in model.modules():
        held = [each for each in module.parameters(recurse=False) if each.dtype is torch.bfloat16]
        if not held or any(each.requires_grad for each in held):
            continue
        if type(module) in UPCAST:
            module.__class__ = UPCAST[type(module)]
        elif any(each.ndim > 1 for each in held):
            raise PolicyRefused(
                f"this processor does not multiply bfloat16, and {type(module).__name__} cannot be widened to float32 "
                'as it computes; set train.dtype = "float32"'
            )


class UpcastLinear(torch.nn.Linear):
    """A linear layer of bf16 weights whose input and output are float32."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the product in float32."""
        product: Tensor = _Product.apply(input.float(), self.weight)
        return product if self.bias is None else product + self.bias.float()  # pyright: ignore[reportUnnecessaryComparison]


class UpcastEmbedding(torch.nn.Embedding):
    """An embedding of bf16 weights whose output is float32."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the rows in float32."""
        return super().forward(input).float()


class UpcastLayerNorm(torch.nn.LayerNorm):
    """A layer norm of bf16 weights whose input and output are float32."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the normed input in float32."""
        given: Any = (self.weight, self.bias)
        weight, bias = (None if each is None else each.float() for each in given)
        return functional.layer_norm(input.float(), self.normalized_shape, weight, bias, self.eps)


UPCAST: dict[type, type] = {
    torch.nn.Linear: UpcastLinear,
    torch.nn.Embedding: UpcastEmbedding,
    torch.nn.LayerNorm: UpcastLayerNorm,
}


class _Product(torch.autograd.Function):
    """x [..., d] times the transpose of a frozen matrix [o, d]: [..., o]. Keeps nothing but the matrix itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        rows = max(1, PIECE // weight.shape[1])
        found = x.new_empty(*x.shape[:-1], weight.shape[0])
        for at, piece in enumerate(weight.split(rows)):
            found[..., at * rows : at * rows + len(piece)] = times(x, piece.float())
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (weight,) = ctx.saved_tensors
        rows = max(1, PIECE // weight.shape[1])
        found = gradient.new_zeros(*gradient.shape[:-1], weight.shape[1])
        for part, piece in zip(gradient.split(rows, -1), weight.split(rows), strict=True):
            found += times(part, piece.float().t())
        return found, None
