"""Choosing the next token of every row, from its own logits and seed alone, never from what else is in its batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from policies.local.request import Completion


def advance(rows: Sequence[Completion], logits: Tensor) -> list[int]:
    """Add one token to every row, given `logits` [rows, vocabulary]; return those tokens.

    Greedy rows report log softmax(logits); sampled ones the log-probability after temperature and top-p.
    Sampling inverts the cumulative distribution at one uniform number per row and token.
    """
    logits = logits.float()
    temperatures = [row.request.temperature for row in rows]
    if not any(temperatures):
        tokens = logits.argmax(-1)
        logprobs = torch.log_softmax(logits, -1).gather(1, tokens[:, None])[:, 0]
    else:
        scale = torch.tensor([t or 1.0 for t in temperatures], device=logits.device)
        probs = torch.softmax(logits.double() / scale[:, None], -1)
        probs = _nucleus(probs, [row.request.top_p if row.request.temperature else 1.0 for row in rows])
        uniform = torch.tensor([[row.noise.random()] for row in rows], device=logits.device, dtype=torch.float64)
        cumulative = probs.cumsum(-1)
        sampled = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)[:, 0]
        greedy = torch.tensor([not t for t in temperatures], device=logits.device)
        tokens = torch.where(greedy, logits.argmax(-1), sampled.clamp_max(logits.shape[1] - 1))
        logprobs = probs.gather(1, tokens[:, None])[:, 0].log()
    chosen: list[int] = tokens.tolist()
    for row, token, logprob in zip(rows, chosen, logprobs.tolist(), strict=True):
        row.add(token, logprob)
    return chosen


def _nucleus(probs: Tensor, top_p: Sequence[float]) -> Tensor:
    """Keep the most likely tokens until their mass reaches top_p (the one that crosses it included)."""
    if min(top_p) >= 1.0:
        return probs
    limit = torch.tensor(top_p, device=probs.device, dtype=probs.dtype)[:, None]
    ordered, index = torch.sort(probs, dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.zeros_like(probs).scatter(1, index, torch.where((before < limit) | (limit >= 1.0), ordered, 0.0))
    return kept / kept.sum(-1, keepdim=True)
