INSERT INTO group_scores BY NAME
WITH latest AS (
    SELECT benchmark, model, run_id FROM runs WHERE "table" = 'scores' AND is_current
), by_group AS (
    SELECT scores.model, scores.benchmark, examples."group", scores.detector, scores.parameters,
        count(*) AS texts, avg(score) AS mean_score, median(score) AS median_score,
        max(score) AS highest_score, min(score) AS lowest_score
    FROM scores SEMI JOIN latest
        ON latest.benchmark = scores.benchmark AND latest.model = scores.model AND latest.run_id = scores.run_id
    JOIN examples ON examples.example_id = scores.example_id AND examples.benchmark = scores.benchmark
    WHERE scores.status = 'ok' GROUP BY ALL
)
SELECT *,
    rank() OVER (PARTITION BY model, benchmark, detector, parameters ORDER BY mean_score DESC) AS rank_in_benchmark
FROM by_group;
