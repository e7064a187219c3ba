-- The older-model control (view older_model_control): the AUROC of the same detector on the same texts by a model that was
-- released before the texts existed.
--
-- older_released: release date of the older model
-- first_text: earliest day on which any of the evaluation texts can have existed
-- above_older: AUROC minus that of the older model
SELECT older.benchmark, older.detector, older.parameters, older.model,
    estimate(auroc, auroc_low, auroc_high) AS auroc, older_model, older_release_date AS older_released, first_text,
    estimate(older_auroc, older_auroc_low, older_auroc_high) AS older_auroc, finite(above_older) AS above_older,
    count(*) OVER () AS in_all
FROM all_older_models AS older SEMI JOIN shown_pairs USING (model, benchmark, detector, parameters)
ORDER BY benchmark, model, detector, older_release_date DESC, older_model LIMIT 80;
