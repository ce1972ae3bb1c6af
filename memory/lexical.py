"""The word side of recall: BM25 over an FTS5 table, at a bounded cost per query.

Common words cost the most and say the least: BM25 visits every record that has one. So the rarest words of a query are
used first, until the records they occur in reach `POSTINGS`.

FTS5 stems the words and keeps the postings. The score is computed here, by the formula of its `bm25()`, since that one
visits every posting twice and asks for the length of every record again: most of the time of a recall. With n of N
records that hold a word, f times in a record of d words where the mean is D:

    idf = log((N - n + 0.5) / (n + 0.5)), at least 1e-6    score = sum over words of idf * 2.2 f / (f + 0.3 + 0.9 d / D)
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from memory.sql import sqlite3

POSTINGS = 1000
"""Word occurrences that one query may visit."""
_KEPT = 4096
"""Stems of which the postings are kept."""
Hits = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Row ids, and their scores."""
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


def rarest(words: Sequence[str], frequency: Mapping[str, int], *, postings: int = POSTINGS) -> list[str]:
    """Return the rarest words that occur anywhere, rarest first.

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
    return chosen


class WordSearch:
    """Which records of an FTS5 table hold some words, ranked. Call it with the connection's lock held.

    What was read is kept as long as the `stamp` of a question (whatever tells that no text changed) stays the same.
    """

    def __init__(self, conn: sqlite3.Connection, table: str) -> None:
        """Attach to the FTS5 `table` of `conn`; makes temporary views of it and writes nothing."""
        self._conn, self._table = conn, table
        self._known: dict[str, int] = {}
        self._hits: dict[str, Hits] = {}
        self._totals: tuple[int, int] | None = None
        self._stamp: object = None
        for view, kind in (("terms", "row"), ("places", "instance")):
            name = f"temp.{table}_{view}"
            conn.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS {name} USING fts5vocab('main', '{table}', '{kind}')")

    def best(self, words: Sequence[str], stamp: object) -> Hits:
        """Return every record that holds one of the rarest words with its BM25, best first; equal ones by row id."""
        chosen = rarest(words, self.frequency(words, stamp))
        if not chosen:
            return np.empty(0, np.int64), np.empty(0)
        hits = [self._of(_stem(word)) for word in chosen]
        rows, place = np.unique(np.concatenate([rows for rows, _ in hits]), return_inverse=True)
        scores = np.bincount(place, np.concatenate([scores for _, scores in hits])).astype(np.float64)
        order = np.argsort(-scores, kind="stable")
        return rows[order], scores[order]

    def frequency(self, words: Sequence[str], stamp: object) -> dict[str, int]:
        """Return word -> number of records that hold its stem."""
        if stamp != self._stamp:
            self._known, self._hits, self._totals, self._stamp = {}, {}, None, stamp
        stems = {word: _stem(word) for word in words}
        new = sorted({stem for stem in stems.values() if stem not in self._known})
        if new:
            rows = self._conn.execute(
                f"SELECT term, doc FROM temp.{self._table}_terms WHERE term IN ({', '.join('?' * len(new))})", new
            ).fetchall()
            self._known |= dict.fromkeys(new, 0) | dict(rows)
        return {word: self._known[stem] for word, stem in stems.items()}

    def _of(self, stem: str) -> Hits:
        """Return the records that hold a stem, with what it adds to their scores."""
        found = self._hits.get(stem)
        if found is None:
            if len(self._hits) >= _KEPT:
                self._hits.clear()
            found = self._hits[stem] = self._read(stem)
        return found

    def _read(self, stem: str) -> Hits:
        if self._totals is None:
            (block,) = self._conn.execute(f"SELECT block FROM {self._table}_data WHERE id = 1").fetchone()
            self._totals = _number(block), _number(block, 1)
        places = self._conn.execute(
            f"SELECT p.doc, d.sz FROM temp.{self._table}_places p CROSS JOIN {self._table}_docsize d ON d.id = p.doc"
            " WHERE p.term = ?",
            (stem,),
        ).fetchall()
        at = np.array([row for row, _ in places], dtype=np.int64)
        rows, first, times = np.unique(at, return_index=True, return_counts=True)
        lengths = np.array([_number(size) for _, size in places], dtype=np.float64)[first]
        total, tokens = self._totals
        idf = max(math.log((total - len(rows) + 0.5) / (len(rows) + 0.5)), 1e-6)
        return rows, idf * (times * 2.2 / (times + 1.2 * (0.25 + 0.75 * lengths / (tokens / total))))


def _number(block: bytes, which: int = 0) -> int:
    """Return one of the numbers that FTS5 wrote side by side: seven bits a byte, all but the last with the eighth."""
    value = 0
    for byte in block:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            if not which:
                return value
            which, value = which - 1, 0
    raise ValueError(f"got {block!r}, expected {which + 1} more numbers")


class _Stemmer:
    """FTS5's own tokenizer, reached through a tiny table in memory."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._conn: sqlite3.Connection | None = None

    def stem(self, word: str) -> str:
        with self._lock:
            if self._conn is None:
                self._conn = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
                self._conn.execute(f"CREATE VIRTUAL TABLE one USING fts5 (text, tokenize = '{TOKENIZER}')")
                self._conn.execute("CREATE VIRTUAL TABLE terms USING fts5vocab('one', 'row')")
            self._conn.execute("DELETE FROM one")
            self._conn.execute("INSERT INTO one VALUES (?)", (word,))
            row = self._conn.execute("SELECT term FROM terms").fetchone()
            return str(row[0]) if row else word


_STEMMER = _Stemmer()


@lru_cache(maxsize=50_000)
def _stem(word: str) -> str:
    return _STEMMER.stem(word)
