"""Tables of `policies.db`: the generations, and an append-only list of everything that happened to them."""

from __future__ import annotations

from sqlite_utils import Database, Migrations

from memory.schema import run_script

MIGRATIONS = Migrations("evolve.policies")

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


@MIGRATIONS()
def m001_generations(db: Database) -> None:
    """Schema version 1."""
    run_script(db, TABLES)
