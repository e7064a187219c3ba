-- A benchmark in models by their release (view model_timeline), by the headline detectors. Only on the page across models.
--
-- released: release date of the model
-- blind: AUROC of the blind control
-- change: AUROC minus that of the model that was released before
-- same_build: true if both models were audited on the same build of the benchmark
WITH several AS (
    SELECT line.* FROM all_releases AS line SEMI JOIN shown_pairs USING (model, benchmark)
    WHERE (SELECT kind FROM page) = 'across'
    QUALIFY count(release_date) OVER (PARTITION BY benchmark, detector, parameters) > 1
)
SELECT benchmark, detector, parameters, model, release_date AS released,
    estimate(auroc, auroc_low, auroc_high) AS auroc, finite(blind_auroc) AS blind, finite(change_in_auroc) AS change,
    same_build, count(*) OVER () AS in_all
FROM several SEMI JOIN shown_pairs USING (model, benchmark, detector, parameters)
ORDER BY benchmark, detector, parameters, release_date NULLS LAST, model LIMIT 120;
