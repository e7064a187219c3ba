-- The ROC curve of every detector at default parameters (view current_evaluations), with the resolution of the picture, and
-- the histograms of its scores.
--
-- fpr: false-positive rates
-- tpr: true-positive rates
-- edges: edges of the histogram's bins
-- members: share of the members (or audited texts) per bin
-- nonmembers: share of the non-members (or held-out texts) per bin
WITH compared AS (
    SELECT model, benchmark, detector, parameters,
        list(score ORDER BY score) FILTER (side = 1) AS members, list(score ORDER BY score) FILTER (side = 0) AS others
    FROM all_compared_scores GROUP BY ALL
)
SELECT found.model, found.benchmark, found.detector, found.parameters,
    (pairs.detector = found.detector AND pairs.parameters = found.parameters) IS TRUE AS answers,
    found.auroc.value AS auroc, compared.members AS raw_members, compared.others AS raw_others
FROM all_evidence_settings AS found
JOIN all_evidence_pairs AS pairs ON pairs.model = found.model AND pairs.benchmark = found.benchmark
LEFT JOIN compared ON compared.model = found.model AND compared.benchmark = found.benchmark
    AND compared.detector = found.detector AND compared.parameters = found.parameters
WHERE found.is_default AND found.detector <> 'blind_control' AND found.auroc.value IS NOT NULL AND pairs.is_current
ORDER BY answers DESC, found.detector, found.parameters;
