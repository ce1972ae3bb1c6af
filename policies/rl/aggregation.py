"""How token losses become one number. Every way is a weight for each token, so a batch can be cut into parts.

    token-mean               1 / T              T = trained tokens of the batch
    seq-mean-token-sum       1 / B              B = rows with a trained token
    seq-mean-token-mean      1 / (B T_i)        T_i = trained tokens of the row
    seq-mean-token-sum-norm  1 / (B L_max)      L_max = a constant of the run, `max_tokens`

The loss of a part is the sum of loss x weight, with the weights of the whole batch; then the gradients of the parts add
up to that of the batch. Sources: DAPO, arXiv 2503.14476 (token-mean); GRPO, arXiv 2402.03300 (seq-mean-token-mean);
Dr. GRPO, arXiv 2503.20783 (norm). Deviation: verl's norm divides by the padded length for L_max, and not by B.
"""

from __future__ import annotations

from torch import Tensor

from memory.errors import BadInput
from policies.rl.protocols import Aggregation

WAYS = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")


def token_weights(mask: Tensor, way: Aggregation, max_tokens: int | None = None) -> Tensor:
    """Return a weight for each token [b, t], 0 where `mask` is False.

    Raises `BadInput` for an unknown way, a batch without trained tokens, and a norm without `max_tokens`.
    """
    if way not in WAYS:
        raise BadInput(f"got aggregation {way!r}; expected one of {', '.join(WAYS)}")
    if not mask.any():
        raise BadInput("got a batch without a trained token; drop it, or check the loss mask")
    weights = mask.float()
    tokens = weights.sum(-1, keepdim=True)
    if way == "token-mean":
        return weights / tokens.sum()
    weights = weights / (tokens > 0).sum()
    if way == "seq-mean-token-mean":
        return weights / tokens.clamp(min=1)
    if way == "seq-mean-token-sum":
        return weights
    if max_tokens is None or max_tokens < 1:
        raise BadInput(f"got max_tokens={max_tokens!r}; {way} expects the run's limit on trained tokens of a row")
    return weights / max_tokens


def aggregate(loss: Tensor, mask: Tensor, way: Aggregation, max_tokens: int | None = None) -> Tensor:
    """Return the sum of loss x weight over a whole batch [b, t]. Raises as `token_weights`."""
    return (loss.masked_fill(~mask, 0.0) * token_weights(mask, way, max_tokens)).sum()
