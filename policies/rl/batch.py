"""Rows and their advantages as arrays over the tokens that are trained, and the model's opinion of those tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from memory.errors import BadInput
from policies.rl.packing import Pack
from policies.rl.protocols import Array
from policies.rl.rows import TrainRow


@dataclass(frozen=True)
class Batch:
    """b rows of at most t trained tokens each, padded at the end."""

    tokens: Tensor
    """[b, t] ids of the tokens that the policy wrote."""
    rollout_logp: Tensor
    """[b, t] their log-probabilities when they were sampled."""
    advantages: Tensor
    """[b, t]"""
    mask: Tensor
    """[b, t] False = padding."""

    def part(self, rows: Sequence[int]) -> Batch:
        """Return some of the rows, in the given order."""
        at = torch.tensor(list(rows), device=self.mask.device)
        return Batch(self.tokens[at], self.rollout_logp[at], self.advantages[at], self.mask[at])


def batch_of(rows: Sequence[TrainRow], advantages: Sequence[Array], device: Any = "cpu") -> Batch:
    """Return rows as arrays; `advantages` holds for each row one number per span.

    Raises `BadInput` where these do not fit, or where no token is trained.
    """
    for row, given in zip(rows, advantages, strict=True):
        if len(given) != len(row.spans):
            raise BadInput(f"row of {row.trajectory_id!r} has {len(row.spans)} turns and got {len(given)} advantages")
    most = max((row.trained for row in rows), default=0)
    if not most:
        raise BadInput(f"got {len(rows)} rows without a trained token; expected rows of which the policy wrote a part")
    tokens = torch.zeros(len(rows), most, dtype=torch.long)
    logp, spread = torch.zeros(len(rows), most), torch.zeros(len(rows), most)
    mask = torch.zeros(len(rows), most, dtype=torch.bool)
    for at, (row, given) in enumerate(zip(rows, advantages, strict=True)):
        end = 0
        for span, advantage in zip(row.spans, given, strict=True):
            start, end = end, end + span.stop - span.start
            tokens[at, start:end] = torch.tensor(row.completion_ids[span.start : span.stop])
            logp[at, start:end] = torch.tensor(row.sampling_logprobs[span.start : span.stop])
            spread[at, start:end] = float(advantage)
        mask[at, :end] = True
    return Batch(*(each.to(device) for each in (tokens, logp, spread, mask)))


def score(model: Any, pack: Pack, rows: Sequence[TrainRow], batch: Batch, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the log-probability of each trained token of a pack's rows [b, t], and the entropy there (no gradient).

    `batch` holds these rows in the order of `pack.rows`; `temperature` is what they were sampled with.
    """
    device = batch.mask.device
    at = [place for row, places in zip(pack.rows, pack.before, strict=True) for place in _trained(rows[row], places)]
    logits = model(
        input_ids=torch.from_numpy(pack.ids)[None].to(device),
        position_ids=torch.from_numpy(pack.positions)[None].to(device),
        attention_mask=torch.from_numpy(pack.sees)[None, None].to(device),
        logits_to_keep=torch.tensor(at, device=device),
        use_cache=False,
    ).logits[0]
    every = torch.log_softmax(logits.float() / temperature, -1)
    chosen = every.gather(-1, batch.tokens[batch.mask][:, None])[:, 0]
    logp = torch.zeros_like(batch.rollout_logp).masked_scatter(batch.mask, chosen)
    with torch.no_grad():
        spread = -(every.exp() * every).sum(-1)
        entropy = torch.zeros_like(batch.rollout_logp).masked_scatter(batch.mask, spread)
    return logp, entropy


def _trained(row: TrainRow, places: Any) -> list[int]:
    return [int(place) for span in row.spans for place in places[span.start : span.stop]]
