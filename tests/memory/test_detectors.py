"""Each detector of secrets is linear by construction: it cannot read a lot and then fail."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from memory import detectors
from memory.redact import redact

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


def token(*parts: object) -> str:
    return ".".join(
        part if isinstance(part, str) else base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
        for part in parts
    )


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (token({"alg": "HS256"}, {"sub": "12345678"}, "c2lnbmF0dXJl"), True),
        (token({"alg": "HS256"}, {"sub": "12345678"}), True),
        (token({"alg": "HS256"}), False),
        (token({"alg": "HS256"}, "no-object"), False),
        (token({"alg": "HS256"}, "no-object", "c2lnbmF0dXJl"), False),
        (token("eyJicm9rZW4", {"sub": "12345678"}, "c2lnbmF0dXJl"), True),
        (token("eyJicm9rZW4", {"sub": "12345678"}), False),
        (token("eyJicm9rZW4", "eyJicm9rZW4"), False),
        *((token({"alg": "x" * n}, {"sub": "y" * n}), True) for n in range(1, 5)),
    ],
)
def test_two_encoded_objects_begin_a_web_token(text: str, secret: bool) -> None:
    assert redact(f"so {text} it is") == (f"so {'[REDACTED:jwt]' if secret else text} it is")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("password = 'abcdefg1'", True),
        ("password = 'abcdefg1\"", False),
        ("password = 'abcdefgh'", False),
        ("password = 'abcdef1'", False),
        ("password = abcdefghijk1", True),
        ("password = abcdefghijkl", False),
        ("password = abcdefghij1", False),
        ("password = abcdefghijk1(", False),
        ("password = abcdefghijk1[0]", False),
        ("password = abcdefghijk1.get", False),
        ("password = abcdefghijk1. Then", True),
        ("password = abcdefghijk1.", True),
        ("password = abcdefghijk1ä", False),
        ("password = abcdefghijk1, and", True),
    ],
)
def test_what_a_secret_s_name_is_given_is_a_literal_with_a_digit(text: str, secret: bool) -> None:
    assert ("[REDACTED:assigned-secret]" in redact(text)) is secret


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("bkua_" + "a" * 19 + "1", True),
        ("bkua_" + "1" + "a" * 19, True),
        ("bkua_" + "1" + "a" * 20, False),
        ("bkua_" + "a" * 20, False),
        ("bkua_" + "a" * 18 + "1", False),
        ("xbkua_" + "a" * 19 + "1", False),
        ("AKC" + "a" * 10, True),
        ("AKC" + "a" * 9, False),
        ("AKC" + "a" * 10 + "==", False),
        ("AKC" + "a" * 10 + "+/", False),
        ("AKC" + "a" * 10 + ".b", True),
        ("http://me:pass@host", True),
        ("http://me:pass/host", False),
    ],
)
def test_where_a_secret_begins_and_ends_decides(text: str, secret: bool) -> None:
    assert ("[REDACTED:" in redact(text)) is secret
