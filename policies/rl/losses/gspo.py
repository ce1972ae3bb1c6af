"""GSPO: ratio and clip belong to the whole sequence."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from policies.rl.protocols import Aggregation
from policies.rl.ratios import drift_metrics, log_ratio, row_means, same_shape

__all__ = ["Gspo"]

LOG_LIMIT = 10.0


@dataclass(frozen=True)
class Gspo:
    """L_t = max(-s_t A, -clip(s_t, 1 - low, 1 + high) A), s = exp(mean_t log(pi / pi_old)), s_t = sg[s] pi / sg[pi].

    s_t has the value of s, and gives each token the gradient of its own log-probability. log s_t is at most 10.
    Assumption: the reward is of the sequence, so a token's own ratio is noise; hence a mean, and clips far narrower.
    Source: GSPO, arXiv 2507.18071 (the token variant). Steps of agents move more: 3e-3 and 4e-3 there.
    """

    low: float = 3e-4
    high: float = 4e-4
    aggregation: Aggregation | None = field(default="seq-mean-token-mean", init=False)

    def __call__(
        self, logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of each token [b, t] and the metrics clip_fraction and approx_kl (nats)."""
        same_shape(mask, logp, old_logp, advantages)
        change = log_ratio(logp, old_logp, mask)
        own = logp.masked_fill(~mask, 0.0)
        ratio = (own - own.detach() + row_means(change, mask).detach()).clamp(max=LOG_LIMIT).exp()
        plain = -advantages * ratio
        clipped = -advantages * ratio.clamp(1 - self.low, 1 + self.high)
        metrics = drift_metrics(clipped > plain, change, mask)
        return torch.maximum(plain, clipped).masked_fill(~mask, 0.0), metrics
