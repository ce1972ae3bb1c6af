"""Products with frozen matrices, in float32 on a CPU by what is fastest there.

torch leaves them to MKL, which uses no AVX512 on AMD's processors. oneDNN, which torch holds as well, does: there it
takes half the time, and a quarter for a few rows where the matrix was packed before (docs/LOG.md).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

CPUINFO = Path("/proc/cpuinfo")


@cache
def onednn_is_faster() -> bool:
    """Return whether this is a processor of AMD's with AVX512, and torch offers oneDNN's product of matrices."""
    return (
        torch.backends.cpu.get_cpu_capability() == "AVX512"
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and CPUINFO.exists()
        and "AuthenticAMD" in CPUINFO.read_text(encoding="utf-8")
    )


def left_to_onednn(x: Tensor) -> bool:
    """Return whether products of this are computed by oneDNN."""
    return x.device.type == "cpu" and x.dtype is torch.float32 and onednn_is_faster()


def times(x: Tensor, weight: Tensor) -> Tensor:
    """Return x [..., d] times the transpose of a matrix [o, d]: [..., o], without a gradient.

    The matrix may be a transposed view, or come from `packed`.
    """
    if not left_to_onednn(x):
        return functional.linear(x, weight)
    return torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")


def packed(weight: Tensor) -> Tensor:
    """Return a copy of a matrix [o, d] laid out for oneDNN, for `times` alone."""
    return torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_FOR)


PACKED_FOR = 8
"""Rows that a packed matrix is laid out for; with others it is as fast as if it had been packed for them."""


def quicken(model: torch.nn.Module) -> None:
    """Have the linear layers of a float32 model on this CPU computed by `times`, in place."""
    for module in model.modules():
        if type(module) is torch.nn.Linear and module.weight.dtype is torch.float32:
            module.__class__ = FrozenLinear


class FrozenLinear(torch.nn.Linear):
    """A linear layer that is computed by `times` as long as its weights are frozen."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the product."""
        if self.weight.requires_grad:
            return super().forward(input)
        product: Tensor = FrozenProduct.apply(input, self.weight)
        return product if self.bias is None else product + self.bias  # pyright: ignore[reportUnnecessaryComparison]


class FrozenProduct(torch.autograd.Function):
    """`times` with the gradient of x. Keeps nothing but the matrix itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return times(x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (weight,) = ctx.saved_tensors
        return times(gradient, weight.t()), None
