"""A frozen base held in bfloat16 and computed with in float32, for processors without instructions for bfloat16.

There a product of bf16 matrices takes some 35 times as long as one of float32. Half the memory then costs next to
nothing: each matrix is widened piece by piece as it is multiplied with, and not kept. Activations are float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from policies.errors import PolicyRefused

PIECE = 1 << 22
"""Numbers of a matrix that are widened at a time (16 MiB in float32)."""


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
