-- Key, checked by every build (table keys): run_id, benchmark, model, detector, parameters, rule, alpha

CREATE TABLE calibration_checks (
    model VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    detector VARCHAR NOT NULL,
    parameters VARCHAR NOT NULL,
    rule VARCHAR NOT NULL,
    alpha DOUBLE NOT NULL,
    splits INTEGER NOT NULL,
    n_groups INTEGER NOT NULL,
    mean_fpr DOUBLE,
    standard_error DOUBLE,
    over_alpha DOUBLE,
    reason VARCHAR,
    run_id VARCHAR NOT NULL
);

COMMENT ON TABLE calibration_checks IS
    'the false-positive rate that thresholds keep on held-out halves; current_calibration_checks: the latest';
COMMENT ON COLUMN calibration_checks.model IS 'the model';
COMMENT ON COLUMN calibration_checks.benchmark IS 'the benchmark';
COMMENT ON COLUMN calibration_checks.detector IS 'the detector';
COMMENT ON COLUMN calibration_checks.parameters IS 'canonical JSON of the detector''s parameters';
COMMENT ON COLUMN calibration_checks.rule IS 'marginal | certified';
COMMENT ON COLUMN calibration_checks.alpha IS 'the false-positive rate aimed at';
COMMENT ON COLUMN calibration_checks.splits IS 'random halves that the non-members were divided into';
COMMENT ON COLUMN calibration_checks.n_groups IS 'groups of non-members';
COMMENT ON COLUMN calibration_checks.mean_fpr IS 'mean false-positive rate on the other halves; null: refused';
COMMENT ON COLUMN calibration_checks.standard_error IS 'of that mean over the splits (they overlap)';
COMMENT ON COLUMN calibration_checks.over_alpha IS 'share of the splits whose rate exceeds alpha';
COMMENT ON COLUMN calibration_checks.reason IS 'why there is none; null where there is one';
COMMENT ON COLUMN calibration_checks.run_id IS 'the run that wrote the row; joins to lineage.run_id';
