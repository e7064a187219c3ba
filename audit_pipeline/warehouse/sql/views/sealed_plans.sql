-- A timestamp that is added later is a row of its own: the earliest counts.
CREATE VIEW sealed_plans AS
SELECT * EXCLUDE ("timestamp", run_id) FROM plans
QUALIFY row_number() OVER (PARTITION BY benchmark, model, plan_sha256, sealed_at ORDER BY timestamped_at, run_id) = 1;

COMMENT ON VIEW sealed_plans IS 'every plan that was sealed, once, with its earliest timestamp';
