-- Key, checked by every build (table keys): run_id, benchmark, model, test

CREATE TABLE corpus_tests (
    model VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    test VARCHAR NOT NULL,
    status VARCHAR NOT NULL,
    reason VARCHAR,
    p_value DOUBLE,
    statistic DOUBLE,
    n BIGINT NOT NULL,
    n_held_out BIGINT NOT NULL,
    assumption VARCHAR NOT NULL,
    claim_level VARCHAR NOT NULL,
    method VARCHAR NOT NULL,
    direction VARCHAR,
    run_id VARCHAR NOT NULL
);

COMMENT ON TABLE corpus_tests IS
    'tests of a whole set of texts at once; current_corpus_tests holds the latest of each test';
COMMENT ON COLUMN corpus_tests.model IS 'the model';
COMMENT ON COLUMN corpus_tests.benchmark IS 'the benchmark, set of canaries or test set';
COMMENT ON COLUMN corpus_tests.test IS 'dataset_inference | canary_rank | sharded_permutation';
COMMENT ON COLUMN corpus_tests.status IS 'ok | refused: the test''s conditions are not met, reason says which';
COMMENT ON COLUMN corpus_tests.reason IS 'why there is no p-value; null where there is one';
COMMENT ON COLUMN corpus_tests.p_value IS 'one-sided: the smaller, the less likely without training';
COMMENT ON COLUMN corpus_tests.statistic IS 'what the test compares';
COMMENT ON COLUMN corpus_tests.n IS 'audited texts, published canaries, or items of the test set';
COMMENT ON COLUMN corpus_tests.n_held_out IS 'held-out texts, other canaries or permutations that it is compared with';
COMMENT ON COLUMN corpus_tests.assumption IS 'what must be true for the p-value to hold';
COMMENT ON COLUMN corpus_tests.claim_level IS 'screening only | statistical evidence | sound test';
COMMENT ON COLUMN corpus_tests.method IS 'how it was computed';
COMMENT ON COLUMN corpus_tests.direction IS
    'which texts score higher where a difference is found (5%): training (audited ones) | opposite (held-out ones) | none; null: the test knows one direction only, was refused, or is of an earlier version';
COMMENT ON COLUMN corpus_tests.run_id IS 'the run that wrote the row; joins to lineage.run_id';
