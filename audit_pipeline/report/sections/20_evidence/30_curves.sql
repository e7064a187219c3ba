-- The ROC curve of every detector at its default setting (view current_evaluations), as fine as a picture shows it,
-- and how its scores spread.
--
-- fpr: false-positive rates
-- tpr: true-positive rates
-- edges: scores between which texts are counted
-- members: share of the members (or audited texts) between neighbouring edges
-- nonmembers: share of the non-members (or held-out texts) between them
WITH compared AS (
    SELECT model, benchmark, detector, parameters,
        list(score ORDER BY score) FILTER (side = 1) AS members, list(score ORDER BY score) FILTER (side = 0) AS others
    FROM compared_scores GROUP BY ALL
), drawn AS (
    SELECT found.model, found.benchmark, found.detector, found.parameters, found.auroc.value AS auroc,
        roc_curve(compared.members, compared.others) AS curve, spread_of(compared.members, compared.others) AS spread,
        (pairs.detector = found.detector AND pairs.parameters = found.parameters) IS TRUE AS answers
    FROM evidence_settings AS found
    JOIN evidence_pairs AS pairs ON pairs.model = found.model AND pairs.benchmark = found.benchmark
    LEFT JOIN compared ON compared.model = found.model AND compared.benchmark = found.benchmark
        AND compared.detector = found.detector AND compared.parameters = found.parameters
    WHERE found.is_default AND found.detector <> 'blind_control' AND found.auroc.value IS NOT NULL AND pairs.is_current
)
SELECT model, benchmark, detector, parameters, answers, auroc, curve.fpr AS fpr, curve.tpr AS tpr,
    spread.edges AS edges, spread.members AS members, spread.nonmembers AS nonmembers
FROM drawn ORDER BY answers DESC, detector, parameters;
