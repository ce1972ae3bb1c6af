"""CISPO: the importance weight is clipped, the gradient of the token is not."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from policies.rl.protocols import Aggregation
from policies.rl.ratios import drift_metrics, log_ratio, same_shape

__all__ = ["Cispo"]


@dataclass(frozen=True)
class Cispo:
    """L = -sg[clip(r, 1 - low, 1 + high)] A log pi, r = pi / pi_old of the token.

    Assumption: rare tokens that turn a line of thought are clipped first and matter most, so no token may lose its
    gradient; a bounded weight is enough against variance.
    Source: MiniMax-M1, arXiv 2506.13585, without a lower bound (low = 1), as there and in TRL; verl's is low = 0.2.
    """

    low: float = 1.0
    high: float = 0.28
    aggregation: Aggregation | None = None

    def __call__(
        self, logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of each token [b, t] and the metrics clip_fraction and approx_kl (nats)."""
        same_shape(mask, logp, old_logp, advantages)
        change = log_ratio(logp, old_logp, mask)
        ratio = change.detach().exp()
        weight = ratio.clamp(1 - self.low, 1 + self.high)
        metrics = drift_metrics(weight != ratio, change, mask)
        return (-weight * advantages * logp.masked_fill(~mask, 0.0)).masked_fill(~mask, 0.0), metrics
