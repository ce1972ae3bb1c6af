"""A least-recently-used cache of attention keys and values, in blocks of 32 tokens that know their prefix.

Prompts of one episode extend each other and prompts of one deployment start alike; what was computed once is copied.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import count

from torch import Tensor

BLOCK = 32
Key = tuple[int, tuple[int, ...]]


class BlockCache:
    """Blocks keyed by (id of the preceding block, tokens); holds at most `tokens` tokens."""

    def __init__(self, tokens: int) -> None:
        self.capacity = tokens // BLOCK
        self._blocks: OrderedDict[Key, tuple[int, Tensor]] = OrderedDict()
        self._ids = count(1)

    def lookup(self, tokens: Sequence[int]) -> list[Tensor]:
        """Return the longest run of cached blocks that starts `tokens`; each block is [layers, 2, heads, 32, size]."""
        found: list[Tensor] = []
        parent = 0
        for begin in range(0, len(tokens) - BLOCK + 1, BLOCK):
            key = (parent, tuple(tokens[begin : begin + BLOCK]))
            if key not in self._blocks:
                break
            self._blocks.move_to_end(key)
            parent, block = self._blocks[key]
            found.append(block)
        return found

    def store(self, tokens: Sequence[int], state: Tensor, first: int) -> None:
        """Keep the whole blocks of `tokens` that begin at or after `first`; `state` [layers, 2, heads, n, size] starts
        at token `first` rounded down to a block. Blocks before it must be cached, else nothing is kept."""
        parent = 0
        origin = first // BLOCK * BLOCK
        for begin in range(0, len(tokens) - BLOCK + 1, BLOCK):
            key = (parent, tuple(tokens[begin : begin + BLOCK]))
            if key in self._blocks:
                self._blocks.move_to_end(key)
                parent = self._blocks[key][0]
                continue
            if begin < origin:
                return
            block = state[:, :, :, begin - origin : begin - origin + BLOCK].clone()
            parent = next(self._ids)
            self._blocks[key] = (parent, block)
        while len(self._blocks) > self.capacity:
            self._blocks.popitem(last=False)

    def clear(self) -> None:
        """Forget all blocks."""
        self._blocks.clear()
