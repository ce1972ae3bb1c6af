"""Several rows as one sequence: what they have in common is computed once, each goes on from it as if it were alone.

Rows of a group share their prompt, often most of their tokens. A pack is a tree of tokens: every row is a path through
it, and a token attends to the tokens before it on its path and to nothing else, so the log-probabilities are those of
the rows on their own. `packable` says which models can compute one; for the others each row is a pack of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policies.rl.rows import TrainRow

FULL = "full_attention"
NOT_FULL = ("sliding_window", "attention_chunk_size", "layers_block_type", "state_size", "attention_window", "alibi")
"""Settings of models that do not attend to all tokens before, or do not attend."""
SMALL = 4096
"""Tokens up to which rows are packed whatever they share: a processor is kept busy, and the mask is no burden yet."""
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pack:
    """One sequence of `size` tokens."""

    rows: tuple[int, ...]
    """Indexes of the rows it was made of."""
    ids: Ints
    """[size]"""
    positions: Ints
    """[size] place of each token in its row."""
    paths: tuple[Ints, ...]
    """For each row, the places of its tokens. What it shares with the row before it stands once."""
    before: tuple[Ints, ...]
    """For each row, where the token before each completion token stands: the output there predicts that token."""

    @property
    def size(self) -> int:
        """How many tokens are computed."""
        return len(self.ids)

    def mask(self) -> npt.NDArray[np.bool_] | None:
        """Return which tokens (second axis) a token attends to [size, size]; None = all before it: a pack of one row.

        So nothing grows with the square of a row that is longer than a pack.
        """
        if len(self.paths) == 1:
            return None
        mask = np.zeros((self.size, self.size), dtype=bool)
        first = 0
        for path in self.paths:
            shared = int(np.searchsorted(path, first))
            mask[np.ix_(path[shared:], path[:shared])] = True
            mask[np.ix_(path[shared:], path[shared:])] = np.tri(len(path) - shared, dtype=bool)
            first = int(path[-1]) + 1
        return mask


def packable(model: Any) -> bool:
    """Tell whether a model attends as a pack's mask says: in each layer to all tokens before, by `sdpa`.

    transformers gives a 4-D mask to every layer as it is, so that windows and chunks of attention are lost, layers
    without attention pass their state on from row to row, and `eager` adds the mask to the scores as numbers.
    """
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    full = set(kinds) == {FULL} if kinds else not any(getattr(config, name, None) for name in NOT_FULL)
    return full and config._attn_implementation == "sdpa"


def packs(rows: Sequence[TrainRow], most: int) -> tuple[Pack, ...]:
    """Return packs of at most `most` tokens that hold each row once; a row that is longer has a pack of its own.

    Beyond `SMALL` tokens a row joins only a pack whose last row it shares half of its tokens with. With a mask every
    token is compared with every other, and no kernel for causal attention is used; that costs more than less saves.
    """
    whole = [(*row.prompt_ids, *row.completion_ids) for row in rows]
    groups: list[list[int]] = []
    size = 0
    for at in sorted(range(len(rows)), key=lambda n: whole[n]):
        shared = common(whole[groups[-1][-1]], whole[at]) if groups else 0
        new = len(whole[at]) - shared
        if not groups or size + new > (most if 2 * shared >= len(whole[at]) else min(most, SMALL)):
            groups.append([])
            size, new = 0, len(whole[at])
        groups[-1].append(at)
        size += new
    return tuple(_pack([whole[at] for at in group], rows, group) for group in groups)


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many tokens two sequences have in common at their beginning."""
    limit = min(len(a), len(b))
    return next((at for at in range(limit) if a[at] != b[at]), limit)


def _pack(whole: Sequence[tuple[int, ...]], rows: Sequence[TrainRow], group: Sequence[int]) -> Pack:
    ids: list[int] = []
    positions: list[int] = []
    paths: list[Ints] = []
    for n, tokens in enumerate(whole):
        shared = common(whole[n - 1], tokens) if n else 0
        fresh = np.arange(len(ids), len(ids) + len(tokens) - shared)
        paths.append(np.concatenate((paths[-1][:shared], fresh)) if n else fresh)
        ids += tokens[shared:]
        positions += range(shared, len(tokens))
    before = [path[len(rows[at].prompt_ids) - 1 : -1] for path, at in zip(paths, group, strict=True)]
    return Pack(tuple(group), np.array(ids), np.array(positions), tuple(paths), tuple(before))
