"""Moves a workspace from one database to another: every event under its number, its text, and the vectors.

What is derived is made anew there by the code that live commits use, so that arriving is a check: a journal that cannot
be replayed does not arrive.
"""

from __future__ import annotations

import hashlib
from contextlib import closing
from pathlib import Path

from memory.content import canonical
from memory.doctor import rebuild_text, replay
from memory.errors import BadInput
from memory.journal import Journal

TABLES = {
    "events": ("seq", "type", "namespace", "run_id", "subject", "meta", "content", "created_at"),
    "content": ("hash", "body"),
    "embeddings": ("record_id", "version", "model", "dim", "sha256", "vector"),
    "embedding_cache": ("model", "sha256", "dim", "vector"),
}
"""What is copied; each with an order of its own in its first columns."""
_ROWS = 1000


def move(source: Journal, target: Journal) -> int:
    """Copy all of a workspace into an empty one, in one transaction; return how many events there are.

    Writers of the source wait meanwhile. Raises `BadInput` where the target holds events already.
    """
    with source.transaction(), target.transaction() as conn:
        if there := target.position():
            raise BadInput(f"{target.engine.name} holds a workspace of {there} events; give an empty place")
        for table, columns in TABLES.items():
            names, marks = ", ".join(columns), ", ".join("?" * len(columns))
            rows = source.query(f"SELECT {names} FROM {table} ORDER BY 1, 2")
            for start in range(0, len(rows), _ROWS):
                conn.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", rows[start : start + _ROWS])
        count = replay(conn, conn)
        rebuild_text(target)
    return count


def fingerprint(journal: Journal) -> str:
    """Return a sha256 over every event and every text: equal where two databases hold the same workspace."""
    whole = hashlib.sha256()
    for table in ("events", "content"):
        columns = TABLES[table]
        for row in journal.query(f"SELECT {', '.join(columns)} FROM {table} ORDER BY 1"):
            whole.update(canonical(list(row)).encode())
    return whole.hexdigest()


def copy_to(journal: Journal, path: Path) -> None:
    """Write a workspace, as it is at one moment, to a new SQLite file."""
    with journal.lock, journal.engine.errors():
        if journal.engine.copy_to(path):
            return
    with closing(Journal(path)) as target:
        move(journal, target)
