"""Words are ranked as FTS5 ranks them, at a bounded cost; no text is syntax."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import lexical
from memory.lexical import WordSearch, query_words, rarest
from memory.sqlite.fts_words import TOKENIZER, FtsWords, _number
from memory.sqlite.sql import sqlite3

HOSTILE = [
    '"',
    '" OR "',
    "a AND b",
    "NEAR(a b, 2)",
    "text:secret",
    "a*",
    "^a",
    "-x",
    "(",
    "a'b",
    "col : x",
    "{a b}: c",
    ";--",
]


@pytest.fixture
def table() -> sqlite3.Connection:
    conn = sqlite3.connect(":memory:", isolation_level=None)
    conn.execute(f"CREATE VIRTUAL TABLE record_text USING fts5 (text, tokenize = '{TOKENIZER}')")
    texts = [
        "the mail app sends mails",
        "mail needs a token",
        "mail and files",
        "payments are confirmed",
        "Zürich naïve",
    ]
    conn.executemany("INSERT INTO record_text (text) VALUES (?)", [(text,) for text in texts])
    return conn


def search(conn: sqlite3.Connection, text: str) -> list[int]:
    rows, _ = WordSearch(FtsWords(conn)).best(query_words(text), 0)
    return rows.tolist()


@pytest.mark.parametrize("text", HOSTILE)
def test_syntax_is_text(table: sqlite3.Connection, text: str) -> None:
    search(table, text)


@given(st.text(max_size=60))
def test_any_text_finds_itself(text: str) -> None:
    words = query_words(text)
    conn = sqlite3.connect(":memory:", isolation_level=None)
    conn.execute(f"CREATE VIRTUAL TABLE record_text USING fts5 (text, tokenize = '{TOKENIZER}')")
    conn.execute("INSERT INTO record_text (text) VALUES (?)", (" ".join(words),))
    found = search(conn, text)
    assert found == [1] or not any(word.isascii() for word in words)
    conn.close()


@given(
    st.lists(
        st.lists(st.sampled_from(["mail", "mails", "pay", "file", "files", "token", "naïve", "aaa"]), max_size=300),
        min_size=1,
    ),
    st.lists(st.sampled_from(["mail", "pay", "files", "token", "absent", "aaa"]), min_size=1, unique=True),
)
def test_the_ranking_is_that_of_fts5(texts: list[list[str]], words: list[str]) -> None:
    conn = sqlite3.connect(":memory:", isolation_level=None)
    conn.execute(f"CREATE VIRTUAL TABLE record_text USING fts5 (text, tokenize = '{TOKENIZER}')")
    conn.executemany("INSERT INTO record_text (text) VALUES (?)", [(" ".join(text),) for text in texts])
    conn.execute("DELETE FROM record_text WHERE rowid = 2")
    rows, scores = WordSearch(FtsWords(conn)).best(words, 0)
    expected = conn.execute(
        "SELECT rowid, -rank FROM record_text(?) ORDER BY rank, rowid", (" OR ".join(words),)
    ).fetchall()
    assert dict(zip(rows.tolist(), scores.tolist(), strict=True)) == pytest.approx(dict(expected), rel=1e-9)
    assert scores.tolist() == sorted(scores.tolist(), reverse=True)
    conn.close()


def test_operators_are_not_obeyed(table: sqlite3.Connection) -> None:
    assert search(table, "payments NOT confirmed") == [4]


def test_stems_accents_and_identifiers_are_found(table: sqlite3.Connection) -> None:
    assert search(table, "payments.confirm_payment()") == [4]
    assert search(table, "ZURICH") == search(table, "naive") == [5]


@pytest.mark.parametrize("word", ["Straße", "groß", "m²", "Zu\u0308rich", "\uff26ull", "ÉTÉ"])
def test_a_word_finds_the_text_that_it_stands_in(table: sqlite3.Connection, word: str) -> None:
    table.execute("INSERT INTO record_text (rowid, text) VALUES (9, ?)", (f"one {word} here",))
    assert 9 in search(table, word)
    assert 9 in search(table, word.lower())


def test_function_words_say_nothing(table: sqlite3.Connection) -> None:
    assert query_words("Which of the mails?") == ("mails",)
    assert search(table, "the and a are") == []


def test_rarest_words_enter_first_and_cost_is_bounded() -> None:
    frequency = {"common": 900, "rare": 3, "middle": 80, "absent": 0}
    words = tuple(frequency)
    assert rarest(words, frequency, postings=2000) == ["rare", "middle", "common"]
    assert rarest(words, frequency, postings=100) == ["rare", "middle"]
    assert rarest(("common",), frequency, postings=100) == ["common"]
    assert rarest(("absent",), frequency) == []


def test_what_is_kept_follows_the_table_when_the_stamp_moves(table: sqlite3.Connection) -> None:
    words = WordSearch(FtsWords(table))
    assert words.best(["mails"], 1)[0].tolist() == [1, 3, 2]
    table.execute("INSERT INTO record_text (text) VALUES ('mail mail')")
    assert words.best(["mails"], 1)[0].tolist() == [1, 3, 2]
    assert words.best(["mails", "nowhere"], 2)[0].tolist() == [6, 1, 3, 2]
    assert words.frequency(["mails", "nowhere"], 2) == {"mails": 4, "nowhere": 0}


def test_common_words_are_counted_to_the_end_only_where_no_rarer_one_stands_beside_them(
    table: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexical, "POSTINGS", 1)
    table.executemany("INSERT INTO record_text (text) VALUES (?)", [("app files",), ("app",), ("app",)])
    words = WordSearch(FtsWords(table))
    assert words.frequency(["app", "token"], 0) == {"app": 2, "token": 1}, "more than 1, which is all that is asked"
    assert words.frequency(["app", "mails", "nowhere"], 0) == {"app": 4, "mails": 3, "nowhere": 0}
    assert words.frequency(["files", "app"], 0) == {"files": 2, "app": 4}


@pytest.mark.parametrize(
    ("block", "numbers"),
    [(b"\x00", [0]), (b"\x7f\x01", [127, 1]), (b"\x81\x00\x05", [128, 5]), (b"\x83\xff\x7f\x81\x01", [65535, 129])],
)
def test_the_numbers_of_fts5_stand_side_by_side(block: bytes, numbers: list[int]) -> None:
    assert [_number(block, which) for which in range(len(numbers))] == numbers
    with pytest.raises(ValueError, match="expected 1 more numbers"):
        _number(block, len(numbers))
    with pytest.raises(ValueError, match="expected 1 more numbers"):
        _number(b"\x81")


def test_more_stems_than_are_kept_are_answered_all_the_same(
    table: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = WordSearch(FtsWords(table))
    before = [words.best([word], 0)[0].tolist() for word in ("mails", "token", "files")]
    monkeypatch.setattr(lexical, "_KEPT", 1)
    small = WordSearch(FtsWords(table))
    for _ in range(2):
        assert [small.best([word], 0)[0].tolist() for word in ("mails", "token", "files")] == before
        assert len(small._hits) == 1


def test_a_query_visits_as_many_occurrences_as_it_may_and_none_more() -> None:
    assert rarest(["b", "a", "c"], {"a": 2, "b": 2, "c": 6}, postings=10) == ["a", "b", "c"]
    assert rarest(["b", "a", "c"], {"a": 2, "b": 2, "c": 7}, postings=10) == ["a", "b"]
    assert rarest(["a", "b"], {"a": 11, "b": 11}, postings=10) == ["a"]
    assert rarest(["once"], {"once": 1}) == ["once"]


def test_texts_that_others_write_between_two_questions_do_no_harm(
    table: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = FtsWords(table)
    monkeypatch.setattr(found, "totals", lambda namespace: (1, 4))  # before the others came
    rows, scores = WordSearch(found).best(["mail"], 0)
    assert len(rows) == 3
    assert (scores > 0).all()
