"""Moves a workspace from one database to another: every event under its number, its text, and the vectors.

What is derived is made anew there by the code that live commits use, so that arriving is a check: a journal that cannot
be replayed does not arrive.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from memory.content import canonical
from memory.doctor import rebuild_text, replay
from memory.errors import BadInput
from memory.journal import Journal

TABLES = {
    "events": (("seq",), ("type", "namespace", "run_id", "subject", "meta", "content", "created_at")),
    "content": (("hash",), ("body",)),
    "embeddings": (("record_id", "version"), ("model", "dim", "sha256", "vector")),
    "embedding_cache": (("model", "sha256"), ("dim", "vector")),
}
"""What is copied: the columns of each table's key, and the others."""
_ROWS = 1000


def move(source: Journal, target: Journal) -> int:
    """Copy all of a workspace into an empty one, in one transaction; return how many events there are.

    Writers of the source wait meanwhile. Raises `BadInput` where the target holds events already.
    """
    with source.transaction(), target.transaction() as conn:
        if there := target.position():
            raise BadInput(f"{target.engine.name} holds a workspace of {there} events; give an empty place")
        for table, (key, others) in TABLES.items():
            columns = key + others
            into = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
            for rows in _pages(source, table):
                conn.executemany(into, rows)
        count = replay(conn, conn)
        rebuild_text(target)
    return count


def fingerprint(journal: Journal) -> str:
    """Return a sha256 over every event and every text: equal where two databases hold the same workspace."""
    whole = hashlib.sha256()
    for table in ("events", "content"):
        for rows in _pages(journal, table):
            whole.update(canonical([list(row) for row in rows]).encode())
    return whole.hexdigest()


def _pages(journal: Journal, table: str) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of a table in the order of its key, some at a time."""
    key, others = TABLES[table]
    names, marks = ", ".join(key), ", ".join("?" * len(key))
    every = f"SELECT {', '.join(key + others)} FROM {table}"
    rows = journal.query(f"{every} ORDER BY {names} LIMIT {_ROWS}")
    while rows:
        yield rows
        rows = journal.query(
            f"{every} WHERE ({names}) > ({marks}) ORDER BY {names} LIMIT {_ROWS}", rows[-1][: len(key)]
        )


def copy_to(journal: Journal, path: Path) -> None:
    """Write a workspace, as it is at one moment, to a new SQLite file."""
    with journal.lock, journal.engine.errors():
        if journal.engine.copy_to(path):
            return
    with closing(Journal(path)) as target:
        move(journal, target)
