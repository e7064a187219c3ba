INSERT INTO scored_settings BY NAME
SELECT model, benchmark, detector, parameters, bool_or(is_default) AS is_default, run_id, count(*) AS texts,
    count(*) FILTER (status = 'ok') AS scored, count(is_audited) AS audited,
    count(*) FILTER (status = 'not_applicable') AS not_applicable,
    count(*) FILTER (status = 'failed') AS failed
FROM scores LEFT JOIN (
    SELECT benchmark, example_id, TRUE AS is_audited FROM examples
    WHERE split = 'evaluation' AND label IS DISTINCT FROM 0
) USING (benchmark, example_id) GROUP BY ALL;
