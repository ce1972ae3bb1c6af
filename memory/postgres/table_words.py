"""Words in PostgreSQL: a table of stems, which are those that FTS5 makes, so that recall ranks alike in both.

PostgreSQL's own search has other stems and ranks without the length of a text and the rarity of a word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.database_engine import Connection
from memory.sqlite.fts_words import stems

_LONGEST = 2000
"""Most bytes of a stem that is indexed: a row of a B-tree takes 2,704. A longer one, such as a key, only counts in the
length of its text."""


class TableWords:
    """The words of the tables `record_words` and `record_lengths`; see `memory.database_engine.Words`."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def put(self, row: int, text: str) -> None:
        said = stems(text)
        found = Counter(stem for stem in said if len(stem.encode()) <= _LONGEST)
        self._conn.execute('INSERT INTO record_lengths ("row", words) VALUES (?, ?)', (row, len(said)))
        self._conn.execute(
            'INSERT INTO record_words (term, "row", times) SELECT term, ?, times'
            " FROM unnest(?::text[], ?::bigint[]) AS found (term, times)",
            (row, list(found), list(found.values())),
        )

    def remove(self, row: int) -> None:
        for table in ("record_words", "record_lengths"):
            self._conn.execute(f'DELETE FROM {table} WHERE "row" = ?', (row,))

    def clear(self) -> None:
        for table in ("record_words", "record_lengths"):
            self._conn.execute(f"DELETE FROM {table}")

    def records(self, asked: Mapping[str, str], namespace: str | None, most: int | None) -> dict[str, int]:
        own, values = _of(namespace, "w")
        held = f"SELECT 1 FROM record_words w{own} WHERE w.term = asked.term LIMIT ?"
        counted = f"SELECT term, (SELECT count(*) FROM ({held}) AS held) FROM unnest(?::text[]) AS asked (term)"
        return dict(self._conn.execute(counted, (*values, most, list(asked))).fetchall())

    def totals(self, namespace: str | None = None) -> tuple[int, int]:
        own, values = _of(namespace, "l")
        counted = f"SELECT count(*), coalesce(sum(l.words), 0) FROM record_lengths l{own}"
        return self._conn.execute(counted, values).fetchone()

    def places(
        self, stem: str, namespace: str | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        own, values = _of(namespace, "w")
        found = self._conn.execute(
            f'SELECT w."row", w.times, l.words FROM record_words w{own} JOIN record_lengths l ON l."row" = w."row"'
            ' WHERE w.term = ? ORDER BY w."row"',
            (*values, stem),
        ).fetchall()
        rows, times, lengths = zip(*found, strict=True) if found else ((), (), ())
        return np.array(rows, np.int64), np.array(times, np.int64), np.array(lengths, np.float64)

    def missing(self) -> int:
        wanted = 'SELECT r.row FROM records r WHERE r.forgotten = 0 EXCEPT SELECT l."row" FROM record_lengths l'
        return self._conn.execute(f"SELECT count(*) FROM ({wanted}) AS missing").fetchone()[0]

    def holding(self, words: Sequence[str]) -> tuple[str, list[Any]]:
        found = [(stem, word is words[-1]) for word in words for stem in stems(word)]
        one = 'r.row IN (SELECT w."row" FROM record_words w WHERE w.term {} ?)'
        condition = " AND ".join(one.format("LIKE" if unfinished else "=") for _, unfinished in found)
        return condition or "1 = 1", [f"{stem}%" if unfinished else stem for stem, unfinished in found]


def _of(namespace: str | None, table: str) -> tuple[str, tuple[str, ...]]:
    """Return what joins a table of words to the records of a namespace, with its parameters; nothing for all."""
    if namespace is None:
        return "", ()
    return f' JOIN records r ON r.row = {table}."row" AND r.namespace = ?', (namespace,)
