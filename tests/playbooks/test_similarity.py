"""Near is not the same: a substituted value makes another rule of a short text."""

from __future__ import annotations

import pytest

from playbooks.similarity import contradicts, duplicate_of, exact_key, opposes, similar_pairs


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("payments.send: amount must be cents", "payments.send: amount must be dollars"),
        ("Write every date as YYYY-MM-DD", "Write every date as DD-MM-YYYY"),
        ("Always log in before you send mail", "Never log in before you send mail"),
        ("mail.search: page must be 0", "mail.search: page must be 1"),
        ("Names are written BOB", "Names are written bob"),
    ],
)
def test_rules_that_differ_in_a_value_are_no_duplicates(a: str, b: str) -> None:
    assert contradicts(a, b)
    assert contradicts(b, a)
    assert duplicate_of(a, [b], threshold=0.1) is None
    assert similar_pairs([a, b], threshold=0.1) == []


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Log in before you send mail.", "log in before you send the mail"),
        ("You must log in before you send mail", "Log in before you send mail"),
    ],
)
def test_rules_that_differ_in_filler_are_duplicates(a: str, b: str) -> None:
    assert not contradicts(a, b)
    assert duplicate_of(a, ["something else about dates", b], threshold=0.5) is not None


@pytest.mark.parametrize(
    ("a", "b", "opposed"),
    [
        ("payments.send: amount must be cents", "payments.send: amount must be dollars", True),
        ("payments.send: to must be the contact's id", "payments.send: to must be the contact's email", True),
        ("payments.send: to must be the contact's id", "mail.send: to must be the contact's email", False),
        ("payments.send: to must be id", "payments.send: cc must be id", False),
        ("payments.request: unlock must come before", "mail.forward: scan must come before", False),
        ("the same", "the same", False),
    ],
)
def test_opposition_is_about_the_same_thing(a: str, b: str, opposed: bool) -> None:
    assert opposes(a, b) is opposed
    assert opposes(b, a) is opposed


def test_exact_duplicates_ignore_blank_space_and_a_full_stop() -> None:
    assert exact_key(" a  b\nc. ") == exact_key("a b c")
    assert exact_key("a b C") != exact_key("a b c")


def test_texts_without_words_are_handled() -> None:
    assert similar_pairs(["+", "-"]) == []
    assert duplicate_of("+", ["-", "+."]) == (1, 1.0)
    assert duplicate_of("a b", ["b c"]) is None
    assert duplicate_of("x", []) is None


def test_the_best_duplicate_is_named() -> None:
    long = "Before you delete a file check that it is not shared with anybody and that no task refers to it any more"
    found = duplicate_of(long, ["nothing", long + " today", long + "."])
    assert found == (2, 1.0)
    near = duplicate_of(long + " today", [long, "nothing"])
    assert near is not None
    assert near[0] == 0
    assert 0.9 <= near[1] < 1.0
