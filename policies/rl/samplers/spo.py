"""Prompts whose outcome is least certain come most often."""

from __future__ import annotations

import numpy as np

from policies.rl.protocols import Array, PromptStats

__all__ = ["spo"]

FLOOR = 0.05


def spo(stats: PromptStats) -> Array:
    """w = sqrt(v (1 - v)) + 0.05, v the tracker's value.

    Assumption: a prompt teaches as much as its reward varies; the floor keeps solved and hopeless ones in play.
    Source: Single-stream policy optimisation, arXiv 2509.13232.
    """
    return np.sqrt(stats.rates * (1 - stats.rates)) + FLOOR
