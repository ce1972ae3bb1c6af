"""OPMD: the advantage times the log-probability, whoever sampled."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from memory.errors import BadInput
from policies.rl.protocols import Aggregation
from policies.rl.ratios import drift_metrics, log_ratio, same_shape

__all__ = ["Opmd"]


@dataclass(frozen=True)
class Opmd:
    """L = -A log pi / (1 + tau); no ratio, no clip.

    Assumption: rows may come from an older policy, or their prompt was rewritten, so that a ratio to what sampled is of
    no use; tau weighs how near to the old policy to stay, which here is a smaller step alone.
    Source: online policy mirror descent as in the released code of R3L (arXiv 2601.03715) and Trinity-RFT, tau = 1.
    Raises `BadInput` for a negative tau.
    """

    tau: float = 1.0
    aggregation: Aggregation | None = None

    def __post_init__(self) -> None:
        if not self.tau >= 0:
            raise BadInput(f"got tau={self.tau}; expected 0 or more")

    def __call__(
        self, logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of each token [b, t] and how far the policy is from the one that wrote the tokens."""
        same_shape(mask, logp, old_logp, advantages)
        change = log_ratio(logp, old_logp, mask)
        loss = -advantages.masked_fill(~mask, 0.0) * logp.masked_fill(~mask, 0.0) / (1 + self.tau)
        return loss, drift_metrics(mask.new_zeros(mask.shape), change.detach(), mask)
