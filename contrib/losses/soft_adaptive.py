"""SAPO: a soft gate on the ratio in the place of a clip."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from memory.errors import BadInput
from policies.rl.protocols import Aggregation
from policies.rl.ratios import drift_metrics, log_ratio, same_shape

__all__ = ["SoftAdaptive"]


@dataclass(frozen=True)
class SoftAdaptive:
    """L = -A (4 / tau) sigmoid(tau (r - 1)), tau = `positive` where A > 0, else `negative`. r = pi / pi_old.

    At r = 1 the gradient is that of REINFORCE, and it fades on both sides, for negative advantages faster.
    Assumption: a token a little beyond a bound still teaches, and a negative advantage raises the logits of many tokens
    that nobody asked for, so it has to fade sooner.
    Source: Soft adaptive policy optimisation (SAPO), arXiv 2511.20347; 1 and 1.05 as in verl and TRL. Nothing is
    clipped, so clip_fraction is 0. Raises `BadInput` for a temperature that is not above 0.
    """

    positive: float = 1.0
    negative: float = 1.05
    aggregation: Aggregation | None = field(default="seq-mean-token-mean", init=False)

    def __post_init__(self) -> None:
        if not min(self.positive, self.negative) > 0:
            raise BadInput(f"got positive={self.positive}, negative={self.negative}; expected temperatures above 0")

    def __call__(
        self, logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of each token [b, t] and the metrics clip_fraction and approx_kl (nats)."""
        same_shape(mask, logp, old_logp, advantages)
        change = log_ratio(logp, old_logp, mask)
        tau = torch.where(advantages > 0, self.positive, self.negative)
        gate = torch.sigmoid(tau * (change.exp() - 1)) * 4 / tau
        metrics = drift_metrics(torch.zeros_like(mask), change, mask)
        return (-advantages * gate).masked_fill(~mask, 0.0), metrics
