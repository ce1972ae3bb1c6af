"""Each detector of secrets is linear by construction: it cannot read a lot and then fail."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from memory import detectors

UNBOUNDED = import_module("re._constants").MAXREPEAT
REPEATS = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}


def _operations(parsed: Any) -> list[tuple[str, Any]]:
    return [(str(kind), detail) for kind, detail in parsed]


def _children(detail: Any) -> Iterator[Any]:
    """Yield the patterns inside an operation of a parsed pattern."""
    if type(detail).__name__ == "SubPattern":
        yield detail
    elif isinstance(detail, tuple | list):
        for each in detail:
            yield from _children(each)


def _repeats(parsed: Any) -> Iterator[tuple[int, Any]]:
    for kind, detail in _operations(parsed):
        if kind in REPEATS and detail[1] > 1:
            yield detail[1], detail[2]
        for child in _children(detail):
            yield from _repeats(child)


def _can_fail_late(parsed: Any) -> bool:
    """Tell whether a pattern may read a lot and then fail: what must match follows an unbounded repetition."""
    read_a_lot = False
    for kind, detail in _operations(parsed):
        if read_a_lot and not (kind in REPEATS and detail[0] == 0):
            return True
        inside = list(_children(detail))
        unbounded = kind in REPEATS and detail[1] == UNBOUNDED
        read_a_lot = read_a_lot or unbounded or any(any(most == UNBOUNDED for most, _ in _repeats(c)) for c in inside)
        if not unbounded and any(_can_fail_late(child) for child in inside):
            return True
    return False


@pytest.mark.parametrize("detector", detectors.DETECTORS, ids=lambda detector: detector.name)
def test_no_pattern_can_read_a_lot_and_fail(detector: detectors.Detector) -> None:
    parse = import_module("re._parser").parse
    for pattern in (detector.pattern, detectors.NAMED, *(sign for sign in detector.signs if not isinstance(sign, str))):
        parsed = parse(pattern.pattern, pattern.flags)
        assert not _can_fail_late(parsed)
        for most, inner in _repeats(parsed):
            assert most == UNBOUNDED or most <= detectors.LONGEST
            assert not list(_repeats(inner)), "a repetition of a repetition"


@pytest.mark.parametrize(
    "pattern", [r"(?:[a-z]+-)*key", r"a+b", r"(?:a{1,9}){1,9}", r"a{300}", r"x(?:a+|b)c", r"a+(?=b)"]
)
def test_the_rule_sees_what_is_slow(pattern: str) -> None:
    parsed = import_module("re._parser").parse(pattern)
    repeats = list(_repeats(parsed))
    nested = any(list(_repeats(inner)) for _, inner in repeats)
    assert _can_fail_late(parsed) or nested or any(detectors.LONGEST < most < UNBOUNDED for most, _ in repeats)
