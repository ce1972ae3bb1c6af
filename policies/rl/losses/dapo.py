"""DAPO: PPO's surrogate with more room upwards, every token of the batch weighing the same."""

from __future__ import annotations

from dataclasses import dataclass

from policies.rl.losses.ppo import Ppo
from policies.rl.protocols import Aggregation

__all__ = ["Dapo"]


@dataclass(frozen=True)
class Dapo(Ppo):
    """The loss of `Ppo` with high = .28 (clip higher) and token-mean; no KL.

    Assumption: unlikely tokens need room to grow or entropy collapses, and long answers should weigh by their length.
    The rest of DAPO are the filters `zero_variance` and `overlong`; its reward for length is not here.
    Source: DAPO, arXiv 2503.14476. Deviation: dual clip stays on, as in verl; None is the paper.
    """

    high: float = 0.28
    aggregation: Aggregation | None = "token-mean"
