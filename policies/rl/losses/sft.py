"""SFT: the policy is made to find likely what worked."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from policies.rl.protocols import Aggregation
from policies.rl.ratios import drift_metrics, log_ratio, same_shape

__all__ = ["Sft"]


@dataclass(frozen=True)
class Sft:
    """L_t = -A_t log pi(y_t): cross-entropy on tokens that were chosen, with A = 1 for each; no ratio, no clip.

    Assumption: the rows are what the policy should write; weights other than 1 count a row more or less.
    Source: maximum likelihood; SAGE (arXiv 2512.17102) begins with it, on what was sampled and succeeded.
    """

    aggregation: Aggregation | None = "token-mean"

    def __call__(
        self, logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor, /
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of each token [b, t], and how far the policy is from the one that wrote the tokens."""
        same_shape(mask, logp, old_logp, advantages)
        change = log_ratio(logp, old_logp, mask)
        loss = -advantages.masked_fill(~mask, 0.0) * logp.masked_fill(~mask, 0.0)
        return loss, drift_metrics(mask.new_zeros(mask.shape), change.detach(), mask)
