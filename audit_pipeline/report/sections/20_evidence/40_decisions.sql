-- Thresholds from the calibration split, and their rates on the evaluation split.
--
-- rule: largest_accuracy, marginal or certified
-- refused: reason why there is no threshold
SELECT decided.model, decided.benchmark, decided.detector, decided.parameters, decided.rule, decided.alpha,
    finite(decided.threshold) AS threshold, refused(decided.status, decided.reason) AS refused,
    n_calibration_groups, n_calibration_nonmembers, n_calibration_members, n_nonmembers, n_members,
    estimate(fpr, fpr_low, fpr_high) AS fpr, estimate(tpr, tpr_low, tpr_high) AS tpr, method
FROM current_decisions AS decided JOIN all_evidence_pairs AS pairs USING (model, benchmark)
WHERE decided.is_default
ORDER BY (decided.detector = pairs.detector AND decided.parameters = pairs.parameters) IS TRUE DESC,
    decided.detector, decided.parameters,
    list_position(['marginal', 'certified', 'largest_accuracy'], decided.rule), decided.alpha DESC NULLS LAST;
