"""Masked importance sampling: what engine and trainer disagree on too far is not trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from memory.errors import BadInput
from policies.rl.ratios import LIMIT, log_ratio, same_shape

__all__ = ["Masking"]


@dataclass(frozen=True)
class Masking:
    """w = rho where low <= rho <= high, else 0; rho = pi_old / pi_rollout of each token, or its product over the row.

    Assumption: a ratio that is far off tells of another computation, not of learning, and a wrong weight is worse than
    none. At the level of sequences one token can cost its whole row.
    Source: masked importance sampling as in TRL (`sequence_mask`, `token_mask`; from 0 to 3, of sequences, are its
    defaults) and verl's note on rollout corrections (.5 to 2). The trainer counts what is left out: `masked_share`.
    Raises `BadInput` unless 0 <= low < high.
    """

    level: Literal["token", "sequence"] = "sequence"
    low: float = 0.0
    high: float = 3.0

    def __post_init__(self) -> None:
        if self.level not in ("token", "sequence") or not 0 <= self.low < self.high:
            raise BadInput(
                f"got level={self.level!r}, low={self.low}, high={self.high}; expected 'token' or 'sequence', and "
                "0 <= low < high"
            )

    def __call__(self, old_logp: Tensor, rollout_logp: Tensor, mask: Tensor) -> Tensor:
        """Return the weights [b, t] without gradient, 0 where `mask` is False and where rho is out of bounds."""
        same_shape(mask, old_logp, rollout_logp)
        change = log_ratio(old_logp.detach(), rollout_logp.detach(), mask)
        if self.level == "sequence":
            change = change.sum(-1, keepdim=True).clamp(-LIMIT, LIMIT).expand_as(change)
        ratio = change.exp()
        return ratio.masked_fill(~mask | (ratio < self.low) | (ratio > self.high), 0.0)
