"""`policies.db`: the generations of a policy as rows, and an append-only list of everything that happened to them."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memory.base import now
from memory.sqlite.database import clear_errors, open_database, writing
from memory.sqlite.schema import run_script
from memory.sqlite.sql import Database, Migrations

COLUMNS = (
    "number", "version", "adapter", "sha256", "model", "weights", "tokenizer", "parent", "metrics", "config", "state",
    "before", "created_at",
)  # fmt: skip
EVENT = ("seq", "type", "version", "state", "reason", "data", "created_at")
TABLES = """
CREATE TABLE generations (
    number INTEGER PRIMARY KEY,
    version TEXT NOT NULL UNIQUE,
    adapter TEXT,                -- folder below the registry's; none = the base model itself
    sha256 TEXT NOT NULL,        -- of the adapter
    model TEXT NOT NULL,
    weights TEXT NOT NULL,       -- hashes of the base
    tokenizer TEXT NOT NULL,
    parent TEXT REFERENCES generations (version),
    metrics TEXT NOT NULL,
    config TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('candidate', 'canary', 'live', 'retired')),
    before TEXT REFERENCES generations (version),    -- what was live when it was promoted
    created_at TEXT NOT NULL
);
CREATE UNIQUE INDEX one_live ON generations (state) WHERE state = 'live';
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    type TEXT NOT NULL,
    version TEXT NOT NULL,
    state TEXT NOT NULL,         -- afterwards
    reason TEXT NOT NULL,
    data TEXT NOT NULL,
    created_at TEXT NOT NULL
);
CREATE INDEX events_version ON events (version);
CREATE TRIGGER events_no_update BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'the events are append-only'); END;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'the events are append-only'); END;
"""
MIGRATIONS = Migrations("evolve.policies")


class GenerationsFile:
    """The rows. Threads may share it; each process opens its own. What writes belongs into a `transaction`."""

    def __init__(self, path: Path, *, read_only: bool) -> None:
        """Open the file, made when it is missing. Raises as `open_database`."""
        self._path, self._lock = str(path), threading.RLock()
        self._conn = open_database(path, read_only=read_only, migrations=MIGRATIONS)

    def rows(self, **equal: str) -> list[dict[str, Any]]:
        """Return the generations whose columns have these values, by number. Raises `JournalError`."""
        where = " AND ".join(f"{column} = ?" for column in equal) or "TRUE"
        return self._read(COLUMNS, f"FROM generations WHERE {where} ORDER BY number", *equal.values())

    def events(self, version: str | None = None) -> list[dict[str, Any]]:
        """Return what happened to one generation, or to all, in order. Raises `JournalError`."""
        return self._read(EVENT, "FROM events WHERE ? IS NULL OR version = ? ORDER BY seq", version, version)

    def add(self, row: Mapping[str, Any]) -> None:
        """Write a generation, made now; what else it does not name is NULL."""
        values = [row.get(column) for column in COLUMNS[:-1]]
        marks = ", ".join("?" * len(COLUMNS))
        sql = f"INSERT INTO generations ({', '.join(COLUMNS)}) VALUES ({marks})"
        self._conn.execute(sql, (*values, now().isoformat()))

    def change(self, version: str, **values: str) -> None:
        """Set columns of a generation."""
        columns = ", ".join(f"{column} = ?" for column in values)
        self._conn.execute(f"UPDATE generations SET {columns} WHERE version = ?", (*values.values(), version))

    def happened(self, version: str, kind: str, state: str, reason: str, data: str) -> None:
        """Write down what happened to a generation, whose state is `state` now; `data` is JSON."""
        sql = f"INSERT INTO events ({', '.join(EVENT[1:])}) VALUES (?, ?, ?, ?, ?, ?)"
        self._conn.execute(sql, (kind, version, state, reason, data, now().isoformat()))

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Keep all that is written meanwhile, or nothing. Raises `JournalError`."""
        with self._lock, clear_errors(self._path), writing(self._conn):
            yield

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        with self._lock:
            self._conn.close()

    def _read(self, columns: tuple[str, ...], rest: str, *values: str | None) -> list[dict[str, Any]]:
        with self._lock, clear_errors(self._path):
            rows = self._conn.execute(f"SELECT {', '.join(columns)} {rest}", values).fetchall()
        return [dict(zip(columns, row, strict=True)) for row in rows]


@MIGRATIONS()
def m001_generations(db: Database) -> None:
    """Schema version 1."""
    run_script(db, TABLES)
