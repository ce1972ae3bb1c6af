"""PPO's clipped surrogate, with dual clip. Dr. GRPO's loss is this one aggregated by seq-mean-token-sum-norm."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from policies.rl.protocols import Aggregation
from policies.rl.ratios import drift_metrics, log_ratio, masked_mean, same_shape

__all__ = ["Ppo"]


@dataclass(frozen=True)
class Ppo:
    """L = max(-r A, -clip(r, 1 - low, 1 + high) A); where A < 0 at most -c A. r = pi / pi_old of the token.

    Assumption: pi stays near pi_old, so a token's own ratio may stand for the product of all before it.
    `dual_clip` c bounds how hard a token that became likelier is pushed down; None = no bound. low = 1, high = inf and
    no dual clip turn clipping off.
    Sources: PPO, arXiv 1707.06347, equation 7; dual clip, arXiv 1912.09729; c = 3 as in verl.
    """

    low: float = 0.2
    high: float = 0.2
    dual_clip: float | None = 3.0
    aggregation: Aggregation | None = None

    def __call__(
        self, logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of each token [b, t] and clip_fraction, dual_clip_fraction and approx_kl (nats)."""
        same_shape(mask, logp, old_logp, advantages)
        change = log_ratio(logp, old_logp, mask)
        ratio = change.exp()
        plain = -advantages * ratio
        clipped = -advantages * ratio.clamp(1 - self.low, 1 + self.high)
        loss = torch.maximum(plain, clipped)
        metrics = drift_metrics(clipped > plain, change, mask)
        if self.dual_clip is not None:
            bound = -advantages * self.dual_clip
            over = (advantages < 0) & (loss > bound)
            metrics["dual_clip_fraction"] = masked_mean(over.float(), mask)
            loss = torch.where(over, bound, loss)
        return loss.masked_fill(~mask, 0.0), metrics
