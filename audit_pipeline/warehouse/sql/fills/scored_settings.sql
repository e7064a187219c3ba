INSERT INTO scored_settings BY NAME
SELECT model, benchmark, detector, parameters, bool_or(is_default) AS is_default, run_id, count(*) AS texts,
    count(*) FILTER (status = 'ok') AS scored,
    count(*) FILTER (status = 'not_applicable') AS not_applicable,
    count(*) FILTER (status = 'failed') AS failed
FROM scores GROUP BY ALL;
