-- Comparisons of two detectors on the same texts, those of the headline detector first.
--
-- difference: AUROC of the first detector minus that of the second
SELECT compared.model, compared.benchmark, compared.detector, compared.parameters, compared.other,
    compared.other_parameters, compared.n_members, compared.n_nonmembers, compared.n_groups,
    estimate(compared.difference, compared.ci_low, compared.ci_high, compared.method) AS difference,
    finite(compared.standard_error) AS standard_error, finite(compared.p_value) AS p_value,
    count(*) OVER (PARTITION BY model, benchmark) AS in_all
FROM current_comparisons AS compared JOIN all_evidence_pairs AS pairs USING (model, benchmark)
QUALIFY row_number() OVER (
    PARTITION BY model, benchmark
    ORDER BY (compared.detector = pairs.detector AND compared.parameters = pairs.parameters) IS TRUE DESC,
        compared.detector, compared.parameters, compared.other, compared.other_parameters
) <= 40
ORDER BY (compared.detector = pairs.detector AND compared.parameters = pairs.parameters) IS TRUE DESC,
    compared.detector, compared.parameters, compared.other, compared.other_parameters;
