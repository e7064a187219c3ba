-- The time of the last run of every stage of a pair (view cost).
--
-- stage: stage
-- seconds: time from the start to the last rows, in seconds; cached results take no time
-- texts: number of texts of the benchmark
-- tokens: number of tokens that the model has read; extra passes are not counted
-- all_seconds: time of all stages of all pairs of the page, listed or not, in seconds
SELECT cost.model, cost.benchmark, cost.stage, cost.seconds, cost.texts, cost.tokens, cost.finished_at,
    sum(seconds) OVER () AS all_seconds, count(*) OVER () AS in_all
FROM all_costs AS cost SEMI JOIN asked_pairs USING (model, benchmark)
ORDER BY model, benchmark, started_at, stage LIMIT 120;
