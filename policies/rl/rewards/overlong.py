"""DAPO's soft penalty for answers that come close to the limit."""

from __future__ import annotations

import numpy as np

from memory.errors import BadInput
from policies.rl.protocols import Array, Ints

__all__ = ["overlong"]


def overlong(tokens: Ints, *, limit: int, buffer: int = 4096) -> Array:
    """Return what is added to the reward: 0 up to limit - buffer, then linearly down to -1 at `limit` and beyond.

    `tokens` [n] are lengths, `limit` and `buffer` tokens.
    Assumption: an answer is cut off at `limit`, and a warning before it teaches more than a cliff at it.
    Source: DAPO, arXiv 2503.14476, soft overlong punishment. Raises `BadInput` unless 0 < buffer <= limit.
    """
    if not 0 < buffer <= limit:
        raise BadInput(f"got buffer={buffer} and limit={limit}; expected 0 < buffer <= limit, both in tokens")
    return -np.clip((tokens - (limit - buffer)) / buffer, 0.0, 1.0)
