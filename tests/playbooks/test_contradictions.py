"""Two rules exclude each other when one value differs where a rule prescribes; no other difference contradicts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.embedders.hashing import HashingEmbedder
from memory.evidence import Evidence, Mark
from memory.records import Provenance, Record, Trust, UsageCounts
from playbooks.contradictions import _between, _framed_like, _frames, comparable, contradictions, outdone, possible
from playbooks.kinds.bullet import Bullet
from playbooks.render import render
from playbooks.texts import TextIndex
from playbooks.view import RecordView

Make = Callable[..., Any]


def between(bullet: Make, a: str, b: str) -> list[str]:
    return [found.difference for found in contradictions([bullet(1, a), bullet(2, b)])]


@pytest.mark.parametrize(
    ("a", "b", "difference"),
    [
        ("payments.send: amount must be cents", "payments.send: amount must be dollars", "cents | dollars"),
        ("mail.send: to must be the contact's email", "mail.send: to must be the contact's handle", "email | handle"),
        ("Amounts of payments are in cents here", "Amounts of payments are in dollars here", "cents | dollars"),
        ("For dates use iso in the calendar", "For dates use dmy in the calendar", "iso | dmy"),
        ("The first page is 0 in mail.search", "The first page is 1 in mail.search", "0 | 1"),
        ("todo.complete: before it must come start", "todo.complete: before it must come nothing", "start | nothing"),
        ("Always log in before you pay", "Never log in before you pay", "yes | not"),
        ("Send it without a memo", "Send it with a memo", ""),
        ("payments.send: before it must come unlock", "payments.send: before it must come verify", ""),
        ("mail.send: to must be the contact's id", "files.share: to must be the contact's id", ""),
        ("Use kebab for file names", "Use kebab for folder names", ""),
        ("You must unlock before you pay", "You must verify before you pay", ""),
        ("Search in mail for the sender", "Search in files for the sender", ""),
        ("amount must be cents", "Amount must be cents.", ""),
    ],
)
def test_what_contradicts(bullet: Make, a: str, b: str, difference: str) -> None:
    assert between(bullet, a, b) == ([difference] if difference else [])


def test_rules_with_other_cues_are_about_other_things(bullet: Make) -> None:
    texts = "The kind must be business here", "The kind must be shared here"
    same = [bullet(n, text, cue="payments.request") for n, text in enumerate(texts, 1)]
    assert [(c.first, c.second, c.certain) for c in contradictions(same[::-1])] == [("record-1", "record-2", True)]
    other = [bullet(n, text, cue=cue) for n, (text, cue) in enumerate(zip(texts, ("pay", "ask"), strict=True), 1)]
    assert contradictions(other) == ()


def test_neighbours_in_other_words_are_reported_as_possible_only(bullet: Make) -> None:
    records = [bullet(1, "give every amount to pay in cents"), bullet(2, "in dollars give every amount to pay")]
    assert contradictions(records) == ()
    (found,) = possible(records, HashingEmbedder(), near=0.5)
    assert (found.certain, found.difference) == (False, "cents | dollars")
    assert possible(records, HashingEmbedder(), near=0.999) == ()
    sure = [bullet(1, "amount must be cents"), bullet(2, "amount must be dollars")]
    assert possible(sure, HashingEmbedder(), near=0.0) == ()


WORDS = ("pay", "must", "be", "use", "cents", "dollars", "not", "before", "come", "nothing", "the", "mail", "always")
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join), min_size=2, max_size=12)


@given(TEXTS)
def test_no_pair_is_overlooked_that_contradicts_and_begins_alike(texts: list[str]) -> None:
    records = [
        Record[Bullet](id=f"r{n}", kind="bullet", number=n, payload=Bullet(content=t)) for n, t in enumerate(texts)
    ]

    def begins(record: Record[Bullet]) -> str:
        said = [word for word in record.payload.content.split() if word not in {"not", "always"}]
        return next(iter(said), "")

    pairs = [(a, b) for a, b in combinations(records, 2) if begins(a) == begins(b)]
    alone = [(a.id, b.id) for a, b in pairs if contradictions([a, b])]
    brute = [(a.id, b.id) for a, b in pairs if _between(a, b)]
    assert alone == brute
    assert [(found.first, found.second) for found in contradictions(records)] == brute
    some = {"r0", "r2"}
    assert [(c.first, c.second) for c in contradictions(records, some)] == [pair for pair in brute if some & set(pair)]


@given(TEXTS, st.booleans())
def test_what_is_read_of_a_view_is_all_that_may_contradict(texts: list[str], long: bool) -> None:
    said = [f"{text} {'x ' * 30}" for text in texts for _ in range(2)] if long else texts
    records = [
        Record[Bullet](
            id=f"r{n}", kind="bullet", number=n, payload=Bullet(content=t, polarity="avoid" if n % 2 else "do")
        )
        for n, t in enumerate(said)
    ]
    for record in records[:3]:
        read = comparable([record], RecordView(records))
        found = contradictions(read, {record.id})
        assert found == contradictions(records, {record.id})
        assert found or not long  # the same long text with another polarity stands beside it


@given(TEXTS)
def test_texts_that_share_a_frame_are_among_those_that_are_read(texts: list[str]) -> None:
    index = TextIndex((str(at), text) for at, text in enumerate(texts))
    for text in texts:
        alike = {str(at) for at, other in enumerate(texts) if _frames(text) & _frames(other)}
        assert alike <= _framed_like(text, index)


def test_of_many_rules_about_other_things_none_is_read(bullet: Make) -> None:
    records = [bullet(n, f"rule {n}: item{n} must be low when service {n} is called") for n in range(1, 500)]
    rival = bullet(500, "rule 7: item7 must be high when service 7 is called")
    read = comparable([rival], RecordView([*records, rival]))
    assert [record.number for record in read] == [7, 500]
    assert [found.first for found in contradictions(read)] == ["record-7"]


def known(born: int, confirmed: int = 0, refuted: int = 0) -> Evidence:
    marks = [Mark(confirmed, 0, UsageCounts(helpful=1)), Mark(refuted, 0, UsageCounts(harmful=1))]
    return Evidence(Mark(born, 0, UsageCounts()), tuple(mark for mark in marks if mark.seq))


@pytest.mark.parametrize(
    ("old", "new", "hidden"),
    [
        (known(1), known(2), ""),
        (known(1, confirmed=3), known(2), ""),
        (known(1, refuted=3), known(2, refuted=4), ""),
        (known(1, confirmed=3, refuted=5), known(2), "record-1"),
        (known(1, confirmed=3), known(2, refuted=4), "record-2"),
    ],
)
def test_only_a_refuted_rival_is_hidden_and_what_nothing_decided_is_shown_marked(
    bullet: Make, old: Evidence, new: Evidence, hidden: str
) -> None:
    records = [bullet(1, "amount must be cents"), bullet(2, "amount must be dollars"), bullet(3, "log in first")]
    asked: list[str] = []

    def evidence(rivals: Any) -> dict[str, Evidence]:
        asked.extend(record.id for record in rivals)
        return {"record-1": old, "record-2": new}

    assert outdone(records, evidence) == ({hidden} if hidden else frozenset())
    assert asked == ["record-1", "record-2"]
    assert outdone(records[1:], evidence) == frozenset()


def test_the_operators_word_holds_and_pinned_rivals_are_marked(bullet: Make) -> None:
    said = Provenance(trust=Trust.OPERATOR)
    texts = "amount must be cents", "amount must be dollars"
    own = [bullet(1, texts[0], provenance=said), bullet(2, texts[1])]
    both = {"record-1": known(1, refuted=9), "record-2": known(2, confirmed=8)}
    assert outdone(own, lambda rivals: both) == {"record-2"}
    pinned = [bullet(n, text, pinned=True) for n, text in enumerate(texts, 1)]
    assert outdone(pinned, lambda rivals: both) == frozenset()
    assert render(pinned, "compact") == "- amount must be cents (against 2) [1]\n- amount must be dollars [2]"
    assert "(contradicted by [shr-00002])" in render(pinned, "full")
    assert "(against 2)" in render(own, "compact")
    assert "against" not in render(own[:1], "compact")
