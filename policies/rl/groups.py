"""Statistics of groups: each value is compared with those that carry the same group number."""

from __future__ import annotations

from typing import Literal

import numpy as np

from memory.errors import BadInput
from policies.rl.protocols import Array, Ints

Singleton = Literal["zero", "raw"]
"""What the only member of a group gets: no signal, or its own value (a baseline of 0 and a deviation of 1)."""

EPSILON = 1e-6


def sizes(groups: Ints) -> Ints:
    """Return for each value how many its group has."""
    _, number, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return counts[number].astype(np.int64)


def numbered(*columns: Ints) -> Ints:
    """Return a number for each row of some columns [n]; equal rows have the same, and numbers rise with the rows."""
    _, number = np.unique(np.stack(columns), axis=1, return_inverse=True)
    return number.reshape(-1).astype(np.int64)


def centred(values: Array, groups: Ints, singleton: Singleton = "zero", weights: Ints | None = None) -> Array:
    """Return each value minus the mean of its group, weighted by `weights`; exactly 0 throughout equal values."""
    if singleton not in ("zero", "raw"):
        raise BadInput(f"got singleton={singleton!r}; expected 'zero' or 'raw'")
    _, first, number, counts = np.unique(groups, return_index=True, return_inverse=True, return_counts=True)
    shifted = values - values[first][number]
    if weights is None:
        means = np.bincount(number, shifted, len(counts)) / counts
    else:
        means = np.bincount(number, shifted * weights, len(counts)) / np.maximum(np.bincount(number, weights), 1)
    result = shifted - means[number]
    return np.where(counts[number] == 1, values, result) if singleton == "raw" else result


def standardised(values: Array, groups: Ints, singleton: Singleton = "zero", eps: float = EPSILON) -> Array:
    """Return (value - mean) / (unbiased standard deviation + eps) within each group; a singleton's deviation is 1."""
    differences = centred(values, groups, singleton)
    _, number, counts = np.unique(groups, return_inverse=True, return_counts=True)
    squares = np.bincount(number, differences**2, len(counts))
    deviations = np.where(counts > 1, np.sqrt(squares / np.maximum(counts - 1, 1)), 1.0)
    return differences / (deviations[number] + eps)
