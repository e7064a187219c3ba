-- Key, checked by every build (table keys): run_id, benchmark, model, detector, parameters, rule, alpha, unit, name

CREATE TABLE contamination_rates (
    model VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    unit VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    detector VARCHAR NOT NULL,
    parameters VARCHAR NOT NULL,
    is_default BOOLEAN NOT NULL,
    rule VARCHAR NOT NULL,
    alpha DOUBLE,
    n_texts INTEGER NOT NULL,
    n_groups INTEGER NOT NULL,
    n_flagged INTEGER NOT NULL,
    flagged DOUBLE NOT NULL,
    flagged_low DOUBLE,
    flagged_high DOUBLE,
    fpr DOUBLE,
    fpr_low DOUBLE,
    fpr_high DOUBLE,
    tpr DOUBLE,
    tpr_low DOUBLE,
    tpr_high DOUBLE,
    status VARCHAR NOT NULL,
    reason VARCHAR,
    corrected DOUBLE,
    corrected_low DOUBLE,
    corrected_high DOUBLE,
    assumption VARCHAR NOT NULL,
    claim_level VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL
);

COMMENT ON TABLE contamination_rates IS
    'the share of texts flagged in every group, collection and benchmark; current_contamination_rates: the latest';
COMMENT ON COLUMN contamination_rates.model IS 'the model';
COMMENT ON COLUMN contamination_rates.benchmark IS 'the benchmark';
COMMENT ON COLUMN contamination_rates.unit IS 'group | collection | benchmark: what the rate is of';
COMMENT ON COLUMN contamination_rates.name IS 'the group, collection or benchmark';
COMMENT ON COLUMN contamination_rates.detector IS 'the detector';
COMMENT ON COLUMN contamination_rates.parameters IS 'canonical JSON of the detector''s parameters';
COMMENT ON COLUMN contamination_rates.is_default IS
    'whether these are the detector''s default parameters (the headline finding)';
COMMENT ON COLUMN contamination_rates.rule IS 'largest_accuracy | marginal | certified: the threshold that flags';
COMMENT ON COLUMN contamination_rates.alpha IS 'the false-positive rate aimed at; null for largest_accuracy';
COMMENT ON COLUMN contamination_rates.n_texts IS 'texts with a score';
COMMENT ON COLUMN contamination_rates.n_groups IS 'groups that they are of';
COMMENT ON COLUMN contamination_rates.n_flagged IS 'texts with at least the threshold''s score';
COMMENT ON COLUMN contamination_rates.flagged IS 'their share: as table 4 of Raoof et al. 2025 and table 2 of Shi et al. 2024';
COMMENT ON COLUMN contamination_rates.flagged_low IS 'lower end of its 95% interval';
COMMENT ON COLUMN contamination_rates.flagged_high IS 'upper end of its 95% interval';
COMMENT ON COLUMN contamination_rates.fpr IS 'of the threshold on calibration non-members';
COMMENT ON COLUMN contamination_rates.fpr_low IS 'lower end of its 95% interval';
COMMENT ON COLUMN contamination_rates.fpr_high IS 'upper end of its 95% interval';
COMMENT ON COLUMN contamination_rates.tpr IS 'of the threshold on calibration members';
COMMENT ON COLUMN contamination_rates.tpr_low IS 'lower end of its 95% interval';
COMMENT ON COLUMN contamination_rates.tpr_high IS 'upper end of its 95% interval';
COMMENT ON COLUMN contamination_rates.status IS 'ok | refused: of the corrected rate';
COMMENT ON COLUMN contamination_rates.reason IS 'why there is no corrected rate; null where there is one';
COMMENT ON COLUMN contamination_rates.corrected IS '(flagged - FPR) / (TPR - FPR), clipped to 0 and 1';
COMMENT ON COLUMN contamination_rates.corrected_low IS 'lower end of its 95% interval, over all three terms';
COMMENT ON COLUMN contamination_rates.corrected_high IS 'upper end of its 95% interval';
COMMENT ON COLUMN contamination_rates.assumption IS 'what must be true for the corrected rate to hold';
COMMENT ON COLUMN contamination_rates.claim_level IS 'screening only | statistical evidence | sound test';
COMMENT ON COLUMN contamination_rates.run_id IS 'the run that wrote the row; joins to lineage.run_id';
