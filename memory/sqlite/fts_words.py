"""Words in SQLite: FTS5 stems them and keeps the postings.

Its tables of places and sizes are read directly. FTS5's own `bm25()` visits every posting twice and asks for the length
of every record again: most of the time of a recall. Texts are counted by a match, which ends where it may; the table of
vocabulary counts to the end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.sqlite.sql import sqlite3

TOKENIZER = "porter unicode61"
"""As in the `record_text` table."""


class FtsWords:
    """The words of the FTS5 table `record_text`; see `memory.database_engine.Words`."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        """Attach to the table of `conn`; makes temporary views of it and writes nothing."""
        self._conn = conn
        conn.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS temp.record_text_places"
            " USING fts5vocab('main', 'record_text', 'instance')"
        )

    def put(self, row: int, text: str) -> None:
        self._conn.execute("INSERT INTO record_text (rowid, text) VALUES (?, ?)", (row, text))

    def remove(self, row: int) -> None:
        self._conn.execute("DELETE FROM record_text WHERE rowid = ?", (row,))

    def clear(self) -> None:
        self._conn.execute("DELETE FROM record_text")

    def records(self, asked: Mapping[str, str], namespace: str | None, most: int | None) -> dict[str, int]:
        own = "" if namespace is None else " CROSS JOIN records r ON r.row = t.rowid AND r.namespace = ?"
        held = f"SELECT 1 FROM record_text t{own} WHERE t.record_text MATCH asked.value LIMIT ?"
        words = json.dumps([f'"{word}"' for word in asked.values()])
        counted = self._conn.execute(
            f"SELECT (SELECT count(*) FROM ({held})) FROM json_each(?) asked ORDER BY asked.key",
            (*([] if namespace is None else [namespace]), -1 if most is None else most, words),
        )
        return {stem: count for stem, (count,) in zip(asked, counted.fetchall(), strict=True)}

    def totals(self, namespace: str | None = None) -> tuple[int, int]:
        if namespace is None:
            (block,) = self._conn.execute("SELECT block FROM record_text_data WHERE id = 1").fetchone()
            return _number(block), _number(block, 1)
        sizes = self._conn.execute(
            "SELECT d.sz FROM record_text_docsize d CROSS JOIN records r ON r.row = d.id WHERE r.namespace = ?",
            (namespace,),
        ).fetchall()
        return len(sizes), sum(_number(size) for (size,) in sizes)

    def places(
        self, stem: str, namespace: str | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        own = "" if namespace is None else " CROSS JOIN records r ON r.row = p.doc AND r.namespace = ?"
        places = self._conn.execute(
            f"SELECT p.doc, d.sz FROM temp.record_text_places p{own}"
            " CROSS JOIN record_text_docsize d ON d.id = p.doc WHERE p.term = ?",
            (stem,) if namespace is None else (namespace, stem),
        ).fetchall()
        at = np.array([row for row, _ in places], dtype=np.int64)
        rows, first, times = np.unique(at, return_index=True, return_counts=True)
        return rows, times, np.array([_number(size) for _, size in places], dtype=np.float64)[first]

    def missing(self) -> int:
        wanted = "SELECT row FROM records WHERE forgotten = 0 EXCEPT SELECT rowid FROM record_text"
        return int(self._conn.execute(f"SELECT count(*) FROM ({wanted})").fetchone()[0])

    def holding(self, words: Sequence[str]) -> tuple[str, list[Any]]:
        match = " AND ".join([*(f'"{word}"' for word in words[:-1]), *(f'"{word}"*' for word in words[-1:])])
        return "r.row IN (SELECT rowid FROM record_text WHERE record_text MATCH ?)", [match]


def texts_in_memory(texts: Sequence[tuple[int, str]]) -> FtsWords:
    """Return an index of texts, each with its number, that is in no file."""
    conn = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    conn.execute(f"CREATE VIRTUAL TABLE record_text USING fts5 (text, tokenize = '{TOKENIZER}')")
    conn.executemany("INSERT INTO record_text (rowid, text) VALUES (?, ?)", texts)
    return FtsWords(conn)


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

    def stems(self, text: str) -> list[str]:
        with self._lock:
            if self._conn is None:
                self._conn = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
                self._conn.execute(f"CREATE VIRTUAL TABLE one USING fts5 (text, tokenize = '{TOKENIZER}')")
                self._conn.execute("CREATE VIRTUAL TABLE terms USING fts5vocab('one', 'instance')")
            self._conn.execute("DELETE FROM one")
            self._conn.execute("INSERT INTO one VALUES (?)", (text,))
            return [str(term) for (term,) in self._conn.execute('SELECT term FROM terms ORDER BY "offset"')]


_STEMMER = _Stemmer()


def stems(text: str) -> list[str]:
    """Return the stem of each word of a text, in order, as FTS5 makes them."""
    return _STEMMER.stems(text)


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """Return the stem of one word; the word itself where FTS5 sees none."""
    return next(iter(stems(word)), word)
