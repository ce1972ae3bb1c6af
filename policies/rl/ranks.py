"""Rank of this process in a training, by what `torchrun` puts into the environment. Without torch."""

from __future__ import annotations

import os


def rank() -> int:
    """Return the number of this process; the first is 0, and so is one that is alone."""
    return int(os.environ.get("RANK", "0")) if world_size() > 1 else 0


def world_size() -> int:
    """Return how many processes there are."""
    return int(os.environ.get("WORLD_SIZE", "1"))
