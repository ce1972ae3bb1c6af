"""A workspace's database as a SQLite file; see `memory.database_engine.Engine`."""

from __future__ import annotations

import sqlite3 as standard
from contextlib import AbstractContextManager, closing
from pathlib import Path

from memory.errors import JournalError
from memory.locks import held, is_held
from memory.sqlite.database import check_version, clear_errors, open_database
from memory.sqlite.fts_words import FtsWords
from memory.sqlite.schema import MIGRATIONS
from memory.sqlite.sql import sqlite3
from memory.table_schema import PROJECTION

SqliteError = sqlite3.Error
VERSION = sqlite3.sqlite_version_info


class SqliteEngine:
    """One connection to the file."""

    def __init__(self, path: Path, *, read_only: bool) -> None:
        """Open or create the file; errors as `memory.sqlite.database.open_database`."""
        self._path, self.name = path, str(path)
        self.conn = open_database(path, read_only=read_only)
        self.words = FtsWords(self.conn)
        self._schema = self._schema_now()

    @property
    def in_transaction(self) -> bool:
        return self.conn.in_transaction

    def errors(self) -> AbstractContextManager[None]:
        return clear_errors(self.name)

    def begin(self) -> None:
        self.conn.execute("BEGIN IMMEDIATE")
        now_there = self._schema_now()
        if now_there != self._schema:
            check_version(self.conn, self._path, MIGRATIONS)
            self._schema = now_there

    def begin_reading(self) -> None:
        self.conn.execute("BEGIN")

    def _schema_now(self) -> int:
        """Return SQLite's own count of changes to the schema."""
        return int(self.conn.execute("PRAGMA schema_version").fetchone()[0])

    def outside(self, written: int) -> int:
        """Return SQLite's own count; `written` is not needed for it."""
        return int(self.conn.execute("PRAGMA data_version").fetchone()[0])

    def examine(self) -> list[str]:
        try:
            with self.errors():
                found = [message for (message,) in self.conn.execute("PRAGMA integrity_check(20)")]
        except JournalError as error:
            found = [str(error)]
        return [f"{self.name}: {'; '.join(message.splitlines())}" for message in found if message != "ok"]

    def size(self) -> int:
        return self._path.stat().st_size

    def copy_to(self, path: Path) -> bool:
        with closing(sqlite3.connect(path)) as target:
            self.conn.backup(target)
        return True

    def scrub(self) -> None:
        try:
            self.conn.execute("INSERT INTO record_text (record_text) VALUES ('rebuild')")
            self.conn.execute("VACUUM")
            ((busy, _, _),) = self.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            busy = True
        if busy:
            raise JournalError(
                f"{self.name}: the text is gone from every table, but a process that is reading or writing keeps old "
                "pages on disk. Close the other processes of this workspace and forget the same once more"
            )

    def lease(self, name: str) -> AbstractContextManager[bool]:
        return held(self._lock_of(name))

    def leased(self, name: str) -> bool:
        return is_held(self._lock_of(name))

    def _lock_of(self, name: str) -> Path:
        return self._path.parent / "runs" / f"{name}.lock"

    def close(self) -> None:
        self.conn.close()


def empty_projection() -> closing[standard.Connection]:
    """Return a database in memory that holds the tables of the projection, empty."""
    conn = sqlite3.connect(":memory:")
    conn.executescript(PROJECTION)
    return closing(conn)


def known_fault(version: tuple[int, ...]) -> str:
    """Return what is known against this version of SQLite, if anything.

    Up to 3.51.2, a write that meets the end of a checkpoint of another process can damage a database in WAL mode.
    The mending was carried back to 3.50.7 and 3.44.6.
    """
    if version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51, 0) or (3, 44, 6) <= version < (3, 45, 0):
        return ""
    number = ".".join(map(str, version))
    return (
        f"SQLite {number} can, rarely, damage a database when several processes write to it at the same moment (the "
        "WAL-reset bug)"
    )
