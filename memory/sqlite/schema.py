"""The schema of a workspace's SQLite file, as sqlite-utils migrations: the tables, the triggers, the index of words."""

from __future__ import annotations

from memory.sqlite.sql import Database, Migrations, sqlite3
from memory.table_schema import DERIVED, PROJECTION, TRUTH

APPLICATION_ID = 0x65766C76
"""`PRAGMA application_id` of a workspace database ("evlv")."""

MIGRATIONS = Migrations("evolve")

APPEND_ONLY = """
CREATE TRIGGER events_no_update BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
"""

WORDS = """
CREATE VIRTUAL TABLE record_text USING fts5 (text, tokenize = 'porter unicode61');
"""


def run_script(db: Database, script: str) -> None:
    """Execute statements one by one inside the open transaction (`executescript` would commit it)."""
    statement = ""
    for line in script.splitlines():
        statement += line.split("--")[0].rstrip() + "\n"
        if statement.strip() and sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""


@MIGRATIONS()
def m001_base(db: Database) -> None:
    """Schema version 1."""
    run_script(db, TRUTH + APPEND_ONLY + PROJECTION + WORDS + DERIVED)
