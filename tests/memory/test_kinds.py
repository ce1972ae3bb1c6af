"""The registry of kinds: one class for each, and an error that names those there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from memory import kinds
from memory.errors import BadInput
from memory.kinds import known_kinds, parse_payload, parse_record, payload_class, record_class, register
from memory.records import Payload


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Take out again what a test registers."""
    before = dict(kinds._PAYLOADS), dict(kinds._RECORDS)
    yield
    for table, known in zip((kinds._PAYLOADS, kinds._RECORDS), before, strict=True):
        table.clear()
        table.update(known)


def made(name: str, kind: str) -> type[Payload]:
    return type(name, (Payload,), {"kind": kind, "__annotations__": {"kind": ClassVar[str]}, "__qualname__": name})


def test_a_kind_belongs_to_one_class() -> None:
    first = register(made("Recipe", "recipe"))
    assert payload_class("recipe") is first
    with pytest.raises(BadInput, match="kind 'recipe' belongs to Recipe; give Cake another kind"):
        register(made("Cake", "recipe"))
    assert payload_class("recipe") is first
    again = register(made("Recipe", "recipe"))
    assert payload_class("recipe") is again, "a module that is imported anew brings its class anew"


def test_a_class_without_a_kind_is_refused() -> None:
    with pytest.raises(BadInput, match="Recipe has no kind"):
        register(made("Recipe", ""))


def test_an_unknown_kind_is_told_those_there_are() -> None:
    assert list(known_kinds()) == sorted(known_kinds())
    for ask in (payload_class, record_class, lambda kind: parse_record({"kind": kind})):
        with pytest.raises(BadInput, match=r"unknown kind 'recipe'; registered: .*fact"):
            ask("recipe")
    with pytest.raises(BadInput, match="unknown kind ''"):
        parse_record({})


def test_a_stored_body_becomes_its_payload() -> None:
    payload = parse_payload('{"kind": "fact", "payload": {"content": "one"}}')
    assert (payload.kind, payload.text()) == ("fact", "one")
