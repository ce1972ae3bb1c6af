"""Likelihood ratios of what the policy once wrote: the log-ratio of each token, and means over tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from memory.errors import BadInput

LIMIT = 20.0
"""Log-ratios beyond this, in nats, are cut off: e^20 is a number, e^100 soon is none."""


def same_shape(mask: Tensor, *others: Tensor) -> None:
    """Raise `BadInput` unless the mask is boolean and all have its shape [rows, tokens]: nothing is broadcast."""
    shapes = [tuple(other.shape) for other in others]
    if mask.ndim != 2 or mask.dtype != torch.bool or any(shape != tuple(mask.shape) for shape in shapes):
        raise BadInput(
            f"got a mask {tuple(mask.shape)} of {mask.dtype} with {shapes}; expected one shape [rows, tokens] for all, "
            "the mask boolean: repeat what is one value per row"
        )


def log_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """Return log pi - log pi_old [b, t] within +-20; 0 without gradient where `mask` is False."""
    return (logp - old_logp).masked_fill(~mask, 0.0).clamp(-LIMIT, LIMIT)


def masked_mean(values: Tensor, mask: Tensor) -> float:
    """Return the mean over all trained tokens, for a metric; 0 where there is none."""
    return float(values.detach().masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1))


def row_means(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over each row's trained tokens [b, 1]; 0 where there is none."""
    return values.masked_fill(~mask, 0.0).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)


def drift_metrics(clipped: Tensor, change: Tensor, mask: Tensor) -> dict[str, float]:
    """Return clip_fraction, the share of trained tokens `clipped`, and approx_kl, the mean of -`change` in nats."""
    return {"clip_fraction": masked_mean(clipped.float(), mask), "approx_kl": masked_mean(-change, mask)}


def k3(change: Tensor) -> Tensor:
    """Return exp(d) - 1 - d for d = log q - log p of tokens that p drew [n]: their mean estimates KL(p || q).

    It is never below zero, so that differences of either sign are seen (Schulman, "Approximating KL divergence", 2020).
    """
    return change.expm1() - change


def effective_share(mean: float, square: float) -> float:
    """Return Kish's effective sample size of n importance weights as a share of n: (sum w)^2 / (n sum w^2).

    `mean` is that of the weights, `square` that of their squares; 1 = all weigh the same.
    """
    return mean**2 / square
