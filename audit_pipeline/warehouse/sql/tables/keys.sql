-- Filled by the build. A key of millions of rows is counted, not enforced: an index on it makes a build
-- several times as long and the file ten times as large.

CREATE TABLE keys (
    "table" VARCHAR NOT NULL,
    key VARCHAR NOT NULL,
    is_enforced BOOLEAN NOT NULL,
    doubled BIGINT NOT NULL,
    PRIMARY KEY ("table")
);

COMMENT ON TABLE keys IS
    'the key of every table, and whether it held when the warehouse was built';
COMMENT ON COLUMN keys."table" IS 'the table';
COMMENT ON COLUMN keys.key IS 'the columns that no two rows have in common';
COMMENT ON COLUMN keys.is_enforced IS 'whether it is a primary key; if not, it is counted by every build';
COMMENT ON COLUMN keys.doubled IS 'rows too many: 0 as it should be';
