-- Version 4. Since when a list has been over its limit; empty while none is.
CREATE TABLE outage (since INTEGER NOT NULL) STRICT;
