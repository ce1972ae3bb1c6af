"""User text becomes an FTS5 query that holds no syntax and has a bounded cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.sql import sqlite3
from memory.words import TOKENIZER, Vocabulary, match_expression, query_words

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
    words = query_words(text)
    match = match_expression(words, Vocabulary(conn, "record_text").frequency(words, 0))
    return [row[0] for row in conn.execute("SELECT rowid FROM record_text(?) ORDER BY rank", (match,))] if match else []


@pytest.mark.parametrize("text", HOSTILE)
def test_syntax_is_text(table: sqlite3.Connection, text: str) -> None:
    search(table, text)


@given(st.text(max_size=60))
def test_any_text_is_a_legal_query(text: str) -> None:
    words = query_words(text)
    conn = sqlite3.connect(":memory:", isolation_level=None)
    conn.execute(f"CREATE VIRTUAL TABLE record_text USING fts5 (text, tokenize = '{TOKENIZER}')")
    conn.execute(
        "INSERT INTO record_text (text) VALUES (?)", (text.encode("utf-8", "replace").decode().replace("\0", ""),)
    )
    match = match_expression(words, dict.fromkeys(words, 1))
    if match:
        conn.execute("SELECT rowid FROM record_text(?)", (match,)).fetchall()
    conn.close()


def test_operators_are_not_obeyed(table: sqlite3.Connection) -> None:
    assert search(table, "payments NOT confirmed") == [4]


def test_stems_accents_and_identifiers_are_found(table: sqlite3.Connection) -> None:
    assert search(table, "payments.confirm_payment()") == [4]
    assert search(table, "ZURICH") == search(table, "naive") == [5]


def test_function_words_say_nothing(table: sqlite3.Connection) -> None:
    assert query_words("Which of the mails?") == ("mails",)
    assert search(table, "the and a are") == []


def test_rarest_words_enter_first_and_cost_is_bounded() -> None:
    frequency = {"common": 900, "rare": 3, "middle": 80, "absent": 0}
    words = tuple(frequency)
    assert match_expression(words, frequency, postings=2000) == '"rare" OR "middle" OR "common"'
    assert match_expression(words, frequency, postings=100) == '"rare" OR "middle"'
    assert match_expression(("common",), frequency, postings=100) == '"common"'
    assert match_expression(("absent",), frequency) == ""


def test_counts_follow_the_table_when_the_stamp_moves(table: sqlite3.Connection) -> None:
    vocabulary = Vocabulary(table, "record_text")
    assert vocabulary.frequency(["mails"], 1) == {"mails": 3}
    table.execute("INSERT INTO record_text (text) VALUES ('more mail')")
    assert vocabulary.frequency(["mails"], 1) == {"mails": 3}
    assert vocabulary.frequency(["mails", "nowhere"], 2) == {"mails": 4, "nowhere": 0}
