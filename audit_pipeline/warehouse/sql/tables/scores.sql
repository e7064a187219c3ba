-- Key, checked by every build (table keys): run_id, benchmark, model, detector, parameters, example_id

CREATE TABLE scores (
    example_id VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    detector VARCHAR NOT NULL,
    parameters VARCHAR NOT NULL,
    is_default BOOLEAN,
    score DOUBLE,
    status VARCHAR NOT NULL,
    reason VARCHAR,
    run_id VARCHAR NOT NULL
);

COMMENT ON TABLE scores IS
    'every score of every run; current_scores holds the latest';
COMMENT ON COLUMN scores.example_id IS 'the scored example';
COMMENT ON COLUMN scores.model IS 'the model''s name in config/models.yaml, hub id or path';
COMMENT ON COLUMN scores.benchmark IS 'the benchmark';
COMMENT ON COLUMN scores.detector IS 'the detector';
COMMENT ON COLUMN scores.parameters IS 'canonical JSON of the detector''s parameters';
COMMENT ON COLUMN scores.is_default IS
    'whether these are the detector''s default parameters, with what the benchmark fixes in them; null where an earlier version wrote the row';
COMMENT ON COLUMN scores.score IS 'higher means more likely a member; null unless status is ok';
COMMENT ON COLUMN scores.status IS 'ok | not_applicable | failed';
COMMENT ON COLUMN scores.reason IS 'why there is no score; null where there is one';
COMMENT ON COLUMN scores.run_id IS 'the run that wrote the row; joins to lineage.run_id';
