-- Key, checked by every build (table keys): run_id, benchmark, model

CREATE TABLE outcomes (
    model VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    stage VARCHAR NOT NULL,
    status VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL,
    recorded_at TIMESTAMPTZ NOT NULL,
    row_sha256 VARCHAR
);

COMMENT ON TABLE outcomes IS
    'the pairs that a run could not do, and why; the view coverage says what counts now';
COMMENT ON COLUMN outcomes.model IS 'the model';
COMMENT ON COLUMN outcomes.benchmark IS 'the benchmark';
COMMENT ON COLUMN outcomes.stage IS 'token_statistics | scores | evaluations: where the run gave the pair up';
COMMENT ON COLUMN outcomes.status IS 'not_applicable (input is missing or wrong) | failed (any other fault)';
COMMENT ON COLUMN outcomes.reason IS 'why, in one line of at most 500 characters';
COMMENT ON COLUMN outcomes.run_id IS 'the run that wrote the row; joins to lineage.run_id';
COMMENT ON COLUMN outcomes.recorded_at IS 'when the run gave the pair up';
COMMENT ON COLUMN outcomes.row_sha256 IS
    'sha256 of the row''s other columns (catalogue/integrity.py); null where an earlier version wrote the row';
