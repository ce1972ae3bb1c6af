"""The append-only journal: one connection to the database, one lock, transactions, events and content.

Threads may share a `Journal`: every method takes its lock, and a transaction holds it to the end. Code that reads the
connection directly does so inside `with journal.lock`. Processes never share one; each opens its own.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from memory.content import canonical, digest
from memory.database_engine import Connection, Engine
from memory.errors import JournalError
from memory.projection import Entry, apply
from memory.records import now

ALL = 2**62
"""A `LIMIT` that nothing reaches."""


class Journal:
    """The open database of one workspace."""

    def __init__(self, path: Path, *, read_only: bool = False, database: str = "") -> None:
        """Open or create the SQLite file at `path`, or the database on a server; errors as those of the engines.

        What a workspace leaves on this machine stands beside `path` in either case.
        """
        self.path, self.database, self.read_only = path, database, read_only
        self.lock = threading.RLock()
        self.engine = _opened(path, database, read_only=read_only)
        self.conn, self.words = self.engine.conn, self.engine.words
        self._forgotten = self._written = 0
        self._next: int | None = None
        """Number of the next event of the open transaction; None = not asked yet."""

    @contextmanager
    def transaction(self) -> Generator[Connection]:
        """Hold the lock and one write transaction; everything inside is kept, or nothing.

        Nested use joins the outer transaction. Raises `JournalError` when the database is locked, full, read-only, or
        cannot be reached, `SchemaTooNew` when a newer version migrated it since it was opened.
        """
        if self.read_only:
            raise JournalError(f"{self.engine.name}: opened read-only; open it for writing to change knowledge")
        with self.lock, self.engine.errors():
            if self.engine.in_transaction:
                yield self.conn
                return
            before, self._next = self._written, None
            try:
                self.engine.begin()
                yield self.conn
                self.conn.execute("COMMIT")
            except BaseException:
                self._written = before
                if self.engine.in_transaction:
                    self.conn.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Generator[None]:
        """Hold the lock and see one moment: everything that is read inside is of it. No writer waits."""
        with self.lock, self.engine.errors():
            if self.engine.in_transaction:
                yield
                return
            self.engine.begin_reading()
            try:
                yield
            finally:
                if self.engine.in_transaction:
                    self.conn.execute("COMMIT")  # after a ROLLBACK psycopg forgets what it has prepared

    def leased(self, name: str) -> bool:
        """Tell whether a living process holds a run, or what else has this name."""
        with self.lock:
            return self.engine.leased(name)

    def size(self) -> int:
        """Return how many bytes the database takes."""
        with self.lock, self.engine.errors():
            return self.engine.size()

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a reading statement."""
        with self.lock, self.engine.errors():
            return self.conn.execute(sql, parameters).fetchall()

    def put_body(self, body: str) -> str:
        """Store what `clean_body` made and return its hash. Needs an open transaction.

        Cleaning is not done here: it takes time, and a transaction keeps every other writer waiting.
        """
        key = digest(body)
        self.conn.execute("INSERT INTO content (hash, body) VALUES (?, ?) ON CONFLICT DO NOTHING", (key, body))
        return key

    def load(self, key: str) -> Any | None:
        """Return the JSON value stored under a hash, or None when it was purged."""
        rows = self.query("SELECT body FROM content WHERE hash = ?", (key,))
        return json.loads(rows[0][0]) if rows else None

    def write(self, entry: Entry, at: datetime | None = None) -> int:
        """Append an event of now, or `at`, apply it to the projection, and return its seq. Needs a transaction."""
        created = (at or now()).isoformat()
        seq = self._next or self.position() + 1  # one writer at a time: no answer has to be waited for to know it
        self._next = seq + 1
        self.conn.execute(
            "INSERT INTO events (seq, type, namespace, run_id, subject, meta, content, created_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                seq,
                entry.type,
                entry.namespace,
                entry.run_id,
                entry.subject,
                canonical(entry.meta),
                entry.content,
                created,
            ),
        )
        self._written += 1
        apply(self.conn, seq, entry, created)
        self._forgotten += entry.type == "forgotten"
        return seq

    def stamp(self) -> tuple[int, int]:
        """Return what changes when another connection wrote, or something was forgotten through this one.

        As long as it stays, what was read or written here is still what the journal holds.
        """
        with self.lock, self.engine.errors():
            return self.engine.outside(self._written), self._forgotten

    def position(self) -> int:
        """Return the seq of the last event, 0 in an empty journal."""
        return int(self.query("SELECT coalesce(max(seq), 0) FROM events")[0][0])

    def close(self) -> None:
        """Close the connection; closing twice is allowed."""
        with self.lock:
            self.engine.close()


def _opened(path: Path, database: str, *, read_only: bool) -> Engine:
    """Return the database of a workspace: the server that `database` names, else the SQLite file at `path`.

    Raises as the engines do.
    """
    if database:
        from memory.postgres.postgres_engine import PostgresEngine

        return PostgresEngine(database, read_only=read_only)
    from memory.sqlite.sqlite_engine import SqliteEngine

    return SqliteEngine(path, read_only=read_only)
