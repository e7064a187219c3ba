-- Key, checked by every build (table keys): run_id, benchmark, model, detector, parameters, rule, alpha

CREATE TABLE decisions (
    model VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    detector VARCHAR NOT NULL,
    parameters VARCHAR NOT NULL,
    is_default BOOLEAN NOT NULL,
    rule VARCHAR NOT NULL,
    alpha DOUBLE,
    threshold DOUBLE,
    status VARCHAR NOT NULL,
    reason VARCHAR,
    n_calibration_groups INTEGER NOT NULL,
    n_calibration_nonmembers INTEGER NOT NULL,
    n_calibration_members INTEGER NOT NULL,
    n_nonmembers INTEGER NOT NULL,
    fpr DOUBLE,
    fpr_low DOUBLE,
    fpr_high DOUBLE,
    n_members INTEGER NOT NULL,
    tpr DOUBLE,
    tpr_low DOUBLE,
    tpr_high DOUBLE,
    method VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL
);

COMMENT ON TABLE decisions IS
    'the thresholds that every run chose on calibration texts, and what they achieved; current_decisions: the latest';
COMMENT ON COLUMN decisions.model IS 'the model';
COMMENT ON COLUMN decisions.benchmark IS 'the benchmark';
COMMENT ON COLUMN decisions.detector IS 'the detector';
COMMENT ON COLUMN decisions.parameters IS 'canonical JSON of the detector''s parameters';
COMMENT ON COLUMN decisions.is_default IS 'whether these are the detector''s default parameters (the headline finding)';
COMMENT ON COLUMN decisions.rule IS 'largest_accuracy | marginal | certified: how the threshold was chosen';
COMMENT ON COLUMN decisions.alpha IS 'the false-positive rate aimed at; null for largest_accuracy';
COMMENT ON COLUMN decisions.threshold IS 'texts with at least this score are called members; null: none';
COMMENT ON COLUMN decisions.status IS 'ok | refused: there is no threshold, reason says why';
COMMENT ON COLUMN decisions.reason IS 'why there is no threshold; null where there is one';
COMMENT ON COLUMN decisions.n_calibration_groups IS 'groups of calibration non-members';
COMMENT ON COLUMN decisions.n_calibration_nonmembers IS 'calibration non-members with a score';
COMMENT ON COLUMN decisions.n_calibration_members IS 'calibration members with a score';
COMMENT ON COLUMN decisions.n_nonmembers IS 'evaluation non-members that the rate was achieved on';
COMMENT ON COLUMN decisions.fpr IS 'achieved on the evaluation split, which chose nothing';
COMMENT ON COLUMN decisions.fpr_low IS 'lower end of its 95% interval';
COMMENT ON COLUMN decisions.fpr_high IS 'upper end of its 95% interval';
COMMENT ON COLUMN decisions.n_members IS 'evaluation members that the rate was achieved on';
COMMENT ON COLUMN decisions.tpr IS 'achieved on the evaluation split';
COMMENT ON COLUMN decisions.tpr_low IS 'lower end of its 95% interval';
COMMENT ON COLUMN decisions.tpr_high IS 'upper end of its 95% interval';
COMMENT ON COLUMN decisions.method IS 'how threshold and intervals were computed';
COMMENT ON COLUMN decisions.run_id IS 'the run that wrote the row; joins to lineage.run_id';
