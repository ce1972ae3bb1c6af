"""`telemetry.db` of a workspace: spans and metrics as rows. No truth: it may be deleted at any time.

It is a file of its own so that a run never waits for it and nothing that goes wrong with it touches the journal.
Knows no opentelemetry: reading needs no extra.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from memory.errors import JournalError, NotFound
from memory.sqlite.database import clear_errors, use_wal, writing
from memory.sqlite.sql import sqlite3

FILE = "telemetry.db"
VERSION = 1
BUSY_SECONDS = 5.0
ADVICE = "Delete this file: it holds traces only, the journal holds what was done."
_SCHEMA = """
CREATE TABLE IF NOT EXISTS spans (
    span_id TEXT NOT NULL, trace_id TEXT NOT NULL, parent_id TEXT, run_id TEXT NOT NULL, task_id TEXT,
    name TEXT NOT NULL, kind TEXT NOT NULL, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, error TEXT,
    attributes TEXT NOT NULL, events TEXT NOT NULL, content TEXT
) STRICT;
CREATE INDEX IF NOT EXISTS spans_run ON spans (run_id);
CREATE INDEX IF NOT EXISTS spans_task ON spans (task_id);
CREATE TABLE IF NOT EXISTS metrics (
    run_id TEXT NOT NULL, name TEXT NOT NULL, attributes TEXT NOT NULL, start_ns INTEGER NOT NULL, unit TEXT NOT NULL,
    count INTEGER NOT NULL, sum REAL NOT NULL, min REAL NOT NULL, max REAL NOT NULL, bounds TEXT NOT NULL,
    counts TEXT NOT NULL, PRIMARY KEY (run_id, name, attributes, start_ns)
) STRICT;
"""
SPAN = (
    "span_id", "trace_id", "parent_id", "run_id", "task_id", "name", "kind", "start_ns", "end_ns", "error",
    "attributes", "events", "content",
)  # fmt: skip
METRIC = (
    "run_id", "name", "attributes", "start_ns", "unit", "count", "sum", "min", "max", "bounds", "counts",
)  # fmt: skip
_JSON = ("attributes", "events", "content", "bounds", "counts")


def open_telemetry(path: Path) -> sqlite3.Connection:
    """Return a connection to write with, by one thread at a time. Raises `sqlite3.Error`, `JournalError`."""
    use_wal(path)
    conn = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        conn.execute("PRAGMA synchronous = NORMAL")
        _check_version(conn, path)
        conn.executescript(_SCHEMA)
        conn.execute(f"PRAGMA user_version = {VERSION}")
    except BaseException:
        conn.close()
        raise
    return conn


def insert(conn: sqlite3.Connection, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write rows in one transaction; a row that is there already is replaced."""
    marks = ", ".join("?" * len(columns))
    with writing(conn):
        conn.executemany(f"INSERT OR REPLACE INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)


def read(workspace: Path, table: str, columns: Sequence[str], where: str, *values: str) -> list[dict[str, Any]]:
    """Return rows, oldest first. Raises `NotFound` where no run was traced, `JournalError` for an unreadable file."""
    path = workspace / FILE
    if not path.is_file():
        raise NotFound(f"no traces at {str(path)!r}; set `enabled = true` in [telemetry] and run something")
    sql = f"SELECT {', '.join(columns)} FROM {table} WHERE {where} ORDER BY start_ns, rowid"
    uri = f"{path.resolve().as_uri()}?mode=ro"
    with clear_errors(str(path), damaged=ADVICE), closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)) as conn:
        _check_version(conn, path)
        rows = conn.execute(sql, values).fetchall()
    found = (dict(zip(columns, row, strict=True)) for row in rows)
    return [{name: json.loads(v) if name in _JSON and v else v for name, v in row.items()} for row in found]


def erase_content(workspace: Path) -> int:
    """Erase every captured text, for good, and return how many spans held one."""
    path = workspace / FILE
    if not path.is_file():
        return 0
    with clear_errors(str(path), damaged=ADVICE), closing(open_telemetry(path)) as conn:
        count = conn.execute("UPDATE spans SET content = NULL WHERE content IS NOT NULL").rowcount
        if count:
            conn.execute("VACUUM")
            conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return count


def _check_version(conn: sqlite3.Connection, path: Path) -> None:
    version = conn.execute("PRAGMA user_version").fetchone()[0]
    if version not in (0, VERSION):
        raise JournalError(f"{path}: traces of format {version}, this version reads {VERSION}. {ADVICE}")
