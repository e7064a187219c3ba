-- Key, checked by every build (table keys): run_id, benchmark, model, detector, parameters, "group"

CREATE TABLE group_tests (
    model VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    "group" VARCHAR NOT NULL,
    collection VARCHAR NOT NULL,
    label TINYINT,
    detector VARCHAR NOT NULL,
    parameters VARCHAR NOT NULL,
    is_default BOOLEAN NOT NULL,
    n_texts INTEGER NOT NULL,
    n_compared INTEGER NOT NULL,
    statistic DOUBLE NOT NULL,
    p_value DOUBLE NOT NULL,
    q_bh DOUBLE NOT NULL,
    q_by DOUBLE NOT NULL,
    q_ledger DOUBLE NOT NULL,
    n_calibration_groups INTEGER NOT NULL,
    n_tests INTEGER NOT NULL,
    n_ledger INTEGER NOT NULL,
    claim_level VARCHAR NOT NULL,
    method VARCHAR NOT NULL,
    direction VARCHAR,
    run_id VARCHAR NOT NULL
);

COMMENT ON TABLE group_tests IS
    'the p- and q-values of every group of every run; current_group_tests holds the latest';
COMMENT ON COLUMN group_tests.model IS 'the model';
COMMENT ON COLUMN group_tests.benchmark IS 'the benchmark';
COMMENT ON COLUMN group_tests."group" IS 'the unit of resampling, calibration and cross-validation';
COMMENT ON COLUMN group_tests.collection IS 'the project, series or folder within the source';
COMMENT ON COLUMN group_tests.label IS '1 member, 0 non-member, null unknown or of both';
COMMENT ON COLUMN group_tests.detector IS 'the detector';
COMMENT ON COLUMN group_tests.parameters IS 'canonical JSON of the detector''s parameters';
COMMENT ON COLUMN group_tests.is_default IS
    'whether these are the detector''s default parameters (the headline finding)';
COMMENT ON COLUMN group_tests.n_texts IS 'texts of the group with a score';
COMMENT ON COLUMN group_tests.n_compared IS 'of them, how many the statistic is the mean of; the same in calibration';
COMMENT ON COLUMN group_tests.statistic IS 'mean score of the compared texts';
COMMENT ON COLUMN group_tests.p_value IS 'conformal: (1 + calibration groups with a statistic as high) / (n + 1)';
COMMENT ON COLUMN group_tests.q_bh IS 'Benjamini-Hochberg over the groups tested by this detector';
COMMENT ON COLUMN group_tests.q_by IS 'Benjamini-Yekutieli over the groups tested by this detector';
COMMENT ON COLUMN group_tests.q_ledger IS 'Benjamini-Yekutieli over the groups and every detector of the pair';
COMMENT ON COLUMN group_tests.n_calibration_groups IS 'calibration groups that it was compared with';
COMMENT ON COLUMN group_tests.n_tests IS 'groups tested by this detector';
COMMENT ON COLUMN group_tests.n_ledger IS 'groups tested by all detectors of the pair';
COMMENT ON COLUMN group_tests.claim_level IS 'screening only | statistical evidence | sound test';
COMMENT ON COLUMN group_tests.method IS 'how the p-value was computed';
COMMENT ON COLUMN group_tests.direction IS
    'which of the pair''s labelled texts the detector scores higher: training (members) | opposite (non-members) | none (neither, clearly); null: no texts of a side are known, or of an earlier version';
COMMENT ON COLUMN group_tests.run_id IS 'the run that wrote the row; joins to lineage.run_id';
