-- Every setting of the detectors with several settings (view current_evaluations), for exploration.
--
-- n: number of texts of the AUROC
WITH several AS (
    SELECT * FROM all_evidence_settings WHERE detector <> 'blind_control'
    QUALIFY count(*) OVER (PARTITION BY model, benchmark, detector) > 1
)
SELECT model, benchmark, detector, parameters, is_default, n_members + n_nonmembers AS n, auroc,
    tpr_at_5_fpr.value AS tpr_at_5_fpr, fpr_at_95_tpr.value AS fpr_at_95_tpr,
    count(*) OVER (PARTITION BY model, benchmark) AS in_all
FROM several
QUALIFY row_number() OVER (PARTITION BY model, benchmark ORDER BY place) <= 120
ORDER BY model, benchmark, place;
