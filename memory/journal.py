"""The append-only journal: one SQLite connection, one lock, transactions, events and content.

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
from memory.database import check_version, clear_errors, open_database
from memory.errors import JournalError
from memory.projection import Entry, apply
from memory.records import now
from memory.schema import MIGRATIONS
from memory.sql import sqlite3


class Journal:
    """The open database of one workspace."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Open or create the database; errors as `memory.database.open_database`."""
        self.path = path
        self.read_only = read_only
        self.lock = threading.RLock()
        self.conn = open_database(path, read_only=read_only)
        self._schema = self._schema_now()
        self._forgotten = 0

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """Hold the lock and one write transaction; everything inside is kept, or nothing.

        Nested use joins the outer transaction. Raises `JournalError` when the database is locked, full, or read-only,
        `SchemaTooNew` when a newer version migrated it since it was opened.
        """
        if self.read_only:
            raise JournalError(f"{self.path}: opened read-only; open it for writing to change knowledge")
        with self.lock, clear_errors(str(self.path)):
            if self.conn.in_transaction:
                yield self.conn
                return
            self.conn.execute("BEGIN IMMEDIATE")
            try:
                self._refuse_newer()
                yield self.conn
                self.conn.execute("COMMIT")
            except BaseException:
                if self.conn.in_transaction:
                    self.conn.execute("ROLLBACK")
                raise

    def _schema_now(self) -> int:
        """Return SQLite's own count of changes to the schema."""
        return int(self.conn.execute("PRAGMA schema_version").fetchone()[0])

    def _refuse_newer(self) -> None:
        """Raise `SchemaTooNew` when another process migrated the database beyond this version."""
        now_there = self._schema_now()
        if now_there != self._schema:
            check_version(self.conn, self.path, MIGRATIONS)
            self._schema = now_there

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a reading statement."""
        with self.lock, clear_errors(str(self.path)):
            return self.conn.execute(sql, parameters).fetchall()

    def put_body(self, body: str) -> str:
        """Store what `clean_body` made and return its hash. Needs an open transaction.

        Cleaning is not done here: it takes time, and a transaction keeps every other writer waiting.
        """
        key = digest(body)
        self.conn.execute("INSERT OR IGNORE INTO content (hash, body) VALUES (?, ?)", (key, body))
        return key

    def load(self, key: str) -> Any | None:
        """Return the JSON value stored under a hash, or None when it was purged."""
        rows = self.query("SELECT body FROM content WHERE hash = ?", (key,))
        return json.loads(rows[0][0]) if rows else None

    def write(self, entry: Entry, at: datetime | None = None) -> int:
        """Append an event of now, or `at`, apply it to the projection, and return its seq. Needs a transaction."""
        created = (at or now()).isoformat()
        cursor = self.conn.execute(
            "INSERT INTO events (type, namespace, run_id, subject, meta, content, created_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (entry.type, entry.namespace, entry.run_id, entry.subject, canonical(entry.meta), entry.content, created),
        )
        seq = int(cursor.lastrowid or 0)
        apply(self.conn, seq, entry, created)
        self._forgotten += entry.type == "forgotten"
        return seq

    def stamp(self) -> tuple[int, int]:
        """Return what changes when another connection wrote, or something was forgotten through this one.

        As long as it stays, what was read or written here is still what the journal holds.
        """
        return int(self.query("PRAGMA data_version")[0][0]), self._forgotten

    def position(self) -> int:
        """Return the seq of the last event, 0 in an empty journal."""
        return int(self.query("SELECT coalesce(max(seq), 0) FROM events")[0][0])

    def close(self) -> None:
        """Close the connection; closing twice is allowed."""
        with self.lock:
            self.conn.close()
