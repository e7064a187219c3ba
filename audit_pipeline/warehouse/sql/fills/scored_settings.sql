-- Of the build alone: changed_scores and changed_examples say of what the rows are that it loaded or took out.
CREATE TEMP TABLE changed_score_runs AS
SELECT benchmark, model, run_id FROM changed_scores
UNION SELECT benchmark, model, run_id FROM scores SEMI JOIN changed_examples USING (benchmark);

DELETE FROM scored_settings USING changed_score_runs AS changed
WHERE scored_settings.benchmark = changed.benchmark AND scored_settings.model = changed.model
    AND scored_settings.run_id = changed.run_id;

INSERT INTO scored_settings BY NAME
SELECT model, benchmark, detector, parameters, bool_or(is_default) AS is_default, run_id, count(*) AS texts,
    count(*) FILTER (status = 'ok') AS scored, count(is_audited) AS audited,
    count(*) FILTER (status = 'not_applicable') AS not_applicable,
    count(*) FILTER (status = 'failed') AS failed
FROM scores SEMI JOIN changed_score_runs USING (benchmark, model, run_id) LEFT JOIN (
    SELECT benchmark, example_id, TRUE AS is_audited FROM examples
    WHERE split = 'evaluation' AND label IS DISTINCT FROM 0
) USING (benchmark, example_id) GROUP BY ALL;
