"""A frozen base held in bfloat16 and computed with in float32, for processors without instructions for bfloat16.

There a product of bf16 matrices takes some 35 times as long as one of float32. Half the memory then costs next to
nothing: each matrix is widened piece by piece as it is multiplied with, and not kept. Activations are float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

PIECE = 1 << 22
"""Numbers of a matrix that are widened at a time (16 MiB in float32)."""


def upcast(model: Any) -> None:
    """Make the frozen bf16 layers of a model compute in float32, in place.

    Linear layers and embeddings; norms multiply by a vector, which torch widens by itself.
    """
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if not isinstance(weight, Tensor) or weight.dtype is not torch.bfloat16 or weight.requires_grad:
            continue
        if type(module) in UPCAST:
            module.__class__ = UPCAST[type(module)]


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


UPCAST: dict[type, type] = {torch.nn.Linear: UpcastLinear, torch.nn.Embedding: UpcastEmbedding}


class _Product(torch.autograd.Function):
    """x [..., d] times the transpose of a frozen matrix [o, d]: [..., o]. Keeps nothing but the matrix itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        rows = max(1, PIECE // weight.shape[1])
        found = x.new_empty(*x.shape[:-1], weight.shape[0])
        for at, piece in enumerate(weight.split(rows)):
            found[..., at * rows : at * rows + len(piece)] = functional.linear(x, piece.float())
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (weight,) = ctx.saved_tensors
        rows = max(1, PIECE // weight.shape[1])
        found = gradient.new_zeros(*gradient.shape[:-1], weight.shape[1])
        for part, piece in zip(gradient.split(rows, -1), weight.split(rows), strict=True):
            found += part @ piece.float()
        return found, None
