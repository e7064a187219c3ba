-- Columns without a comment are those of: leaderboard_history, configured_models
CREATE VIEW model_timeline AS
WITH dated AS (
    SELECT board.*, released.release_date, released.training_cutoff, runs.benchmark_digest
    FROM leaderboard AS board LEFT JOIN model_releases AS released ON released.model = board.model
    LEFT JOIN runs ON runs."table" = 'evaluations' AND runs.run_id = board.run_id
        AND runs.benchmark = board.benchmark AND runs.model = board.model
), in_order AS (
    SELECT *, lag({model: model, auroc: auroc, benchmark_digest: benchmark_digest}) OVER (
        PARTITION BY benchmark, detector, parameters, release_date IS NULL ORDER BY release_date, model
    ) AS before
    FROM dated
), stepped AS (
    -- A model without a release date has no position in the order.
    SELECT * REPLACE (CASE WHEN release_date IS NOT NULL THEN before END AS before) FROM in_order
)
SELECT benchmark, detector, parameters, release_date, model, training_cutoff,
    auroc, auroc_low, auroc_high, tpr_at_5_fpr, tpr_at_5_fpr_low, tpr_at_5_fpr_high,
    blind_auroc, before.model AS previous_model, before.auroc AS previous_auroc,
    auroc - before.auroc AS change_in_auroc,
    benchmark_digest = before.benchmark_digest AS same_build,
    split_verdict, claim_level, is_current, run_id
FROM stepped ORDER BY benchmark, detector, parameters, release_date NULLS LAST, model;

COMMENT ON VIEW model_timeline IS
    'one benchmark across models in the order of their release; models without a release date come last, without a change; models of controls are omitted';
COMMENT ON COLUMN model_timeline.previous_model IS
    'audited model with the previous release date; null: no such model, or the model has no release date';
COMMENT ON COLUMN model_timeline.previous_auroc IS 'AUROC of the previous model';
COMMENT ON COLUMN model_timeline.change_in_auroc IS 'AUROC minus the AUROC of the previous model';
COMMENT ON COLUMN model_timeline.same_build IS
    'true if both models were audited on the same build of the benchmark; false: on different texts';
