-- Columns without a comment are those of: configured_models
CREATE VIEW model_releases AS
WITH cards AS (
    SELECT name AS model, TRY_CAST(release_date AS DATE) AS release_date,
        TRY_CAST(training_cutoff AS DATE) AS training_cutoff, TRY_CAST(first_loaded_at AS TIMESTAMPTZ) AS loaded_at,
        fingerprint
    FROM models WHERE name IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY name ORDER BY loaded_at DESC NULLS LAST, fingerprint DESC) = 1
)
SELECT coalesce(configured.name, cards.model) AS model,
    coalesce(configured.release_date, cards.release_date) AS release_date,
    coalesce(configured.training_cutoff, cards.training_cutoff) AS training_cutoff
FROM configured_models AS configured FULL JOIN cards ON cards.model = configured.name;

COMMENT ON VIEW model_releases IS
    'release dates of models: from the configuration, else from the configuration at the last load of the model';
COMMENT ON COLUMN model_releases.model IS 'model''s name in config/models.yaml, hub id or path';
