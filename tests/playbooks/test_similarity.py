"""Near is not the same: a substituted value makes another rule of a short text."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from memory.records import DeltaOp, Op, Status
from memory.store import Store
from playbooks.similarity import contradicts, exact_key, opposes, similar_pairs
from playbooks.texts import TextIndex, texts_of


def duplicate_of(text: str, others: list[str], threshold: float = 0.9) -> tuple[int, float] | None:
    found = TextIndex((str(at), other) for at, other in enumerate(others)).duplicate_of(text, threshold=threshold)
    return found and (int(found[0]), found[1])


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
        ("payments.request: before it must come unlock", "mail.forward: before it must come scan", False),
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


WORDS = ["mail", "send", "must", "be", "low", "high", "the", "a", "before", "date", "log", "in", "never", "twice", "x"]
SENTENCE = st.lists(st.sampled_from(WORDS), max_size=12)


@settings(deadline=None, max_examples=60)
@given(st.lists(SENTENCE.map(" ".join), min_size=1, max_size=8), SENTENCE.map(" ".join))
def test_the_index_weighs_as_scikit_learn_does(others: list[str], text: str) -> None:
    try:
        vectors = TfidfVectorizer().fit_transform([*others, text])
    except ValueError:  # no word of two letters in any text
        return
    cosine = (vectors[:-1] @ vectors[-1].T).toarray()[:, 0]
    index = TextIndex((str(at), other) for at, other in enumerate(others))
    for at, other in enumerate(others):
        assert index._cosine(text, other) == pytest.approx(cosine[at], abs=1e-6)


@settings(deadline=None, max_examples=60)
@given(st.lists(SENTENCE.map(" ".join), max_size=8), st.lists(st.integers(0, 7), max_size=4), SENTENCE.map(" ".join))
def test_what_was_removed_leaves_no_trace(texts: list[str], gone: list[int], text: str) -> None:
    index = TextIndex((str(at), other) for at, other in enumerate(texts))
    for at in gone:
        index.remove(str(at))
    fresh = TextIndex((str(at), other) for at, other in enumerate(texts) if at not in gone)
    for threshold in (0.3, 0.9):
        assert index.duplicate_of(text, threshold=threshold) == fresh.duplicate_of(text, threshold=threshold)
    assert index.opposed_to(text) == fresh.opposed_to(text)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), SENTENCE.map(" ".join)), max_size=8),
    st.lists(st.tuples(st.sampled_from("abcdefgh"), SENTENCE.map(" ".join)), max_size=8),
    SENTENCE.map(" ".join),
)
def test_what_an_index_becomes_is_what_would_be_made_of_the_same_texts(
    before: list[tuple[str, str]], after: list[tuple[str, str]], text: str
) -> None:
    index, fresh = TextIndex(before), TextIndex(dict(after).items())
    index.add("more", text)
    index.become(after)
    for threshold in (0.3, 0.9):
        assert index.duplicate_of(text, threshold=threshold) == fresh.duplicate_of(text, threshold=threshold)
    assert index.opposed_to(text) == fresh.opposed_to(text)
    index.add("more", text)
    fresh.add("more", text)
    assert index.duplicate_of(text, skip=("a", "b")) == fresh.duplicate_of(text, skip=("a", "b"))


@settings(deadline=None, max_examples=100)
@given(st.lists(SENTENCE.map(" ".join), max_size=8), SENTENCE.map(" ".join), st.sampled_from((0.3, 0.6, 0.9)))
def test_no_near_duplicate_is_overlooked(others: list[str], text: str, threshold: float) -> None:
    index = TextIndex((str(at), other) for at, other in enumerate(others))
    cosines = {at: index._cosine(text, other) for at, other in enumerate(others) if not contradicts(text, other)}
    exact = [at for at, other in enumerate(others) if exact_key(other) == exact_key(text)]
    near = [at for at, cosine in cosines.items() if cosine >= threshold]
    found = index.duplicate_of(text, threshold=threshold)
    if exact:
        assert found == (str(exact[0]), 1.0)
    elif near:
        best = max(near, key=lambda at: (cosines[at], -at))
        assert found == (str(best), cosines[best])
    else:
        assert found is None


def test_of_many_texts_with_the_same_frame_few_are_compared() -> None:
    texts = [f"rule {at}x: item{at} must hold value before service {at}x is called" for at in range(2000)]
    index = TextIndex((str(at), text) for at, text in enumerate(texts))
    assert index._candidates(texts[7] + " again", 0.9) == ["7"]


def test_the_texts_of_a_view_are_kept_for_the_next_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    add_text = TextIndex.add

    def add(*contents: str) -> list[str]:
        ops = [DeltaOp(op=Op.ADD, payload={"content": content}, status=Status.ACTIVE) for content in contents]
        return [str(item.record_id) for item in store.commit("default", ops, actor="test").results]

    first = add("Amounts are in cents", "Dates are written as ISO says")
    index = texts_of(store.view("default"), "bullet")
    assert texts_of(store.view("default"), "bullet") is index
    index.add("mine", "What I looked at")  # for oneself
    add("Names are in lower case")
    store.commit("default", [DeltaOp(op=Op.REMOVE, target_id=first[0])], actor="test")
    read: list[str] = []
    monkeypatch.setattr(TextIndex, "add", lambda self, key, text: (read.append(text), add_text(self, key, text)))
    later = texts_of(store.view("default"), "bullet")
    assert later is index
    assert read == ["Names are in lower case"]
    assert list(map(later.text, later.keys())) == ["Dates are written as ISO says", "Names are in lower case"]


def test_the_pairs_are_those_that_all_cosines_give() -> None:
    """Comparing only texts that share one of their rarest words must leave no pair out."""
    dice, said = Random(0), [f"w{at}" for at in range(60)]
    found = 0
    for _ in range(60):
        bases = [[dice.choice(said) for _ in range(dice.randrange(1, 40))] for _ in range(5)]
        texts: list[str] = []
        for _ in range(40):
            words = list(dice.choice(bases))
            for _ in range(dice.randrange(4)):
                words[dice.randrange(len(words))] = dice.choice(said)
            texts.append(" ".join(words))
        cosines = (vectors := TfidfVectorizer().fit_transform(texts)) @ vectors.T
        for threshold in (0.5, 0.9):
            near = [(i, j) for i, j in combinations(range(40), 2) if cosines[i, j] >= threshold - 1e-9]
            expected = {(i, j) for i, j in near if not contradicts(texts[i], texts[j])}
            assert {(i, j) for i, j, _ in similar_pairs(texts, threshold)} == expected
            found += len(expected)
    assert found > 1000
