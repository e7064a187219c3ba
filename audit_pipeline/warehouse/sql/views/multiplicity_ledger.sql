-- Columns without a comment are those of: evaluations
CREATE VIEW multiplicity_ledger AS
WITH pairs AS (
    SELECT benchmark, model, count(DISTINCT run_id) FILTER ("table" = 'scores') AS runs_so_far,
        count(DISTINCT run_id) FILTER ("table" = 'evaluations') AS evaluations_so_far
    FROM runs WHERE model IS NOT NULL GROUP BY ALL
), tried AS (
    SELECT every.benchmark, every.model,
        count(DISTINCT every.detector) FILTER (runs.is_current) AS detectors,
        count(DISTINCT (every.detector, every.parameters)) FILTER (runs.is_current) AS settings,
        count(DISTINCT (every.detector, every.parameters)) AS settings_so_far
    FROM scored_settings AS every JOIN runs
        ON runs."table" = 'scores' AND runs.run_id = every.run_id
        AND runs.benchmark = every.benchmark AND runs.model = every.model
    GROUP BY ALL
), p_values AS (
    SELECT "table", benchmark, model, run_id, count(p_value) AS computed FROM (
        SELECT 'group_tests' AS "table", benchmark, model, run_id, p_value FROM group_tests
        UNION ALL SELECT 'comparisons', benchmark, model, run_id, p_value FROM comparisons
        UNION ALL SELECT 'corpus_tests', benchmark, model, run_id, p_value FROM corpus_tests
    ) GROUP BY ALL
), computed AS (
    SELECT p_values.benchmark, p_values.model,
        coalesce(sum(computed) FILTER (runs.is_current AND runs."table" = 'group_tests'), 0)::BIGINT AS of_groups,
        coalesce(sum(computed) FILTER (runs.is_current AND runs."table" = 'comparisons'), 0)::BIGINT AS of_comparisons,
        sum(computed)::BIGINT AS so_far
    FROM p_values JOIN runs ON runs."table" = p_values."table" AND runs.run_id = p_values.run_id
        AND runs.benchmark = p_values.benchmark AND runs.model = p_values.model
    GROUP BY ALL
), of_corpora AS (
    SELECT benchmark, model, count(p_value) AS of_corpora FROM current_corpus_tests GROUP BY ALL
), tested AS (
    SELECT benchmark, model, count(DISTINCT "group") AS groups FROM current_group_tests GROUP BY ALL
)
SELECT pairs.benchmark, pairs.model, coalesce(tried.detectors, 0) AS detectors, coalesce(tried.settings, 0) AS settings,
    coalesce(tried.settings_so_far, 0) AS settings_so_far, coalesce(tested.groups, 0) AS groups_tested,
    coalesce(computed.of_groups, 0) AS group_p_values, coalesce(computed.of_comparisons, 0) AS comparison_p_values,
    coalesce(of_corpora.of_corpora, 0) AS corpus_p_values, coalesce(computed.so_far, 0) AS p_values_so_far,
    pairs.runs_so_far, pairs.evaluations_so_far,
    count(*) OVER (PARTITION BY pairs.benchmark) AS models_on_benchmark
FROM pairs LEFT JOIN tried USING (benchmark, model) LEFT JOIN computed USING (benchmark, model)
LEFT JOIN of_corpora USING (benchmark, model) LEFT JOIN tested USING (benchmark, model)
ORDER BY pairs.benchmark, pairs.model;

COMMENT ON VIEW multiplicity_ledger IS
    'number of attempts on every model and benchmark; with many attempts, some findings occur by chance';
COMMENT ON COLUMN multiplicity_ledger.detectors IS 'number of detectors of the latest run';
COMMENT ON COLUMN multiplicity_ledger.settings IS 'number of detectors with their parameters in the latest run';
COMMENT ON COLUMN multiplicity_ledger.settings_so_far IS
    'number of detectors with their parameters in all runs, each setting counted once';
COMMENT ON COLUMN multiplicity_ledger.groups_tested IS 'number of groups with a p-value in the latest run';
COMMENT ON COLUMN multiplicity_ledger.group_p_values IS
    'number of p-values of groups by all detectors in the latest run';
COMMENT ON COLUMN multiplicity_ledger.comparison_p_values IS
    'number of p-values of comparisons of detectors in the latest run';
COMMENT ON COLUMN multiplicity_ledger.corpus_p_values IS
    'number of p-values of tests of the whole set, latest result of each test';
COMMENT ON COLUMN multiplicity_ledger.p_values_so_far IS 'number of p-values of all kinds in all runs';
COMMENT ON COLUMN multiplicity_ledger.runs_so_far IS 'number of runs that scored this model on this benchmark';
COMMENT ON COLUMN multiplicity_ledger.evaluations_so_far IS
    'number of runs that evaluated this model on this benchmark';
COMMENT ON COLUMN multiplicity_ledger.models_on_benchmark IS 'number of models that were scored on this benchmark';
