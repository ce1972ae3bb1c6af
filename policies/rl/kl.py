"""Estimates of KL(pi || pi_ref) from the sampled tokens' log-probabilities, d = log pi - log pi_ref.

    k1   d                      unbiased, may be negative
    abs  |d|
    mse  d^2 / 2                (k2) biased, low variance
    k3   exp(-d) - 1 + d        unbiased and never negative; at most 10, so one token cannot rule the batch

Assumption: the tokens were drawn from pi. As a loss, k1 has a gradient of mean 0 and mse the right one in expectation.
Source: Schulman, Approximating KL divergence (2020); the bound as in verl's low_var_kl.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from memory.errors import BadInput
from policies.rl.ratios import LIMIT

Estimator = Literal["k1", "abs", "mse", "k3"]
BOUND = 10.0


def kl(logp: Tensor, ref_logp: Tensor, estimator: Estimator = "k3") -> Tensor:
    """Return the estimate of each token [b, t], in nats. Raises `BadInput` for an unknown estimator."""
    difference = logp - ref_logp
    if estimator == "k1":
        return difference
    if estimator == "abs":
        return difference.abs()
    if estimator == "mse":
        return difference.square() / 2
    if estimator == "k3":
        difference = difference.clamp(-LIMIT, LIMIT)
        return ((-difference).exp() - 1 + difference).clamp(max=BOUND)
    raise BadInput(f"got estimator {estimator!r}; expected k1, abs, mse or k3")
