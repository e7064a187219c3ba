-- What every stage of a pair took when it was last run (view cost).
--
-- stage: the stage
-- seconds: from its start to its last rows; what was in the cache already took no time
-- texts: texts of the benchmark
-- tokens: tokens that the model has run on; extra passes are not counted
-- all_seconds: what all stages of all pairs of the page took together, listed or not
SELECT cost.model, cost.benchmark, cost.stage, cost.seconds, cost.texts, cost.tokens, cost.finished_at,
    sum(seconds) OVER () AS all_seconds, count(*) OVER () AS in_all
FROM all_costs AS cost SEMI JOIN asked_pairs USING (model, benchmark)
ORDER BY model, benchmark, started_at, stage LIMIT 120;
