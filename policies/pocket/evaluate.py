"""Held-out figures by role: cross-entropy of all tokens and the share of assistant turns a greedy decoder gets exactly
right when the earlier turns are the reference ones. Says nothing about success in an environment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from policies.pocket.corpus import ASSISTANT, END, ROLES, Array, Documents, batches


def held_out_figures(
    forward: Callable[[Tensor], tuple[Tensor, Tensor]], documents: Documents, *, tokens: int, limit: int, device: str
) -> dict[str, dict[str, float]]:
    """Return {role: {loss, exact_turns, documents}} over at most `limit` batches of `tokens`, always the same ones."""
    sums = {role: np.zeros(5) for role in ROLES}
    for rows, width in batches(documents, tokens=tokens, seed=0, epoch=0)[:limit]:
        batch = documents.padded(rows, width)
        with torch.no_grad():
            loss, hit = (x.float().cpu().numpy() for x in forward(torch.from_numpy(batch.ids).to(device)))
        real = np.arange(1, width)[None] < documents.lengths[rows][:, None]
        right, turns = exact_turns(batch.ids, hit)
        for i, role in enumerate(batch.roles):
            sums[ROLES[role]] += (float((loss[i] * real[i]).sum()), real[i].sum(), right[i], turns[i], 1)
    return {
        role: {"loss": float(s[0] / s[1]), "exact_turns": float(s[2] / max(s[3], 1)), "documents": int(s[4])}
        for role, s in sums.items()
        if s[4]
    }


def exact_turns(ids: Array, hit: Array) -> tuple[Any, Any]:
    """Return per row how many assistant turns were predicted without one miss, and how many there are.

    `ids` [rows, length]; `hit` [rows, length - 1], position i is about token i + 1. A turn runs to its end token.
    """
    right, turns = np.zeros(len(ids), int), np.zeros(len(ids), int)
    for row, (tokens, hits) in enumerate(zip(ids, hit, strict=True)):
        ends = np.flatnonzero(tokens == END)
        for begin in np.flatnonzero(tokens == ASSISTANT):
            later = ends[ends > begin]
            if len(later):
                turns[row] += 1
                right[row] += bool(hits[begin : later[0]].all())
    return right, turns
