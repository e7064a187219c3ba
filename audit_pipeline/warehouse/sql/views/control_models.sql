CREATE VIEW control_models AS
SELECT DISTINCT name AS model,
    regexp_extract(resolved_from, '^control (.*), (exposed|twin): version', 1) AS control,
    regexp_extract(resolved_from, '^control (.*), (exposed|twin): version', 2) AS role
FROM models WHERE name IS NOT NULL AND resolved_from LIKE 'control %';

COMMENT ON VIEW control_models IS 'the models that were trained here, of controls';
COMMENT ON COLUMN control_models.model IS 'the model';
COMMENT ON COLUMN control_models.control IS 'the control, in config/controls.yaml';
COMMENT ON COLUMN control_models.role IS 'exposed (trained on the members) | twin (on other texts)';
