"""First weights of the pocket model: a Llama that can copy before it has seen a word.

Everything pocket does is lookup: find the rule that begins like this one, say what followed it there. Transformers
learn the circuit for that ("induction": Elhage et al. 2021, Olsson et al. 2022) late, and a small one on a CPU hardly
at all. So it stands in the weights before training: giving attention its typical structure from the start is known as
mimetic initialisation (Trockman & Kolter 2023). Layer 0 has a head that attends to the previous token and notes which
it was. Layer 1 has heads that attend to where the present token was noted so, and say the token found there. Training
may change all of it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

SPREAD = 0.05
"""Standard deviation of the embeddings."""
_COPIERS = 3
_SHARPNESS, _MATCH, _GAIN = 3.5, 1.5, 0.3
_REACH = 270
"""Tokens over which rotary positions must leave a match intact."""


def initialise(model: Any, seed: int) -> None:
    """Set all weights: N(0, 1/fan_in) for matrices, 0 for those that write the residual, then the copying circuit.

    The residual stream starts as [constant 1 | identity of the token | room for the previous token, `head_dim` wide].
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.fill_(1.0)
            elif name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter.zero_()
            elif "embed" not in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * parameter.shape[1] ** -0.5)
        size = int(model.config.head_dim)
        frequencies = float(model.config.rope_parameters["rope_theta"]) ** (-torch.arange(size // 2) * 2 / size)
        layers = model.model.layers
        width = _embed(model.model.embed_tokens.weight, size, generator)
        steady = torch.nonzero(frequencies < 1 / _REACH).flatten()
        steady = torch.cat((steady, steady + size // 2))
        names = _frame(width, len(steady), generator)
        _note_previous(layers[0].self_attn, frequencies, names)
        for head in range(_COPIERS):
            _copy_found(layers[1].self_attn, head, names, steady, _frame(width, size, generator))


def _embed(weight: Tensor, room: int, generator: torch.Generator) -> int:
    """Draw embeddings of equal length; return how many dimensions identify a token."""
    width = weight.shape[1] - room - 1
    identity = torch.randn(weight.shape[0], width, generator=generator)
    weight.zero_()
    weight[:, 1 : 1 + width] = identity / identity.norm(dim=1, keepdim=True) * SPREAD * width**0.5
    weight[:, 0] = SPREAD * 3
    return width


def _frame(width: int, size: int, generator: torch.Generator) -> Tensor:
    """Return `size` orthonormal directions [size, width]."""
    return torch.linalg.qr(torch.randn(width, size, generator=generator))[0].T


def _note_previous(attention: Any, frequencies: Tensor, names: Tensor) -> None:
    """Head 0 attends one token back, by the fast rotary frequencies, and writes that token's `names` into its room."""
    size, (count, width) = 2 * len(frequencies), names.shape
    query, key, value = (_head(part, 0, size) for part in (attention.q_proj, attention.k_proj, attention.v_proj))
    fast = (frequencies > 0.1) * _SHARPNESS
    key[: len(frequencies), 0] = fast
    query[: len(frequencies), 0] = fast * frequencies.cos()
    query[len(frequencies) :, 0] = -fast * frequencies.sin()
    value[:count, 1 : 1 + width] = names
    attention.o_proj.weight[1 + width : 1 + width + count, :count] = torch.eye(count) * SPREAD


def _copy_found(attention: Any, head: int, names: Tensor, steady: Tensor, copied: Tensor) -> None:
    """`head` attends to where the present token is noted as the previous one, and adds that place's token."""
    size, (count, width) = len(copied), names.shape
    query, key, value = (_head(part, head, size) for part in (attention.q_proj, attention.k_proj, attention.v_proj))
    query[steady, 1 : 1 + width] = names * _MATCH
    key[steady, 1 + width : 1 + width + count] = torch.eye(count) * _MATCH
    value[:, 1 : 1 + width] = copied
    attention.o_proj.weight[1 : 1 + width, head * size : (head + 1) * size] = copied.T * _GAIN


def _head(projection: Any, head: int, size: int) -> Tensor:
    """Return the emptied rows of one head."""
    rows: Tensor = projection.weight[head * size : (head + 1) * size]
    return rows.zero_()
