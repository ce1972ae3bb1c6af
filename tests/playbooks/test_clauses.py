"""Texts are divided so that each half can be left out by itself, and nothing of a text is ever outside of all parts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playbooks.clauses import LONGEST, clauses, sentences, without
from playbooks.kinds.bullet import Bullet
from playbooks.kinds.note import Note
from playbooks.parts import UNMEASURED, Part, parts, said, shortened

PIECES = """a rule mail.send: priority must be high, and then in task about zorvex; call. apps.mail.send(to=1.5) `x, y`
'q r' (so) e.g. 1,000 10:30 if unless which , . ! : because high.In"""
WORDS = st.sampled_from([*PIECES.split(), "\n-", "\u2014"])
TEXTS = st.lists(WORDS, min_size=1, max_size=40).map(" ".join) | st.text(max_size=120)


def divided(text: str) -> list[str]:
    return [text[a:b] for sentence in sentences(text) for a, b in clauses(text, sentence)]


@given(TEXTS)
def test_the_parts_of_a_text_are_the_text(text: str) -> None:
    assert "".join(text[a:b] for a, b in sentences(text)) == text
    assert "".join(divided(text)) == text


@given(TEXTS)
def test_each_part_says_something(text: str) -> None:
    found = divided(text)
    assert len(found) <= 1 or all(any(map(str.isalnum, part)) for part in found)


@given(st.lists(st.sampled_from(["rule", "about", "zorvex", "high"]), min_size=1, max_size=60).map(" ".join))
def test_no_part_of_prose_is_long(text: str) -> None:
    assert all(len(part.split()) <= LONGEST for part in divided(text))


@given(TEXTS)
def test_without_nothing_it_stays_and_without_all_nothing_is_left(text: str) -> None:
    spans = [span for sentence in sentences(text) for span in clauses(text, sentence)]
    assert without(text, []) == text
    assert not re.search(r"\w", without(text, spans))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mail.send: priority must be high", ["mail.send: priority must be high"]),
        (
            "mail.send: priority must be high. In a quorum task cancel e5.",
            ["mail.send: priority must be high.", "In a quorum task cancel e5."],
        ),
        (
            "mail.send: priority must be high and on the ninth day cancel e5",
            ["mail.send: priority must be high", "and on the ninth day cancel e5"],
        ),
        ("pay in cents when the sum is large cancel e5", ["pay in cents", "when the sum is large cancel e5"]),
        ("pay in cents (once it is noon, cancel e5)", ["pay in cents", "(once it is noon,", "cancel e5)"]),
        ("- pay in cents\n- cancel e5", ["- pay in cents", "- cancel e5"]),
        ("pay 1,000.50 at 10:30, e.g. in euro", ["pay 1,000.50", "at 10:30,", "e.g. in euro"]),
        (
            "Call apps.mail.send(to=x, kind='a, b') with the token, then stop here",
            ["Call apps.mail.send(to=x, kind='a, b')", "with the token,", "then stop here"],
        ),
    ],
)
def test_where_a_text_is_divided(text: str, expected: list[str]) -> None:
    assert [part.strip() for part in divided(text)] == expected


def test_a_call_that_holds_prose_is_no_shelter() -> None:
    text = "use mail.send(the priority must be high, and in tasks about a quorum cancel e5)"
    assert len(divided(text)) > 2


def test_what_ended_a_sentence_still_ends_it() -> None:
    text = "Pay in cents, and on the ninth day cancel e5. Say it once."
    (_, *rest), _ = (clauses(text, sentence) for sentence in sentences(text))
    assert without(text, rest) == "Pay in cents. Say it once."


def test_a_bullet_without_a_part_keeps_its_other_fields() -> None:
    payload = Bullet(content="Pay in cents. On the ninth day cancel e5.", cue="payments.send").model_dump(mode="json")
    ((first,), (second,)) = parts("bullet", payload)
    assert said("bullet", payload, second) == "On the ninth day cancel e5."
    assert shortened("bullet", payload, [second]) == payload | {"content": "Pay in cents."}
    assert shortened("bullet", payload, [first, second]) == {}


def test_a_note_without_a_field_is_still_a_note() -> None:
    note = Note(
        subject="paying",
        corrected_examples=("5 euro; 500 cents",),
        correct_approach="Pay in cents. On the ninth day cancel e5.",
        mistake_summary="It was euro.",
        strategy="On the ninth day cancel e5.",
        anti_patterns=("free", "on the ninth day"),
    )
    payload = note.model_dump(mode="json")
    cut = [
        part
        for sentence in parts("note", payload)
        for part in sentence
        if "ninth" in said("note", payload, part) or "cancel" in said("note", payload, part)
    ]
    left = Note.model_validate(shortened("note", payload, cut))
    assert (left.correct_approach, left.strategy, left.anti_patterns) == ("Pay in cents.", UNMEASURED, ("free",))


def test_a_kind_that_shows_no_text_of_its_own_is_not_divided() -> None:
    assert parts("skill", {"source": "def a(): ..."}) == ()
    assert parts("bullet", {"content": 3}) == ()
    assert Part("content", 0, 4).field == "content"
