-- Mean false-positive rate over random halves of the non-members, compared with the target rate.
--
-- over_alpha: share of the halves with a rate above alpha
-- refused: reason why there is no rate
SELECT checked.model, checked.benchmark, checked.detector, checked.parameters, checked.rule, checked.alpha, splits,
    n_groups, finite(mean_fpr) AS mean_fpr, finite(standard_error) AS standard_error, finite(over_alpha) AS over_alpha,
    reason AS refused
FROM current_calibration_checks AS checked JOIN all_evidence_pairs AS pairs USING (model, benchmark)
ORDER BY (checked.detector = pairs.detector AND checked.parameters = pairs.parameters) IS TRUE DESC,
    checked.detector, checked.parameters, checked.rule DESC, checked.alpha DESC;
