-- The documents of a benchmark by the headline detector, or by every detector if none was named. One row per pair.
--
-- detector: detector; null: no detector was named
-- direction: side of labelled texts that scores higher: training (members), opposite or none; null: no labels
-- rule: rule of the threshold of the rates; null: no rate was computed
-- alpha: target false-positive rate of the threshold
-- n_calibration_groups: smallest number of calibration documents that a document was compared with
-- n_calibration_groups_in_all: number of all calibration documents, which the thresholds were chosen on
-- method: method of the p-values
-- assumption: assumption of the corrected rates of collections and of the benchmark
-- document_assumption: assumption of the corrected rates of single documents
-- documents: documents with p-value, q-value and the rates of their texts, the smallest p-value first
-- title: title of the document; null: several titles or none
-- stands_out: true if the q-value is at most 0.05 and scores do not run against training
-- refused: reason why there is no corrected rate
-- more: number of documents that are not listed
-- rates: contamination rates of the whole benchmark and of its collections
-- fpr: false-positive rate of the threshold on calibration non-members; the corrected rate subtracts it
-- tpr: true-positive rate of the threshold on calibration members
-- more_rates: number of collections that are not listed
WITH rules AS (
    SELECT model, benchmark, detector, parameters, rule, alpha
    FROM current_contamination_rates SEMI JOIN all_evidence_pairs USING (model, benchmark, detector, parameters)
    QUALIFY row_number() OVER (
        PARTITION BY model, benchmark ORDER BY rule_place(rule, alpha), rule DESC, alpha DESC
    ) = 1
), rates AS (
    SELECT rates.* FROM current_contamination_rates AS rates JOIN rules
        ON rules.model = rates.model AND rules.benchmark = rates.benchmark AND rules.detector = rates.detector
        AND rules.parameters = rates.parameters AND rules.rule = rates.rule
        AND rules.alpha IS NOT DISTINCT FROM rates.alpha
), tests AS (
    -- If no detector was named, each group has its smallest p-value by a detector that does not run against training.
    SELECT tests.*, pairs.detector IS NOT NULL AS is_named
    FROM current_group_tests AS tests JOIN all_evidence_pairs AS pairs
        ON pairs.model = tests.model AND pairs.benchmark = tests.benchmark
    WHERE (pairs.detector = tests.detector AND pairs.parameters = tests.parameters)
        OR (pairs.detector IS NULL AND tests.is_default)
    QUALIFY pairs.detector IS NOT NULL OR row_number() OVER (
        PARTITION BY tests.model, tests.benchmark, tests."group"
        ORDER BY tests.direction IS NOT DISTINCT FROM 'opposite', tests.p_value, tests.detector, tests.parameters
    ) = 1
), titles AS (
    SELECT DISTINCT model, benchmark, name, title
    FROM book_contamination SEMI JOIN all_evidence_pairs USING (model, benchmark, detector, parameters)
    WHERE unit = 'group' AND title IS NOT NULL
), documents AS (
    SELECT model, benchmark, {
        'name': cut(name, 300), 'title': cut(titles.title, 300),
        'detector': CASE WHEN NOT tests.is_named THEN tests.detector END,
        'stands_out': (
            CASE WHEN tests.is_named THEN tests.q_bh ELSE tests.q_ledger END <= 0.05
            AND tests.direction IS DISTINCT FROM 'opposite'
        ) IS TRUE,
        'collection': tests.collection, 'label': tests.label,
        'n_texts': coalesce(tests.n_texts, rates.n_texts, 0),
        'statistic': finite(tests.statistic), 'p_value': finite(tests.p_value), 'q_bh': finite(tests.q_bh),
        'q_by': finite(tests.q_by), 'q_ledger': finite(tests.q_ledger), 'n_flagged': rates.n_flagged,
        'flagged': CASE WHEN rates.unit IS NOT NULL
            THEN estimate(rates.flagged, rates.flagged_low, rates.flagged_high) END,
        'corrected': CASE WHEN rates.unit IS NOT NULL
            THEN estimate(rates.corrected, rates.corrected_low, rates.corrected_high) END,
        'refused': CASE WHEN rates.unit IS NOT NULL THEN refused(rates.status, rates.reason) END
    } AS document
    FROM (SELECT *, "group" AS name FROM tests) AS tests
    FULL JOIN (SELECT * FROM rates WHERE unit = 'group') AS rates USING (model, benchmark, name)
    LEFT JOIN titles USING (model, benchmark, name)
), listed AS (
    SELECT model, benchmark, list(document ORDER BY
        coalesce(document.p_value, 1), -coalesce(document.flagged.value, 0), -coalesce(document.statistic, 0),
        document.name
    ) AS documents
    FROM documents GROUP BY ALL
), whole AS (
    SELECT model, benchmark, list({
        'unit': unit, 'name': name, 'n_texts': n_texts, 'n_groups': n_groups, 'n_flagged': n_flagged,
        'flagged': estimate(flagged, flagged_low, flagged_high), 'fpr': estimate(fpr, fpr_low, fpr_high),
        'tpr': estimate(tpr, tpr_low, tpr_high), 'corrected': estimate(corrected, corrected_low, corrected_high),
        'refused': refused(status, reason), 'assumption': assumption
    } ORDER BY list_position(['benchmark', 'collection', 'group'], unit), flagged DESC, name) FILTER (unit <> 'group')
        AS rates,
        first(assumption ORDER BY flagged DESC, name) FILTER (unit = 'group') AS document_assumption
    FROM rates GROUP BY ALL
), tested AS (
    SELECT model, benchmark, CASE WHEN count(DISTINCT coalesce(direction, '')) = 1 THEN max(direction) END AS direction,
        min(n_calibration_groups) AS n_calibration_groups,
        first(n_tests ORDER BY p_value, "group") AS n_tests, first(n_ledger ORDER BY p_value, "group") AS n_ledger,
        first(method ORDER BY p_value, "group") AS method
    FROM tests GROUP BY ALL
), calibrating AS (
    SELECT pairs.model, pairs.benchmark, max(decided.n_calibration_groups) AS groups
    FROM current_decisions AS decided JOIN all_evidence_pairs AS pairs USING (model, benchmark)
    WHERE decided.is_default AND (pairs.detector IS NULL
        OR (decided.detector = pairs.detector AND decided.parameters = pairs.parameters))
    GROUP BY ALL
)
SELECT model, benchmark, pairs.detector, pairs.parameters, tested.direction, rules.rule, rules.alpha,
    tested.n_calibration_groups, calibrating.groups AS n_calibration_groups_in_all, tested.n_tests, tested.n_ledger,
    tested.method, whole.rates[1].assumption AS assumption, whole.document_assumption,
    coalesce(listed.documents[1:150], []) AS documents, greatest(0, coalesce(len(listed.documents), 0) - 150) AS more,
    coalesce(whole.rates[1:40], []) AS rates, greatest(0, coalesce(len(whole.rates), 0) - 40) AS more_rates
FROM all_evidence_pairs AS pairs LEFT JOIN listed USING (model, benchmark) LEFT JOIN whole USING (model, benchmark)
LEFT JOIN tested USING (model, benchmark) LEFT JOIN calibrating USING (model, benchmark)
LEFT JOIN rules USING (model, benchmark)
WHERE listed.documents IS NOT NULL OR whole.rates IS NOT NULL;
