-- Filled from scores by fills/scored_settings.sql, so that views need not read every score.
-- Key, checked by every build (table keys): run_id, benchmark, model, detector, parameters

CREATE TABLE scored_settings (
    model VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    detector VARCHAR NOT NULL,
    parameters VARCHAR NOT NULL,
    is_default BOOLEAN,
    texts BIGINT NOT NULL,
    scored BIGINT NOT NULL,
    not_applicable BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    run_id VARCHAR NOT NULL
);

COMMENT ON TABLE scored_settings IS
    'how many texts every run scored, one row a run, detector and setting';
COMMENT ON COLUMN scored_settings.model IS 'the model''s name in config/models.yaml, hub id or path';
COMMENT ON COLUMN scored_settings.benchmark IS 'the benchmark';
COMMENT ON COLUMN scored_settings.detector IS 'the detector';
COMMENT ON COLUMN scored_settings.parameters IS 'canonical JSON of the detector''s parameters';
COMMENT ON COLUMN scored_settings.is_default IS
    'whether these are the detector''s default parameters, with what the benchmark fixes in them; null where an earlier version wrote the row';
COMMENT ON COLUMN scored_settings.texts IS 'texts that the run tried';
COMMENT ON COLUMN scored_settings.scored IS 'of them, with a score';
COMMENT ON COLUMN scored_settings.not_applicable IS 'of them, texts that the detector does not apply to';
COMMENT ON COLUMN scored_settings.failed IS 'of them, texts on which it failed';
COMMENT ON COLUMN scored_settings.run_id IS 'the run that wrote the rows; joins to lineage.run_id';
