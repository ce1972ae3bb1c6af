"""The word side of recall: user text becomes an FTS5 query that can hold no syntax and has a bounded cost.

Common words cost the most and say the least: BM25 visits every record that has one. So the rarest words of a query are
used first, until the records they occur in reach `POSTINGS`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from threading import Lock

from memory.sql import sqlite3

POSTINGS = 1000
"""Word occurrences that one query may visit: well under 1 ms."""
_WORD = re.compile(r"[^\W_]+")
TOKENIZER = "porter unicode61"
"""As in the `record_text` table."""
_FUNCTION_WORDS = frozenset(
    _WORD.findall(
        "a an and are as at be but by can do does for from had has have how i if in into is it its me my no not of on "
        "or our so than that the their them then there these they this to us was we what when where which who will "
        "with you your"
    )
)


@lru_cache(maxsize=256)
def query_words(text: str) -> tuple[str, ...]:
    """Return the distinct words of a text, lower-case, in order; punctuation and FTS5 operators are no words.

    English function words are left out: a record that shares only `the` shares nothing.
    """
    words = dict.fromkeys(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))
    return tuple(word for word in words if word not in _FUNCTION_WORDS)


def match_expression(words: Sequence[str], frequency: Mapping[str, int], *, postings: int = POSTINGS) -> str:
    """Return an FTS5 expression that ORs the rarest words, each quoted; empty when no word occurs anywhere.

    `frequency` is the number of records per word. The rarest word always enters, others while the sum stays within
    `postings`; equal frequencies go by the word.
    """
    chosen: list[str] = []
    visited = 0
    for word in sorted((word for word in words if frequency.get(word, 0) > 0), key=lambda w: (frequency[w], w)):
        visited += frequency[word]
        if chosen and visited > postings:
            break
        chosen.append(word)
    return " OR ".join(f'"{word}"' for word in chosen)


class Vocabulary:
    """How many records hold a word, asked of an FTS5 table through its own stemmer."""

    def __init__(self, conn: sqlite3.Connection, table: str) -> None:
        """Attach to the FTS5 `table` of `conn`; makes a temporary view of it and writes nothing."""
        self._conn, self._terms = conn, f"{table}_terms"
        self._known: dict[str, int] = {}
        self._stamp: object = None
        conn.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS temp.{self._terms} USING fts5vocab('main', '{table}', 'row')")

    def frequency(self, words: Sequence[str], stamp: object) -> dict[str, int]:
        """Return word -> number of records that hold its stem; call it with the connection's lock held.

        Counts are kept as long as `stamp` (whatever tells that no text changed) stays the same.
        """
        if stamp != self._stamp:
            self._known, self._stamp = {}, stamp
        stems = {word: _STEMMER.stem(word) for word in words}
        new = sorted(set(stems.values()) - self._known.keys())
        if new:
            rows = self._conn.execute(
                f"SELECT term, doc FROM temp.{self._terms} WHERE term IN ({', '.join('?' * len(new))})", new
            ).fetchall()
            self._known |= dict.fromkeys(new, 0) | dict(rows)
        return {word: self._known[stem] for word, stem in stems.items()}


class _Stemmer:
    """FTS5's own tokenizer, reached through a tiny table in memory."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._conn: sqlite3.Connection | None = None
        self._known: dict[str, str] = {}

    def stem(self, word: str) -> str:
        with self._lock:
            if word not in self._known:
                if len(self._known) > 50_000:
                    self._known.clear()
                self._known[word] = self._ask(word)
            return self._known[word]

    def _ask(self, word: str) -> str:
        if self._conn is None:
            self._conn = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
            self._conn.execute(f"CREATE VIRTUAL TABLE one USING fts5 (text, tokenize = '{TOKENIZER}')")
            self._conn.execute("CREATE VIRTUAL TABLE terms USING fts5vocab('one', 'row')")
        self._conn.execute("DELETE FROM one")
        self._conn.execute("INSERT INTO one VALUES (?)", (word,))
        row = self._conn.execute("SELECT term FROM terms").fetchone()
        return str(row[0]) if row else word


_STEMMER = _Stemmer()
