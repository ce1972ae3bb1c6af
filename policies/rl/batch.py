"""Rows and their advantages as arrays over the tokens that are trained, and the model's opinion of those tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from memory.errors import BadInput
from policies.rl.packing import Pack
from policies.rl.protocols import Array
from policies.rl.rows import TrainRow


@dataclass(frozen=True)
class Batch:
    """b rows of at most t tokens each that are scored, padded at the end: those that are trained, and where it is asked
    for what the world answered between them."""

    tokens: Tensor
    """[b, t] ids."""
    rollout_logp: Tensor
    """[b, t] their log-probabilities when they were sampled."""
    advantages: Tensor
    """[b, t]"""
    mask: Tensor
    """[b, t] True = the policy wrote it."""
    world: Tensor | None = None
    """[b, t] True = the world answered it; None = nothing of that is scored."""

    def part(self, rows: Sequence[int]) -> Batch:
        """Return some of the rows, in the given order."""
        at = torch.tensor(list(rows), device=self.mask.device)
        world = None if self.world is None else self.world[at]
        return Batch(self.tokens[at], self.rollout_logp[at], self.advantages[at], self.mask[at], world)

    @property
    def scored(self) -> Tensor:
        """[b, t] False = padding."""
        return self.mask if self.world is None else self.mask | self.world


def batch_of(
    rows: Sequence[TrainRow], advantages: Sequence[Array] | None = None, device: Any = "cpu", *, world: bool = False
) -> Batch:
    """Return rows as arrays; `advantages` holds for each row one number per span, None = they are 0. `world`: with what
    was answered.

    Raises `BadInput` where these do not fit, or where no token is trained.
    """
    if advantages is None:
        advantages = [np.zeros(len(row.spans)) for row in rows]
    for row, given in zip(rows, advantages, strict=True):
        if len(given) != len(row.spans):
            raise BadInput(f"row of {row.trajectory_id!r} has {len(row.spans)} turns and got {len(given)} advantages")
    if not any(row.trained for row in rows):
        raise BadInput(f"got {len(rows)} rows without a trained token; expected rows of which the policy wrote a part")
    size = len(rows), max(len(row.completion_ids) if world else row.trained for row in rows)
    tokens, mask = torch.zeros(size, dtype=torch.long), torch.zeros(size, dtype=torch.bool)
    answered, logp, spread = torch.zeros_like(mask), torch.zeros(size), torch.zeros(size)
    for at, (row, given) in enumerate(zip(rows, advantages, strict=True)):
        if world:
            whole = slice(0, len(row.completion_ids))
            tokens[at, whole], answered[at, whole] = torch.tensor(row.completion_ids), True
            for span in row.skipped:
                answered[at, span.start : span.stop] = False
        end = 0
        for span, advantage in zip(row.spans, given, strict=True):
            start = span.start if world else end
            end = start + span.stop - span.start
            tokens[at, start:end] = torch.tensor(row.completion_ids[span.start : span.stop])
            logp[at, start:end] = torch.tensor(row.sampling_logprobs[span.start : span.stop])
            spread[at, start:end], mask[at, start:end], answered[at, start:end] = float(advantage), True, False
    every = (tokens, logp, spread, mask, answered) if world else (tokens, logp, spread, mask)
    return Batch(*(each.to(device) for each in every))


def filled(rows: Sequence[TrainRow], logprobs: Sequence[Sequence[float]]) -> list[TrainRow]:
    """Return the rows with those log-probabilities of their trained tokens that they do not know, in order [b, t]."""
    found: list[TrainRow] = []
    for row, own in zip(rows, logprobs, strict=True):
        known = [0.0] * len(row.completion_ids)
        for at, logp in zip(scored_places(row, world=False), own, strict=False):  # the rest of `own` is padding
            said = row.sampling_logprobs[at]
            known[at] = logp if isnan(said) else said
        found.append(row.model_copy(update={"sampling_logprobs": tuple(known)}))
    return found


NUMBERS = 1 << 25
"""Logits that are held at a time (128 MiB in float32). More are computed in parts, and once more for the gradient."""


IN_PARTS = "opinions_in_parts"
"""Under which name a model that is shared out among processes has `Split.opinions` (`rl.sharding`)."""


@dataclass(frozen=True)
class Split:
    """A model as what computes its last hidden state, the output layer over it, and what its logits go through."""

    backbone: Any
    head: Any
    scale: float = 1.0
    """Factor of the logits (Cohere, Granite)."""
    cap: float | None = None
    """Bound of the logits: cap * tanh(logits / cap) (Gemma)."""

    @classmethod
    def of(cls, plain: Any) -> Split:
        """Return the parts of a model without an adapter around it, by what its configuration says."""
        config = plain.config.get_text_config()
        scale = getattr(config, "logit_scale", None) or 1 / (getattr(config, "logits_scaling", None) or 1)
        cap = getattr(config, "final_logit_softcapping", None)
        return cls(plain.base_model, plain.get_output_embeddings(), scale, cap)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits of hidden states."""
        found = self.head(hidden)
        if self.scale != 1:
            found = found * self.scale
        return found if self.cap is None else self.cap * torch.tanh(found / self.cap)

    def opinions(
        self, inputs: dict[str, Any], places: Tensor, tokens: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Return what `_opinion` does of some places, with no more than `NUMBERS` logits at a time."""
        hidden = self.backbone(**inputs).last_hidden_state[0, places]
        return _in_parts(self.logits, hidden, tokens, temperature, max(1, NUMBERS // self.vocabulary))

    @property
    def vocabulary(self) -> int:
        """Return how many logits a token has."""
        return self.head.weight.shape[0]


@torch.no_grad()
def split(model: Any) -> Split | None:
    """Return the parts of a model, or None where its logits are not what its parts say; then they are held whole."""
    plain = model.get_base_model() if hasattr(model, "get_base_model") else model
    found = Split.of(plain)
    ids = torch.tensor([[1, 2]], device=plain.device)
    whole = model(input_ids=ids, use_cache=False).logits.float()
    parts = found.logits(found.backbone(input_ids=ids, use_cache=False).last_hidden_state).float()
    return found if torch.allclose(whole, parts, rtol=1e-4, atol=1e-4) else None


def score(
    model: Any, pack: Pack, rows: Sequence[TrainRow], batch: Batch, temperature: float, parts: Split | None = None
) -> tuple[Tensor, Tensor]:
    """Return the log-probability of each scored token of a pack's rows [b, t], and the entropy there (no gradient).

    `batch` holds these rows in the order of `pack.rows`; `temperature` is what they were sampled with. With the `parts`
    of the model no more than `NUMBERS` logits are held at a time, however many tokens are trained.
    """
    device = batch.mask.device
    world, scored = batch.world is not None, batch.scored
    at = [
        place
        for row, before in zip(pack.rows, pack.before, strict=True)
        for place in before[scored_places(rows[row], world=world)]
    ]
    places, tokens, mask = torch.tensor(at, device=device), batch.tokens[scored], pack.mask()
    inputs: dict[str, Any] = {
        "input_ids": torch.from_numpy(pack.ids)[None].to(device),
        "position_ids": torch.from_numpy(pack.positions)[None].to(device),
        "attention_mask": None if mask is None else torch.from_numpy(mask)[None, None].to(device),
        "use_cache": False,
    }
    if parts is None or len(at) * parts.vocabulary <= NUMBERS:
        chosen, spread = _opinion(model(**inputs, logits_to_keep=places).logits[0], tokens, temperature)
    else:
        chosen, spread = getattr(model, IN_PARTS, parts.opinions)(inputs, places, tokens, temperature)
    zero = torch.zeros_like(batch.rollout_logp)
    return zero.masked_scatter(scored, chosen), zero.masked_scatter(scored, spread)


def _opinion(logits: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of tokens [n] under logits [n, v], and the entropies [n] (no gradient)."""
    every = torch.log_softmax(logits.float() / temperature, -1)
    chosen = every.gather(-1, tokens[:, None])[:, 0]
    with torch.no_grad():
        return chosen, -(every.exp() * every).sum(-1)


def _in_parts(
    logits: Callable[[Tensor], Tensor], hidden: Tensor, tokens: Tensor, temperature: float, most: int
) -> tuple[Tensor, Tensor]:
    """Return what `_opinion` does of hidden states [n, d], with the logits of at most so many tokens at a time."""

    def part(states: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        return _opinion(logits(states), wanted, temperature)

    pieces = zip(hidden.split(most), tokens.split(most), strict=True)
    found: list[Any] = [checkpoint(part, states, wanted, use_reentrant=False) for states, wanted in pieces]
    return torch.cat([chosen for chosen, _ in found]), torch.cat([spread for _, spread in found])


def scored_places(row: TrainRow, *, world: bool) -> list[int]:
    """Return which tokens of a row's completion are scored in a batch that was made with `world`, or without."""
    if not world:
        return [at for span in row.spans for at in range(span.start, span.stop)]
    skipped = {at for span in row.skipped for at in range(span.start, span.stop)}
    return [at for at in range(len(row.completion_ids)) if at not in skipped]
