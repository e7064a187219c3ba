CREATE VIEW group_scores AS
WITH by_group AS (
    SELECT scores.model, scores.benchmark, examples."group", scores.detector, scores.parameters,
        count(*) AS texts, avg(score) AS mean_score, median(score) AS median_score,
        max(score) AS highest_score, min(score) AS lowest_score
    FROM current_scores AS scores JOIN examples
        ON examples.example_id = scores.example_id AND examples.benchmark = scores.benchmark
    WHERE scores.status = 'ok' GROUP BY ALL
)
SELECT *,
    rank() OVER (PARTITION BY model, benchmark, detector, parameters ORDER BY mean_score DESC) AS rank_in_benchmark
FROM by_group;

COMMENT ON VIEW group_scores IS
    'scores of the latest runs by the group that texts belong to: the book, patent, article or release';
COMMENT ON COLUMN group_scores.texts IS 'texts of the group with a score';
COMMENT ON COLUMN group_scores.mean_score IS 'their mean';
COMMENT ON COLUMN group_scores.median_score IS 'their median';
COMMENT ON COLUMN group_scores.highest_score IS 'the highest';
COMMENT ON COLUMN group_scores.lowest_score IS 'the lowest';
COMMENT ON COLUMN group_scores.rank_in_benchmark IS 'place among the benchmark''s groups by mean score, 1 the highest';
