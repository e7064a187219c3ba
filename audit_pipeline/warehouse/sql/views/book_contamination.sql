-- Columns without a comment are those of: contamination_rates, group_tests
CREATE VIEW book_contamination AS
WITH titles AS (
    SELECT examples.benchmark, examples."group", any_value(documents.title) AS title
    FROM (SELECT DISTINCT benchmark, "group", document_id FROM examples) AS examples
    JOIN documents ON documents.document_id = examples.document_id
    GROUP BY ALL HAVING count(DISTINCT documents.title) = 1
), tests AS (
    SELECT model, benchmark, 'group' AS unit, "group" AS name, detector, parameters, is_default, claim_level, run_id,
        label, collection, p_value, q_bh, q_by, q_ledger, direction, 1 AS groups_tested,
        (q_bh <= 0.05 AND direction IS DISTINCT FROM 'opposite')::INTEGER AS groups_found
    FROM current_group_tests
    UNION ALL
    SELECT model, benchmark, 'collection', collection, detector, parameters, is_default, claim_level, run_id,
        NULL, collection, NULL, NULL, NULL, NULL, direction, count(*),
        count(*) FILTER (q_bh <= 0.05 AND direction IS DISTINCT FROM 'opposite')
    FROM current_group_tests GROUP BY ALL
    UNION ALL
    SELECT model, benchmark, 'benchmark', benchmark, detector, parameters, is_default, claim_level, run_id,
        NULL, NULL, NULL, NULL, NULL, NULL, direction, count(*),
        count(*) FILTER (q_bh <= 0.05 AND direction IS DISTINCT FROM 'opposite')
    FROM current_group_tests GROUP BY ALL
), joined AS (
    SELECT model, benchmark, unit, name, tests.collection, tests.label, detector, parameters,
        coalesce(rates.is_default, tests.is_default) AS is_default,
        tests.p_value, tests.q_bh, tests.q_by, tests.q_ledger, tests.direction, tests.groups_tested, tests.groups_found,
        rates.rule, rates.alpha, rates.n_texts, rates.n_groups, rates.n_flagged,
        rates.flagged, rates.flagged_low, rates.flagged_high,
        rates.fpr, rates.fpr_low, rates.fpr_high, rates.tpr, rates.tpr_low, rates.tpr_high,
        rates.status, rates.reason, rates.corrected, rates.corrected_low, rates.corrected_high, rates.assumption,
        coalesce(rates.claim_level, tests.claim_level) AS claim_level, coalesce(rates.run_id, tests.run_id) AS run_id
    FROM current_contamination_rates AS rates
    FULL JOIN tests USING (model, benchmark, unit, name, detector, parameters)
)
SELECT joined.*, titles.title
FROM joined LEFT JOIN titles
    ON joined.unit = 'group' AND titles.benchmark = joined.benchmark AND titles."group" = joined.name;

COMMENT ON VIEW book_contamination IS
    'share of flagged texts, p-values, q-values and claim level of every book, collection and benchmark';
COMMENT ON COLUMN book_contamination.title IS 'title of the group''s document; null: several documents';
COMMENT ON COLUMN book_contamination.collection IS 'project, series or folder of the group';
COMMENT ON COLUMN book_contamination.p_value IS 'conformal p-value of a group; null for collections and benchmarks';
COMMENT ON COLUMN book_contamination.groups_tested IS
    'number of groups of the book, collection or benchmark with a p-value';
COMMENT ON COLUMN book_contamination.groups_found IS
    'number of tested groups with q_bh at most 0.05; 0 if the detector scores known non-members higher (direction: opposite)';
COMMENT ON COLUMN book_contamination.rule IS
    'largest_accuracy | marginal | certified: rule of the threshold that flags texts; null: the group was tested without a rate';
