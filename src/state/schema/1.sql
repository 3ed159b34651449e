-- Version 1. Times are milliseconds since 1970, UTC: SELECT datetime(ended_at / 1000, 'unixepoch') ...

-- Each process that opened the database.
CREATE TABLE processes (
    number INTEGER PRIMARY KEY,
    pid INTEGER NOT NULL,
    version TEXT NOT NULL,
    opened_at INTEGER NOT NULL
) STRICT;

-- Passes; report is what GET /api/v1/passes/{id} answers.
CREATE TABLE passes (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    process INTEGER NOT NULL,
    is_done INTEGER NOT NULL,
    cause TEXT NOT NULL,
    outcome TEXT,
    dry_run INTEGER NOT NULL,
    queued_at INTEGER NOT NULL,
    finished_at INTEGER,
    report TEXT NOT NULL
) STRICT;

-- Removals: written before the call, completed after it; result is null between the two.
CREATE TABLE removals (
    number INTEGER PRIMARY KEY,
    pass_id TEXT NOT NULL,
    batch INTEGER NOT NULL,
    target TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    pod_uid TEXT,
    pod_namespace TEXT,
    pod_name TEXT,
    created_at INTEGER NOT NULL,
    reason TEXT NOT NULL,
    intended_at INTEGER NOT NULL,
    result TEXT,
    class TEXT,
    why TEXT,
    ended_at INTEGER,
    duration_ms INTEGER,
    freed_bytes INTEGER
) STRICT;
CREATE INDEX removals_by_id ON removals (id);

-- Sandboxes whose removal failed and that have not gone since.
CREATE TABLE quarantine (
    id TEXT PRIMARY KEY,
    failures INTEGER NOT NULL,
    class TEXT NOT NULL,
    error TEXT NOT NULL,
    failed_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX quarantine_by_age ON quarantine (failed_at);

-- When images were first seen and last used.
CREATE TABLE image_ages (
    key TEXT PRIMARY KEY,
    first_seen INTEGER NOT NULL,
    last_used INTEGER
) STRICT, WITHOUT ROWID;

-- The node before a pass that removed something, as GET /api/v1/snapshot answers it.
CREATE TABLE snapshots (
    number INTEGER PRIMARY KEY,
    pass_id TEXT NOT NULL UNIQUE,
    taken_at INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    file BLOB NOT NULL
) STRICT;
