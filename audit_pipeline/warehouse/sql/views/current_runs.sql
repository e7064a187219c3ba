-- Not of corpus_tests: several commands add tests of their own, so the latest run does not hold the latest of each.
CREATE VIEW current_runs AS
SELECT "table", benchmark, model, run_id, finished_at FROM runs
WHERE is_current AND model IS NOT NULL AND "table" <> 'corpus_tests';

COMMENT ON VIEW current_runs IS
    'the latest run of every model on every benchmark, for every table that runs add to; corpus_tests: see its own view';
