-- Key, checked by every build (table keys): benchmark, measure, part, side

CREATE TABLE split_quality (
    benchmark VARCHAR NOT NULL,
    measure VARCHAR NOT NULL,
    part VARCHAR NOT NULL,
    side VARCHAR NOT NULL,
    value DOUBLE,
    ci_low DOUBLE,
    ci_high DOUBLE,
    n BIGINT NOT NULL,
    method VARCHAR NOT NULL,
    verdict VARCHAR,
    split_verdict VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL
);

COMMENT ON TABLE split_quality IS
    'how far the two sides of a benchmark differ without any model; split_summary has a row a benchmark';
COMMENT ON COLUMN split_quality.benchmark IS 'the benchmark';
COMMENT ON COLUMN split_quality.measure IS
    'what was measured: blind_auroc, worst_blind_auroc, ngram_overlap_*, near_duplicate_*, texts*, groups, '
    'uneven_collections, years_mentioned, latest_year_mentioned, length_*, language_*';
COMMENT ON COLUMN split_quality.part IS
    'of which there are several: the control, n of the n-grams, the collection, year, unit or language; '
    '''all'' where there is one only';
COMMENT ON COLUMN split_quality.side IS 'members | nonmembers | unlabelled | both | between (pairs of one text each)';
COMMENT ON COLUMN split_quality.value IS 'the measure; null where it was not read';
COMMENT ON COLUMN split_quality.ci_low IS 'lower end of the 95% interval';
COMMENT ON COLUMN split_quality.ci_high IS 'upper end of the 95% interval';
COMMENT ON COLUMN split_quality.n IS 'texts that the value is of';
COMMENT ON COLUMN split_quality.method IS 'how the value was computed, or why it is null';
COMMENT ON COLUMN split_quality.verdict IS
    'of a blind control: the split verdict that its interval alone would give; null for other measures';
COMMENT ON COLUMN split_quality.split_verdict IS
    'by the blind control of words, of all texts that are evaluated; the evaluations take it from here';
COMMENT ON COLUMN split_quality.run_id IS 'the run that wrote the row; joins to lineage.run_id';
