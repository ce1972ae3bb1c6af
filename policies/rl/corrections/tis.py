"""Truncated importance sampling: what the engine found likelier than the trainer does counts less."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from memory.errors import BadInput
from policies.rl.ratios import LIMIT, log_ratio, same_shape

__all__ = ["Tis"]


@dataclass(frozen=True)
class Tis:
    """w = min(pi_old / pi_rollout, cap), of each token or (`level="sequence"`) of the product over the row's tokens.

    pi_rollout drew the tokens, pi_old is what the trainer scores them with; pi / pi_old stays with the loss.
    Assumption: both are one policy computed with other kernels, precision or a few updates apart; the cap trades bias
    for variance, which grows with the length of a row at the level of sequences.
    Source: decoupled PPO as in verl's note on rollout corrections, w = min(pi_old / pi_rollout, C) without gradient;
    cap 3 as in TRL.
    """

    level: Literal["token", "sequence"] = "token"
    cap: float = 3.0

    def __post_init__(self) -> None:
        if self.level not in ("token", "sequence") or not self.cap > 0:
            raise BadInput(
                f"got level={self.level!r}, cap={self.cap}; expected 'token' or 'sequence', and a cap above 0"
            )

    def __call__(self, old_logp: Tensor, rollout_logp: Tensor, mask: Tensor) -> Tensor:
        """Return the weights [b, t] without gradient, 0 where `mask` is False."""
        same_shape(mask, old_logp, rollout_logp)
        change = log_ratio(old_logp.detach(), rollout_logp.detach(), mask)
        if self.level == "sequence":
            change = change.sum(-1, keepdim=True).clamp(-LIMIT, LIMIT).expand_as(change)
        return change.exp().clamp(max=self.cap).masked_fill(~mask, 0.0)
