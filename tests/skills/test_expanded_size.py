"""The size of a value counts shared parts as often as they stand in it, and is found without expanding them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from skills.sandbox.hosts import TooLarge, expanded_size


def nested(levels: int, inside: Any = None) -> Any:
    value = [] if inside is None else inside
    for _ in range(levels - (inside is None)):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (None, 8),
        (0.5, 8),
        (True, 8),
        ("ab", 10),
        (b"abc", 11),
        (7, 8),
        (2**400, 8 + 100),
        ([], 8),
        (["a"], 17),
        (("a", "b"), 26),
        ({"a"}, 17),
        (frozenset({"a"}), 17),
        ({"a": "bc"}, 8 + 9 + 10),
        (SimpleNamespace(attributes={"a": "bc"}), 8 + 9 + 10),
        (SimpleNamespace(attributes="abc"), 8),
        ([[["a"]]], 8 + 8 + 8 + 9),
    ],
)
def test_a_value_is_as_large_as_its_texts_and_eight_for_each_value(value: Any, size: int) -> None:
    assert expanded_size(value) == size


def test_what_is_shared_counts_each_time() -> None:
    shared = ["a"] * 10
    assert expanded_size([shared, shared]) == 2 * expanded_size(shared) + 8
    deep = [nested(5), nested(5)]
    assert expanded_size([deep, deep]) == 8 + 2 * (8 + 2 * 5 * 8)


def test_four_million_characters_are_let_through_and_one_more_is_not() -> None:
    most = 4 * 1024 * 1024
    assert expanded_size(["a" * (most - 16)]) == most
    with pytest.raises(TooLarge, match="more than 4,194,304 characters"):
        expanded_size(["a" * (most - 15)])


def test_values_are_nested_a_hundred_levels_deep_at_most() -> None:
    assert expanded_size(nested(100)) == 800
    with pytest.raises(TooLarge, match="more than 100 levels deep"):
        expanded_size(nested(101))
    assert expanded_size(nested(100, inside="a")) == 809, "a text is no level"


def test_a_circle_is_nested_too_deep() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(TooLarge, match="levels deep"):
        expanded_size(circle)


@pytest.mark.parametrize(("above", "fits"), [(39, True), (40, False)])
def test_what_is_known_already_may_still_stand_too_deep(above: int, fits: bool) -> None:
    chain = nested(60)
    value = [chain, nested(above, inside=chain)]
    if fits:
        assert expanded_size(value) == 8 + 2 * 480 + above * 8
    else:
        with pytest.raises(TooLarge, match="levels deep"):
            expanded_size(value)


def test_the_deepest_part_tells_how_deep_a_known_value_goes() -> None:
    uneven = [nested(50), "a", nested(2)]
    with pytest.raises(TooLarge, match="levels deep"):
        expanded_size([uneven, nested(49, inside=uneven)])
    assert expanded_size([uneven, nested(48, inside=uneven)]) > 0
