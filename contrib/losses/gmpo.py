"""GMPO: the geometric mean of a row's clipped ratios."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from policies.rl.protocols import Aggregation
from policies.rl.ratios import drift_metrics, log_ratio, row_means, same_shape

__all__ = ["Gmpo"]


@dataclass(frozen=True)
class Gmpo:
    """L_t = -A g_t, g = exp(mean_t c_t), g_t = sg[g] exp(c_t - sg[c_t]); c_t = log(pi / pi_old), at most `high` where
    A >= 0, at least -`low` where A < 0.

    g_t has the value of g, and gives each token the gradient of its own log-ratio, which is 0 where it was clipped.
    Assumption: one token with an extreme ratio should not rule its row, which an arithmetic mean lets it do; then the
    clips may be wide.
    Source: Geometric-mean policy optimisation, arXiv 2507.20673; bounds e^-.4 and e^.4 are the paper's. Deviation:
    where the advantages of a row differ, each token keeps its own; verl takes their mean.
    """

    low: float = 0.4
    high: float = 0.4
    aggregation: Aggregation | None = field(default="seq-mean-token-mean", init=False)

    def __call__(
        self, logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of each token [b, t] and the metrics clip_fraction and approx_kl (nats)."""
        same_shape(mask, logp, old_logp, advantages)
        change = log_ratio(logp, old_logp, mask)
        clipped = torch.where(advantages < 0, change.clamp(min=-self.low), change.clamp(max=self.high))
        ratio = (clipped - clipped.detach() + row_means(clipped, mask).detach()).exp()
        metrics = drift_metrics(clipped != change, change, mask)
        return (-advantages * ratio).masked_fill(~mask, 0.0), metrics
