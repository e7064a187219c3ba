-- Columns without a comment are those of: comparisons
CREATE VIEW detector_comparison AS
WITH measured AS (
    SELECT model, benchmark, detector, parameters, value AS auroc FROM current_evaluations WHERE metric = 'auroc'
), starred AS (
    SELECT *, CASE WHEN p_value < 0.001 THEN '***' WHEN p_value < 0.01 THEN '**' WHEN p_value < 0.05 THEN '*'
        ELSE '' END AS stars
    FROM current_comparisons
)
SELECT compared.benchmark, compared.model, compared.detector, compared.parameters, one.auroc,
    compared.other, compared.other_parameters, two.auroc AS other_auroc,
    compared.difference, compared.standard_error, compared.ci_low, compared.ci_high, compared.p_value, compared.stars,
    printf('%+.3f', 100 * compared.difference)
        || coalesce(printf(' ± %.3f', 100 * compared.standard_error), '') AS difference_in_percent,
    coalesce(printf('%.3f', compared.p_value) || compared.stars, 'none') AS p_value_with_stars,
    compared.n_members, compared.n_nonmembers, compared.n_groups, compared.method, compared.run_id
FROM starred AS compared
LEFT JOIN measured AS one ON one.model = compared.model AND one.benchmark = compared.benchmark
    AND one.detector = compared.detector AND one.parameters = compared.parameters
LEFT JOIN measured AS two ON two.model = compared.model AND two.benchmark = compared.benchmark
    AND two.detector = compared.other AND two.parameters = compared.other_parameters
ORDER BY compared.benchmark, compared.model, compared.detector, compared.parameters, compared.other,
    compared.other_parameters;

COMMENT ON VIEW detector_comparison IS
    'two detectors on the same texts, as in table 11 of Raoof et al. 2025: difference ± standard error, p-value, stars';
COMMENT ON COLUMN detector_comparison.auroc IS 'AUROC of the detector on all texts that it scored';
COMMENT ON COLUMN detector_comparison.other_auroc IS
    'AUROC of the other detector on all texts that it scored; difference uses the shared texts only';
COMMENT ON COLUMN detector_comparison.stars IS
    '* p < 0.05, ** p < 0.01, *** p < 0.001; not corrected for the number of comparisons (see multiplicity_ledger)';
COMMENT ON COLUMN detector_comparison.difference_in_percent IS 'difference ± standard error, both in percentage points';
COMMENT ON COLUMN detector_comparison.p_value_with_stars IS 'p-value with its stars; none: no p-value';
