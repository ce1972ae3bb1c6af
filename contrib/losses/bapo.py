"""BAPO: bounds of the clip that give what went well its share of the update."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from memory.errors import BadInput
from policies.rl.losses.ppo import Ppo
from policies.rl.protocols import Aggregation
from policies.rl.ratios import log_ratio, same_shape

__all__ = ["Bapo"]


@dataclass(frozen=True)
class Bapo:
    """`Ppo` with the ratio clipped to [lower, upper], found so that rho >= target or both are at their ends.

    rho = sum_{A >= 0} min(r, upper) A / sum_{A < 0} max(r, lower) |A|. While it is below `target`, `lower` rises by
    `step` to `most_lower`, then `upper` to `most_upper`. Without a negative advantage nothing is searched.
    Assumption: negative advantages are many and push entropy down, so the positive ones need room in return.
    Source: BAPO, arXiv 2510.18927; ends and start of the released code (the paper's ends: .9 and 3). The sums are over
    what the loss is given: the trainer computes a batch in packs, and each pack has bounds of its own; `pack_tokens` as
    large as a batch makes them one. Raises `BadInput` for bounds that are not 0 < lower <= most_lower <= 1 <= upper <=
    most_upper, and a step that is not above 0.
    """

    lower: float = 0.6
    upper: float = 1.2
    most_lower: float = 0.8
    most_upper: float = 2.0
    step: float = 0.05
    target: float = 1.0
    dual_clip: float | None = 3.0
    aggregation: Aggregation | None = None

    def __post_init__(self) -> None:
        if not (0 < self.lower <= self.most_lower <= 1 <= self.upper <= self.most_upper and self.step > 0):
            raise BadInput(f"got {self}; expected 0 < lower <= most_lower <= 1 <= upper <= most_upper and a step > 0")

    def __call__(
        self, logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of each token [b, t], the metrics of `Ppo`, and the bounds lower and upper."""
        same_shape(mask, logp, old_logp, advantages)
        ratio = log_ratio(logp, old_logp, mask).detach().exp()[mask]
        lower, upper = self._bounds(ratio, advantages[mask])
        loss, metrics = Ppo(1 - lower, upper - 1, self.dual_clip)(logp, old_logp, advantages, mask)
        return loss, metrics | {"lower": lower, "upper": upper}

    def _bounds(self, ratio: Tensor, advantages: Tensor) -> tuple[float, float]:
        """Return the bounds for the trained tokens of a batch [tokens]."""
        lower, upper = self.lower, self.upper
        while balance(ratio, advantages, lower, upper) < self.target:
            if lower < self.most_lower:
                lower = min(lower + self.step, self.most_lower)
            elif upper < self.most_upper:
                upper = min(upper + self.step, self.most_upper)
            else:
                break
        return lower, upper


def balance(ratio: Tensor, advantages: Tensor, lower: float, upper: float) -> float:
    """Return rho of some tokens [tokens] under given bounds; infinite where no advantage is negative."""
    good = advantages >= 0
    positive = float((ratio.clamp(max=upper) * advantages)[good].sum())
    negative = -float((ratio.clamp(min=lower) * advantages)[~good].sum())
    return positive / negative if negative > 0 else math.inf
