-- The models of the shown pairs, as they were loaded.
--
-- facts: properties of the model, by name
-- benchmarks: benchmarks that the model was audited on
SELECT name, fingerprint,
    [{'name': fact.name, 'value': cut(fact.value, 300)} FOR fact IN [
        {'name': 'loaded from', 'value': resolved_from},
        {'name': 'revision', 'value': revision},
        {'name': 'what answers there', 'value': card ->> 'server'},
        {'name': 'number format', 'value': dtype},
        {'name': 'attention back end', 'value': attention},
        {'name': 'start token', 'value': start_token},
        {'name': 'parameters', 'value': format('{:,}', parameters)},
        {'name': 'context length', 'value': format('{:,}', context_length)},
        {'name': 'vocabulary', 'value': format('{:,}', vocab_size)},
        {'name': 'released', 'value': release_date},
        {'name': 'training cutoff', 'value': nullif(training_cutoff, '')},
        {'name': 'tokenizer fingerprint', 'value': tokenizer_fingerprint},
        {'name': 'training cutoff', 'value': CASE WHEN coalesce(training_cutoff, '') = '' THEN 'not known' END}
    ] IF fact.value IS NOT NULL] AS facts,
    (SELECT count(DISTINCT benchmark) FROM runs
        WHERE runs.model_fingerprint = models.fingerprint AND "table" = 'scores' AND is_current) AS benchmarks
FROM models WHERE models.name IN (SELECT model FROM shown_pairs UNION SELECT model FROM page_tests)
ORDER BY models.name, models.fingerprint;
