"""Moves a workspace from one database to another: every event under its number, its text, and the vectors.

What is derived is made anew there by the code that live commits use, so that arriving is a check: a journal that cannot
be replayed does not arrive.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from memory.content import canonical
from memory.doctor import examine, rebuild_text, replay
from memory.errors import BadInput, JournalError
from memory.journal import Journal

TABLES = {
    "events": (("seq",), ("type", "namespace", "run_id", "subject", "meta", "content", "created_at")),
    "content": (("hash",), ("body",)),
    "embeddings": (("record_id", "version"), ("model", "dim", "sha256", "vector")),
    "embedding_cache": (("model", "sha256"), ("dim", "vector")),
}
"""What is copied: the columns of each table's key, and the others."""
_ROWS = 1000
_HAPPENED = "('trajectory', 'reflection', 'reply', 'eval', 'run')"
_NEEDED = {
    "events": "type <> 'reply'",
    "content": "hash IN (SELECT content_hash FROM versions UNION SELECT content FROM events"
    f" WHERE content IS NOT NULL AND type NOT IN {_HAPPENED})",
}
"""Which rows knowledge needs. Episodes are counted for how old a mark is, so their events are among them."""


def move(source: Journal, target: Journal) -> tuple[int, str]:
    """Copy all of a workspace into an empty one; return how many events there are, and the sha256 of both.

    All in one transaction of the target, in which it is compared with the source and examined: half of it never stays.
    Nobody writes to the source while it is read, nor at the end. What is derived is made in between, for a server ends
    a transaction that waits for long. Raises `BadInput` where the target holds events already, `JournalError` where
    what arrived is not the same, or not sound, or where somebody wrote to the source meanwhile.
    """
    with ExitStack() as last, target.transaction():
        with source.transaction():
            _copy(source, target)
            position, sha256 = source.position(), fingerprint(source)
        count = _derive(target)
        wrong = [finding.message for finding in examine(target) if finding.level == "error"]
        if fingerprint(target) != sha256:
            wrong.append("its events and texts are not those of the source")
        if wrong:
            raise JournalError(f"{target.engine.name}: what arrived is not sound ({wrong[0]}); nothing was kept there")
        last.enter_context(source.transaction())  # it ends after the target's
        if (written := source.position() - position) > 0:
            raise JournalError(
                f"{source.engine.name}: {written} events were written while it was moved, so nothing was kept at "
                f"{target.engine.name}; close what writes there, then move again"
            )
    return count, sha256


def _copy(source: Journal, target: Journal, *, only_knowledge: bool = False) -> None:
    """Copy all events, texts and vectors, or those that knowledge needs."""
    if there := target.position():
        raise BadInput(f"{target.engine.name} holds a workspace of {there} events; give an empty place")
    for table, (key, others) in TABLES.items():
        columns = key + others
        into = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        for rows in _pages(source, table, _NEEDED.get(table, "") if only_knowledge else ""):
            target.conn.executemany(into, rows)


def _derive(target: Journal) -> int:
    """Make the tables that follow from the events; return how many events there are."""
    count = replay(target.conn, target.conn)
    rebuild_text(target)
    return count


def fingerprint(journal: Journal) -> str:
    """Return a sha256 over every event and every text: equal where two databases hold the same workspace."""
    whole = hashlib.sha256()
    for table in ("events", "content"):
        for rows in _pages(journal, table):
            whole.update(canonical([list(row) for row in rows]).encode())
    return whole.hexdigest()


def _pages(journal: Journal, table: str, condition: str = "") -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of a table in the order of its key, some at a time."""
    key, others = TABLES[table]
    names, marks = ", ".join(key), ", ".join("?" * len(key))
    every = f"SELECT {', '.join(key + others)} FROM {table} WHERE {condition or '1 = 1'}"
    rows = journal.query(f"{every} ORDER BY {names} LIMIT {_ROWS}")
    while rows:
        yield rows
        rows = journal.query(f"{every} AND ({names}) > ({marks}) ORDER BY {names} LIMIT {_ROWS}", rows[-1][: len(key)])


def copy_to(journal: Journal, path: Path, *, only_knowledge: bool = False) -> None:
    """Write a workspace, as it is at one moment, to a new SQLite file; no writer waits.

    `only_knowledge` may leave out what nobody needs who asks for knowledge: replies, and the texts of what happened.
    """
    with journal.lock, journal.engine.errors():
        if journal.engine.copy_to(path):
            return
    with closing(Journal(path)) as target, target.transaction():
        with journal.reading():
            _copy(journal, target, only_knowledge=only_knowledge)
        _derive(target)
