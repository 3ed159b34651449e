-- Version 3. The sum of an image's key and times: a flipped bit must not make it old. Null in rows of version 2.
ALTER TABLE image_ages ADD COLUMN sum INTEGER;

-- The hold of all nodes that was last read, at most one. place is the switch that said so.
CREATE TABLE fleet_hold (
    place TEXT PRIMARY KEY,
    reason TEXT NOT NULL,
    read_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
