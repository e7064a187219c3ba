-- Key, checked by every build (table keys): run_id, benchmark, model, detector, parameters, other, other_parameters

CREATE TABLE comparisons (
    model VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    detector VARCHAR NOT NULL,
    parameters VARCHAR NOT NULL,
    other VARCHAR NOT NULL,
    other_parameters VARCHAR NOT NULL,
    n_members INTEGER NOT NULL,
    n_nonmembers INTEGER NOT NULL,
    n_groups INTEGER NOT NULL,
    difference DOUBLE NOT NULL,
    standard_error DOUBLE,
    ci_low DOUBLE,
    ci_high DOUBLE,
    p_value DOUBLE,
    method VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL
);

COMMENT ON TABLE comparisons IS
    'pairs of detectors compared on the same texts; current_comparisons holds the latest';
COMMENT ON COLUMN comparisons.model IS 'the model';
COMMENT ON COLUMN comparisons.benchmark IS 'the benchmark';
COMMENT ON COLUMN comparisons.detector IS 'the detector';
COMMENT ON COLUMN comparisons.parameters IS 'canonical JSON of its parameters';
COMMENT ON COLUMN comparisons.other IS 'the detector it is compared with, or blind_control';
COMMENT ON COLUMN comparisons.other_parameters IS 'canonical JSON of its parameters';
COMMENT ON COLUMN comparisons.n_members IS 'members with a score of both';
COMMENT ON COLUMN comparisons.n_nonmembers IS 'non-members with a score of both';
COMMENT ON COLUMN comparisons.n_groups IS 'groups that were resampled';
COMMENT ON COLUMN comparisons.difference IS 'AUROC of the detector less that of the other, on the same texts';
COMMENT ON COLUMN comparisons.standard_error IS 'standard deviation of the resampled differences';
COMMENT ON COLUMN comparisons.ci_low IS 'lower end of the 95% interval';
COMMENT ON COLUMN comparisons.ci_high IS 'upper end of the 95% interval';
COMMENT ON COLUMN comparisons.p_value IS 'two-sided, of no difference; null where there are no resamples';
COMMENT ON COLUMN comparisons.method IS 'how interval and p-value were computed, or why they are null';
COMMENT ON COLUMN comparisons.run_id IS 'the run that wrote the row; joins to lineage.run_id';
