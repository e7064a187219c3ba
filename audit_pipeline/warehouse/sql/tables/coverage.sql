-- Filled by warehouse/coverage.py with the planner's word on every pair (operate/plan.py, state_of).

CREATE TABLE coverage (
    model VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    is_configured BOOLEAN NOT NULL,
    status VARCHAR NOT NULL,
    reason VARCHAR,
    stage VARCHAR,
    last_audited_at TIMESTAMPTZ,
    outcome_at TIMESTAMPTZ,
    run_id VARCHAR,
    PRIMARY KEY (model, benchmark)
);

COMMENT ON TABLE coverage IS
    'what became of every model on every benchmark: of the configuration, and of every earlier run';
COMMENT ON COLUMN coverage.model IS 'the model''s name in config/models.yaml, hub id or path';
COMMENT ON COLUMN coverage.benchmark IS 'the benchmark';
COMMENT ON COLUMN coverage.is_configured IS 'whether both are in the configuration; if not, an earlier run named them';
COMMENT ON COLUMN coverage.status IS
    'done | stale (what it rests on has changed) | missing | not_applicable (input is missing or wrong)'
    ' | failed (any other fault)';
COMMENT ON COLUMN coverage.reason IS 'why the status is not done; null where it is';
COMMENT ON COLUMN coverage.stage IS
    'the stage at which the run gave the pair up; null where none did since the latest audit';
COMMENT ON COLUMN coverage.last_audited_at IS 'when the latest audit''s numbers were ready; null where there is none';
COMMENT ON COLUMN coverage.outcome_at IS
    'when a run gave the pair up last, be it before the latest audit; null where none ever did';
COMMENT ON COLUMN coverage.run_id IS 'the run that the status rests on; null where there is none';
