CREATE VIEW dose_response AS
SELECT controls.control, controls.role, rates.model, rates.benchmark, rates.rule, rates.name::BIGINT AS occurrences,
    rates.n_documents AS documents, rates.n_reached, rates.reached, rates.reached_low, rates.reached_high,
    rates.median_log_p, runs.finished_at
FROM current_extraction_rates AS rates JOIN control_models AS controls USING (model)
LEFT JOIN runs ON runs."table" = 'extraction_rates' AND runs.benchmark = rates.benchmark AND runs.model = rates.model
    AND runs.run_id = rates.run_id
WHERE rates.unit = 'occurrences' AND rates.side = 'audited'
    AND (rates.rule = 'first_choices' OR rates.threshold = 0.001)
ORDER BY controls.control, rates.benchmark, controls.role, rates.rule, occurrences;

COMMENT ON VIEW dose_response IS
    'how many texts a model gives word for word, by how many times a model that was trained here read them';
COMMENT ON COLUMN dose_response.control IS 'the control, in config/controls.yaml';
COMMENT ON COLUMN dose_response.role IS 'exposed (it read the texts so often) | twin (it read none of them)';
COMMENT ON COLUMN dose_response.model IS 'the model, which was trained here';
COMMENT ON COLUMN dose_response.benchmark IS 'the benchmark of its texts';
COMMENT ON COLUMN dose_response.rule IS 'probability (of at least 0.001) | first_choices: which suffixes count';
COMMENT ON COLUMN dose_response.occurrences IS 'how many times the exposed model read a text';
COMMENT ON COLUMN dose_response.documents IS 'texts that were read so often';
COMMENT ON COLUMN dose_response.n_reached IS 'of them, those with such a suffix';
COMMENT ON COLUMN dose_response.reached IS 'their share';
COMMENT ON COLUMN dose_response.median_log_p IS 'log-probability of the strongest passage of the median text';
COMMENT ON COLUMN dose_response.finished_at IS 'when these numbers were ready';
