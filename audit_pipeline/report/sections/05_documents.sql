-- The audited documents of a model on a benchmark: passages that the model reproduces word for word, and how unusual the
-- scores are. One row per pair. Benchmarks with labels on both sides are omitted.
--
-- p_of: origin of the p-values: scores, or passages if no scores were compared; null: no p-values
-- detector: detector of the scores; null: no detector was named, and each document has its smallest p-value by any detector
-- searched: true if the documents were searched for passages
-- documents: documents, those with passages first, then by p-value
-- name: group of texts that is the document
-- title: title of the document; null: several titles or none
-- passages: number of windows that the model reproduces word for word; null: the document was not searched
-- longest_run_words: number of words of the longest reproduced run; null: unknown
-- p_value: share of the comparison documents that score as high
-- q_value: p-value corrected for the number of documents, and of detectors if no detector was named
-- compared_with: number of held-out documents in the comparison
-- stands_out: true if the q-value is at most 0.05 and scores do not run against training
-- reason: reason why the document was not searched
-- more: number of documents that are not listed
WITH asked AS (
    SELECT model, benchmark, place FROM shown_pairs
    UNION ALL SELECT model, benchmark, 1000 FROM page_searches
    WHERE (model, benchmark) NOT IN (SELECT (model, benchmark) FROM shown_pairs)
), pairs AS (
    SELECT asked.*, answers.detector, answers.parameters FROM asked LEFT JOIN answers USING (model, benchmark)
    WHERE answers.sides IS DISTINCT FROM 'labelled' OR answers.documents IS NOT NULL
), tests AS (
    SELECT tests.*, pairs.detector IS NOT NULL AS is_named
    FROM current_group_tests AS tests JOIN pairs ON pairs.model = tests.model AND pairs.benchmark = tests.benchmark
    WHERE tests.label IS NULL AND CASE WHEN pairs.detector IS NULL THEN tests.is_default
        ELSE tests.detector = pairs.detector AND tests.parameters = pairs.parameters END
    QUALIFY row_number() OVER (
        PARTITION BY tests.model, tests.benchmark, tests."group"
        ORDER BY tests.direction IS NOT DISTINCT FROM 'opposite', tests.p_value, tests.detector, tests.parameters
    ) = 1
), searched AS (
    SELECT model, benchmark, "group", CASE WHEN count(*) = 1 THEN any_value(title) END AS title,
        sum(windows) AS windows, sum(reproduced)::BIGINT AS reproduced, max(longest_run_words) AS longest_run_words,
        max(reason) AS reason,
        -- Several documents of a group have several p-values. The smallest is multiplied by their number (Bonferroni).
        least(1, count(finite(p_value)) * min(finite(p_value))) AS p_value, min(finite(q_bh)) AS q_value,
        max(n_held_out) AS n_held_out
    FROM current_document_memorisation SEMI JOIN pairs USING (model, benchmark)
    WHERE side = 'audited' GROUP BY ALL
), titles AS (
    SELECT used.benchmark, used."group", any_value(documents.title) AS title
    FROM (
        SELECT DISTINCT benchmark, "group", document_id FROM examples SEMI JOIN pairs USING (benchmark)
    ) AS used JOIN documents USING (document_id)
    GROUP BY ALL HAVING count(DISTINCT documents.title) = 1
), joined AS (
    SELECT model, benchmark, {
        'name': cut("group", 300), 'title': cut(coalesce(searched.title, titles.title), 300),
        'passages': CASE WHEN searched.windows > 0 THEN searched.reproduced END,
        'longest_run_words': CASE WHEN searched.windows > 0 THEN searched.longest_run_words END,
        'p_value': coalesce(finite(tests.p_value), searched.p_value),
        'q_value': CASE WHEN tests.is_named THEN finite(tests.q_bh) WHEN tests.model IS NOT NULL
            THEN finite(tests.q_ledger) ELSE searched.q_value END,
        'compared_with': coalesce(tests.n_calibration_groups, searched.n_held_out),
        'stands_out': (CASE WHEN tests.is_named THEN tests.q_bh ELSE tests.q_ledger END <= 0.05
            AND tests.direction IS DISTINCT FROM 'opposite') IS TRUE,
        'reason': CASE WHEN searched.windows = 0 THEN searched.reason END
    } AS document, tests.model IS NOT NULL AS is_scored, searched.windows
    FROM tests FULL JOIN searched USING (model, benchmark, "group")
    LEFT JOIN titles USING (benchmark, "group")
), listed AS (
    SELECT model, benchmark, bool_or(is_scored) AS is_scored, count(windows) > 0 AS searched,
        list(document ORDER BY
            coalesce(document.passages, 0) DESC, document.stands_out DESC, coalesce(document.p_value, 1),
            coalesce(document.title, document.name)
        ) AS documents
    FROM joined GROUP BY ALL
)
SELECT pairs.model, pairs.benchmark, model_title(pairs.model) AS model_title,
    benchmark_title(pairs.benchmark) AS benchmark_title, pairs.detector,
    CASE WHEN listed.is_scored THEN 'scores'
        WHEN len([d FOR d IN listed.documents IF d.p_value IS NOT NULL]) > 0 THEN 'passages' END AS p_of,
    listed.searched, listed.documents[1:150] AS documents,
    greatest(0, len(listed.documents) - 150) AS more, count(*) OVER () AS in_all
FROM pairs JOIN listed USING (model, benchmark)
ORDER BY pairs.place, pairs.model, pairs.benchmark LIMIT 3;
