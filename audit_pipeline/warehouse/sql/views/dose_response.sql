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
    'share of texts that a model of a control reproduces word for word, by the number of times that the exposed model read them';
COMMENT ON COLUMN dose_response.control IS 'control in config/controls.yaml';
COMMENT ON COLUMN dose_response.role IS 'exposed (read the texts this number of times) | twin (read none of them)';
COMMENT ON COLUMN dose_response.model IS 'model of the control';
COMMENT ON COLUMN dose_response.benchmark IS 'benchmark of the texts';
COMMENT ON COLUMN dose_response.rule IS 'probability (at least 0.001) | first_choices: rule by which suffixes count';
COMMENT ON COLUMN dose_response.occurrences IS 'number of times that the exposed model read a text';
COMMENT ON COLUMN dose_response.documents IS 'number of texts that were read this number of times';
COMMENT ON COLUMN dose_response.n_reached IS 'number of the texts with a suffix that counts';
COMMENT ON COLUMN dose_response.reached IS 'share of the texts with a suffix that counts';
COMMENT ON COLUMN dose_response.median_log_p IS 'log-probability of the strongest passage of the median text, in nats';
COMMENT ON COLUMN dose_response.finished_at IS 'time at which the numbers of the row were complete';
