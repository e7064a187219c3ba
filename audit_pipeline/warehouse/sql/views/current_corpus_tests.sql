-- Columns without a comment are those of: corpus_tests
CREATE VIEW current_corpus_tests AS
WITH dated AS (
    SELECT tested.*, runs."partition", runs.asset_key, runs.finished_at
    FROM corpus_tests AS tested LEFT JOIN runs
        ON runs."table" = 'corpus_tests' AND runs.run_id = tested.run_id
        AND runs.benchmark = tested.benchmark AND runs.model = tested.model
), latest AS (
    SELECT * FROM dated
    QUALIFY rank() OVER (
        PARTITION BY model, benchmark, test ORDER BY finished_at DESC NULLS LAST, run_id DESC
    ) = 1
)
-- If an asset ran again and tested nothing, its earlier results are withdrawn.
SELECT latest.* EXCLUDE ("partition", asset_key, finished_at)
FROM latest ANTI JOIN (SELECT * FROM runs WHERE "table" = 'corpus_tests' AND rows = 0) AS emptied
    ON emptied."partition" = latest."partition" AND emptied.asset_key = latest.asset_key
    AND emptied.finished_at > latest.finished_at;

COMMENT ON VIEW current_corpus_tests IS 'latest result of every test of a whole set of texts, per model';
