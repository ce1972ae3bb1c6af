"""Secrets of many vendors are taken out of a text, and what only looks like one stays."""

from __future__ import annotations

import pytest

from memory.content import clean
from memory.redact import redact
from tests.memory.secret_kinds import AROUND, HONEST, PREFIXED


@pytest.mark.parametrize("kind", PREFIXED)
def test_a_token_of_a_known_format_is_redacted(kind: str) -> None:
    prefix, tail = PREFIXED[kind]
    text = f"use {prefix}{tail} now, then go on"
    said = redact(text)
    assert clean({"reply": text}) == {"reply": said}
    assert tail not in said
    assert said.startswith("use ")
    assert said.endswith(" now, then go on")


@pytest.mark.parametrize("kind", AROUND)
def test_a_secret_is_redacted_where_its_surroundings_name_it(kind: str) -> None:
    text, kept = AROUND[kind]
    said = redact(text)
    assert clean({"reply": text}) == {"reply": said}
    assert "[REDACTED:" in said
    assert kept in said


@pytest.mark.parametrize("text", HONEST)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text
