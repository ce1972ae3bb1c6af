"""AEPO's clip: a token that became likelier than the clip allows keeps its gradient."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from policies.rl.losses.ppo import Ppo
from policies.rl.ratios import log_ratio

__all__ = ["Aepo"]


@dataclass(frozen=True)
class Aepo(Ppo):
    """The loss of `Ppo`, but -A (1 + high) r / sg[r] where A > 0 and r > 1 + high.

    The value is the same; the gradient is that of a ratio of 1 + high, where PPO has none.
    Assumption: tokens of high entropy turn a line of thought, move fast and are clipped first.
    Source: AEPO, arXiv 2510.14545, entropy clipping-balanced mechanism of the released code; c = 3 as there.
    """

    def __call__(
        self, logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of each token [b, t] and the metrics of `Ppo`; what was clipped above counts as clipped."""
        loss, metrics = super().__call__(logp, old_logp, advantages, mask)
        change = log_ratio(logp, old_logp, mask)
        over = mask & (advantages > 0) & (change.detach().exp() > 1 + self.high)
        kept = -advantages * (1 + self.high) * (change - change.detach()).exp()
        return torch.where(over, kept, loss).masked_fill(~mask, 0.0), metrics
