-- Key, checked by every build (table keys): run_id, benchmark, model, detector, parameters, metric

CREATE TABLE evaluations (
    model VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    detector VARCHAR NOT NULL,
    parameters VARCHAR NOT NULL,
    is_default BOOLEAN NOT NULL,
    n_members INTEGER NOT NULL,
    n_nonmembers INTEGER NOT NULL,
    n_groups INTEGER NOT NULL,
    n_not_scored INTEGER NOT NULL,
    metric VARCHAR NOT NULL,
    value DOUBLE,
    ci_low DOUBLE,
    ci_high DOUBLE,
    method VARCHAR NOT NULL,
    split_verdict VARCHAR NOT NULL,
    claim_level VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL
);

COMMENT ON TABLE evaluations IS
    'every metric of every run; current_evaluations holds the latest';
COMMENT ON COLUMN evaluations.model IS 'the model';
COMMENT ON COLUMN evaluations.benchmark IS 'the benchmark';
COMMENT ON COLUMN evaluations.detector IS 'the detector, or blind_control';
COMMENT ON COLUMN evaluations.parameters IS 'canonical JSON of the detector''s parameters';
COMMENT ON COLUMN evaluations.is_default IS
    'whether these are the detector''s default parameters (the headline finding)';
COMMENT ON COLUMN evaluations.n_members IS 'members with a score';
COMMENT ON COLUMN evaluations.n_nonmembers IS 'non-members with a score';
COMMENT ON COLUMN evaluations.n_groups IS 'groups that the interval was resampled over';
COMMENT ON COLUMN evaluations.n_not_scored IS 'labelled examples of the evaluation split without a score';
COMMENT ON COLUMN evaluations.metric IS
    'auroc, tpr_at_5_fpr, … (metrics/declared.py, docs/intervals.md)';
COMMENT ON COLUMN evaluations.value IS 'the metric; null where it is not defined';
COMMENT ON COLUMN evaluations.ci_low IS 'lower end of the 95% interval';
COMMENT ON COLUMN evaluations.ci_high IS 'upper end of the 95% interval';
COMMENT ON COLUMN evaluations.method IS 'how value and interval were computed, or why they are null';
COMMENT ON COLUMN evaluations.split_verdict IS 'what the blind control says of the benchmark''s two sides';
COMMENT ON COLUMN evaluations.claim_level IS 'screening only | statistical evidence | sound test';
COMMENT ON COLUMN evaluations.run_id IS 'the run that wrote the row; joins to lineage.run_id';
