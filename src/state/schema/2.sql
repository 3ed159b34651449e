-- Version 2: what is kept of removed containers. facts is what GET /api/v1/evidence/{number} answers; log is the end of
-- the container's log (zstd). room is what a row counts for evidence.max_bytes.
CREATE TABLE evidence (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    container_id TEXT NOT NULL UNIQUE,
    kept_at INTEGER NOT NULL,
    pod_uid TEXT,
    pod_namespace TEXT,
    pod_name TEXT,
    owner_kind TEXT,
    owner_name TEXT,
    container TEXT NOT NULL,
    exit_code INTEGER,
    is_first INTEGER NOT NULL,
    room INTEGER NOT NULL,
    facts TEXT NOT NULL,
    log BLOB NOT NULL
) STRICT;
CREATE INDEX evidence_by_name ON evidence (pod_uid, container, number);
CREATE INDEX evidence_by_age ON evidence (kept_at);

CREATE TABLE evidence_room (bytes INTEGER NOT NULL) STRICT;
INSERT INTO evidence_room VALUES (0);
CREATE TRIGGER evidence_kept AFTER INSERT ON evidence BEGIN
    UPDATE evidence_room SET bytes = bytes + new.room;
END;
CREATE TRIGGER evidence_dropped AFTER DELETE ON evidence BEGIN
    UPDATE evidence_room SET bytes = bytes - old.room;
END;
