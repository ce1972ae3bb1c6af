"""Tables of a workspace, declared once, in SQLite's words; `memory/postgres/` puts them into PostgreSQL's.

Three groups. Truth: `events` (append-only, enforced by triggers) and `content` (text by hash). Projection, which
`doctor --rebuild` recreates from the events alone: `namespaces`, `records`, `versions`, `usage`, `record_tasks`,
`ops`, `snapshots`, `trajectories`, `reflections`, `replies`, `evals`, `runs`. Derived from content: the index of words
(each database has its own), `embeddings`, `embedding_cache`, `outbox`.
"""

from __future__ import annotations

TRUTH = """
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    type TEXT NOT NULL,
    namespace TEXT NOT NULL,
    run_id TEXT NOT NULL,
    subject TEXT NOT NULL,
    meta TEXT NOT NULL,      -- structure only (ids, hashes, counts); survives a purge
    content TEXT,            -- hash of free data in `content`
    created_at TEXT NOT NULL
);
CREATE INDEX events_subject ON events (subject);
CREATE INDEX events_run ON events (run_id, type);
CREATE INDEX events_type ON events (type);
CREATE TABLE content (hash TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
"""

PROJECTION = """
CREATE TABLE namespaces (
    namespace TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    next_number INTEGER NOT NULL,
    head INTEGER NOT NULL    -- seq of the last event that changed a record or its usage
);
CREATE TABLE records (
    row INTEGER PRIMARY KEY, -- seq of the event that created it; rowid of `record_text`
    id TEXT NOT NULL UNIQUE,
    namespace TEXT NOT NULL,
    kind TEXT NOT NULL,
    schema_version INTEGER NOT NULL,
    number INTEGER NOT NULL,
    slug TEXT NOT NULL,
    status TEXT NOT NULL,
    version INTEGER NOT NULL,     -- current; a rollback moves it back
    max_version INTEGER NOT NULL, -- highest ever given; the next edit gets max_version + 1
    pinned INTEGER NOT NULL,
    supersedes TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    provenance TEXT NOT NULL,
    ns_version INTEGER NOT NULL,  -- namespace version of its last change
    forgotten INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    seq INTEGER NOT NULL,         -- last event that changed it
    UNIQUE (namespace, number)
);
CREATE INDEX records_live ON records (namespace, status, number);
CREATE INDEX records_hash ON records (content_hash);
CREATE INDEX records_seq ON records (seq);
CREATE TABLE versions (
    record_id TEXT NOT NULL REFERENCES records (id),
    version INTEGER NOT NULL,
    status TEXT NOT NULL,
    pinned INTEGER NOT NULL,
    slug TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    provenance TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (record_id, version)
) WITHOUT ROWID;
CREATE INDEX versions_hash ON versions (content_hash);
CREATE TABLE usage (
    record_id TEXT PRIMARY KEY REFERENCES records (id),
    injected INTEGER NOT NULL, cited INTEGER NOT NULL, helpful INTEGER NOT NULL, harmful INTEGER NOT NULL,
    neutral INTEGER NOT NULL, success INTEGER NOT NULL, failure INTEGER NOT NULL,
    seq INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX usage_seq ON usage (seq);
CREATE TABLE record_tasks (
    record_id TEXT NOT NULL REFERENCES records (id),
    task_id TEXT NOT NULL,
    PRIMARY KEY (record_id, task_id)
) WITHOUT ROWID;
CREATE INDEX record_tasks_task ON record_tasks (task_id);
CREATE TABLE ops (op_id TEXT PRIMARY KEY, record_id TEXT NOT NULL, version INTEGER NOT NULL, seq INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE snapshots (
    id TEXT NOT NULL,
    position INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    body TEXT NOT NULL,      -- JSON [[record id, version, content hash, [usage counts]], ...] sorted by id
    created_at TEXT NOT NULL,
    PRIMARY KEY (id, position)
);
CREATE TABLE trajectories (
    id TEXT PRIMARY KEY, run_id TEXT NOT NULL, task_id TEXT NOT NULL, arm TEXT NOT NULL,
    hash TEXT NOT NULL, seq INTEGER NOT NULL
);
CREATE INDEX trajectories_run ON trajectories (run_id, seq);
CREATE INDEX trajectories_task ON trajectories (task_id);
CREATE TABLE reflections (
    id TEXT PRIMARY KEY, run_id TEXT NOT NULL, task_id TEXT NOT NULL, trajectory_id TEXT NOT NULL,
    parsed INTEGER NOT NULL, hash TEXT NOT NULL, seq INTEGER NOT NULL
);
CREATE INDEX reflections_run ON reflections (run_id, seq);
CREATE INDEX reflections_task ON reflections (task_id);
CREATE TABLE replies (
    key TEXT PRIMARY KEY, run_id TEXT NOT NULL, task_id TEXT NOT NULL, hash TEXT NOT NULL, seq INTEGER NOT NULL
);
CREATE INDEX replies_task ON replies (task_id);
CREATE TABLE evals (id TEXT PRIMARY KEY, hash TEXT NOT NULL, seq INTEGER NOT NULL);
CREATE TABLE runs (run_id TEXT PRIMARY KEY, hash TEXT NOT NULL, created_seq INTEGER NOT NULL, seq INTEGER NOT NULL);
"""

DERIVED = """
CREATE TABLE embeddings (
    record_id TEXT NOT NULL, version INTEGER NOT NULL, model TEXT NOT NULL, dim INTEGER NOT NULL,
    sha256 TEXT NOT NULL,    -- of the embedded text
    vector BLOB NOT NULL,    -- float32, little-endian, L2-normalised
    PRIMARY KEY (record_id, version)
);
CREATE TABLE embedding_cache (
    model TEXT NOT NULL, sha256 TEXT NOT NULL, dim INTEGER NOT NULL, vector BLOB NOT NULL,
    PRIMARY KEY (model, sha256)
);
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, record_id TEXT NOT NULL, version INTEGER NOT NULL,
    action TEXT NOT NULL CHECK (action IN ('upsert', 'remove'))
);
"""
