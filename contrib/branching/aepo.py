"""AEPO: as ARPO, and the less likely the more turns before were branched from, so that one path does not take all."""

from __future__ import annotations

import numpy as np

from policies.rl.protocols import Array, Flags

__all__ = ["aepo"]


def aepo(rises: Array, draws: Array, *, weight: float = 0.2, chance: float = 0.5, penalty: float = 0.05) -> Flags:
    """Branch from a turn where (1 - u + w dH) (1 - c l) >= 1 - p; l turns on end just before it were branched from.

    Assumption: turns on end that are unsure are unsure about one and the same thing.
    Source: AEPO, arXiv 2510.14545: (a + g dH) (1 - P(l)), with ARPO's chance and P(l) = c l as released.
    Deviation: it also shares the budget between whole rollouts and branches by entropies; here the caller does.
    """
    found = np.zeros(len(rises), dtype=np.bool_)
    on_end = 0
    for at, sure in enumerate(draws - weight * rises):
        found[at] = (1 - sure) * max(0.0, 1 - penalty * on_end) >= 1 - chance
        on_end = on_end + 1 if found[at] else 0
    return found
