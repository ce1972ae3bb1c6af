"""The size of a value counts shared parts as often as they stand in it, and is found without expanding them."""

from __future__ import annotations

from typing import Any

import pytest

from skills.sandbox.hosts import TooLarge, expanded_size


def test_sizes() -> None:
    assert expanded_size(["ab", "ab"]) == expanded_size([10, 10]) + 2
    shared = ["a"] * 10
    assert expanded_size([shared, shared]) == 2 * expanded_size(shared) + 8
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(TooLarge, match="levels deep"):
        expanded_size(circle)
    chain: Any = []
    for _ in range(60):
        chain = [chain]
    other: Any = chain
    for _ in range(60):
        other = [other]
    with pytest.raises(TooLarge, match="levels deep"):
        expanded_size([chain, other])
