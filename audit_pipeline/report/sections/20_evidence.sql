-- The evidence on one model and one benchmark (view leaderboard), for the most important pairs. The folder of this name
-- contains its parts.
--
-- number: position of the pair among the answers
-- sides: two sides of the AUROC: labelled members and non-members, or audited and held-out texts
-- detector: headline detector; null: none of several detectors was named, or the headline detector has no score
-- without_texts: reason why curves, histograms and texts are missing; null: they are present
-- smallest_fpr: smallest false-positive rate above 0 that the number of groups of non-members can resolve
-- blind: blind control with the columns of a detector; null: not evaluated
WITH blind AS (
    SELECT model, benchmark, {
        'n_members': n_members, 'n_nonmembers': n_nonmembers, 'auroc': auroc, 'tpr_at_5_fpr': tpr_at_5_fpr,
        'tpr_at_1_fpr': tpr_at_1_fpr, 'tpr_at_01_fpr': tpr_at_01_fpr, 'fpr_at_95_tpr': fpr_at_95_tpr
    } AS blind
    FROM evidence_settings WHERE detector = 'blind_control'
    QUALIFY row_number() OVER (PARTITION BY model, benchmark ORDER BY place) = 1
), known AS (
    SELECT model, benchmark, max(1 / groups) AS smallest_fpr FROM (
        SELECT model, benchmark, count(DISTINCT "group") AS groups FROM compared_scores WHERE side = 0
        GROUP BY model, benchmark, detector, parameters
    ) GROUP BY ALL
)
SELECT number, model, benchmark, sides, detector, parameters,
    CASE WHEN NOT is_current THEN 'the benchmark was built anew since, so scores and texts may be of different builds:'
        || ' audit it again' END AS without_texts,
    known.smallest_fpr, blind.blind, (SELECT count(*) FROM asked_pairs) AS in_all
FROM evidence_pairs LEFT JOIN known USING (model, benchmark) LEFT JOIN blind USING (model, benchmark)
ORDER BY number;
