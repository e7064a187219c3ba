CREATE VIEW control_models AS
SELECT DISTINCT name AS model,
    regexp_extract(resolved_from, '^control (.*), (exposed|twin): version', 1) AS control,
    regexp_extract(resolved_from, '^control (.*), (exposed|twin): version', 2) AS role
FROM models WHERE name IS NOT NULL AND resolved_from LIKE 'control %';

COMMENT ON VIEW control_models IS 'models of controls, which were trained on this machine';
COMMENT ON COLUMN control_models.model IS 'model';
COMMENT ON COLUMN control_models.control IS 'control in config/controls.yaml';
COMMENT ON COLUMN control_models.role IS 'exposed (trained on the members) | twin (trained on other texts)';
