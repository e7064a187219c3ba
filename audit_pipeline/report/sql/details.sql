-- Tables of the pairs whose details a group of model pages shows. The parts of sections read them once for all pages of
-- the group. page_data.py creates group_pairs (the pairs with an evidence section, with the number of the section) and
-- group_models, and the variable max_sections.

CREATE OR REPLACE TEMP TABLE all_extraction_pairs AS
-- The searched benchmarks of each model whose details its page shows, those with most reproduced documents first.
SELECT counted.*, row_number() OVER (PARTITION BY model ORDER BY reproduced DESC, benchmark) AS number
FROM extraction_counts AS counted SEMI JOIN group_models USING (model)
QUALIFY number <= getvariable('max_sections');

CREATE OR REPLACE TEMP TABLE all_extraction_documents AS
-- The documents that were searched for passages, the most reproduced first on each side.
SELECT documents.*, row_number() OVER (
    PARTITION BY model, benchmark, side
    ORDER BY covered_at_0_001 DESC NULLS LAST, covered_by_first_choices DESC NULLS LAST, log_p DESC NULLS LAST,
        document_id
) AS place
FROM current_document_memorisation AS documents SEMI JOIN all_extraction_pairs USING (model, benchmark);

CREATE OR REPLACE TEMP TABLE all_evidence_pairs AS
-- The pairs with an evidence section on the page of their model.
SELECT shown.number, answers.* FROM group_pairs AS shown JOIN answers USING (model, benchmark);

CREATE OR REPLACE TEMP TABLE all_evidence_evaluations AS
-- Their evaluations, in the order in which settings are listed.
SELECT found.*, row_number() OVER (
    PARTITION BY model, benchmark
    ORDER BY detector, TRY_CAST(parameters ->> '$.k' AS DOUBLE), parameters, metric
) AS place
FROM current_evaluations AS found SEMI JOIN all_evidence_pairs USING (model, benchmark);

CREATE OR REPLACE TEMP TABLE all_evidence_settings AS
-- The same evaluations, one row per detector and setting.
SELECT model, benchmark, detector, parameters, arg_min(is_default, place) AS is_default, min(place) AS place,
    arg_min(n_members, place) AS n_members, arg_min(n_nonmembers, place) AS n_nonmembers,
    arg_min(n_groups, place) AS n_groups, arg_min(n_not_scored, place) AS n_not_scored,
    coalesce(any_value(measured) FILTER (metric = 'auroc'), estimate(NULL, NULL, NULL)) AS auroc,
    coalesce(any_value(measured) FILTER (metric = 'tpr_at_5_fpr'), estimate(NULL, NULL, NULL)) AS tpr_at_5_fpr,
    coalesce(any_value(measured) FILTER (metric = 'tpr_at_1_fpr'), estimate(NULL, NULL, NULL)) AS tpr_at_1_fpr,
    coalesce(any_value(measured) FILTER (metric = 'tpr_at_01_fpr'), estimate(NULL, NULL, NULL)) AS tpr_at_01_fpr,
    coalesce(any_value(measured) FILTER (metric = 'fpr_at_95_tpr'), estimate(NULL, NULL, NULL)) AS fpr_at_95_tpr,
    coalesce(any_value(measured) FILTER (metric = 'auroc_margin'), estimate(NULL, NULL, NULL)) AS margin
FROM (SELECT *, estimate(value, ci_low, ci_high, method) AS measured FROM all_evidence_evaluations)
GROUP BY model, benchmark, detector, parameters;

CREATE OR REPLACE TEMP TABLE all_evidence_scores AS
-- Their scores at the listed settings, and the texts without a score.
SELECT scored.model, scored.benchmark, scored.detector, scored.parameters, scored.example_id, scored.score,
    scored.status, scored.reason, scored.label, scored.split, scored."group"
FROM scores_with_examples AS scored
WHERE (scored.model, scored.benchmark) IN (SELECT (model, benchmark) FROM all_evidence_pairs)
    AND (scored.status <> 'ok' OR (scored.model, scored.benchmark, scored.detector, scored.parameters) IN (
        SELECT (model, benchmark, detector, parameters) FROM all_evidence_evaluations WHERE is_default
        UNION SELECT (model, benchmark, detector, parameters) FROM all_evidence_pairs WHERE detector IS NOT NULL
    ));

CREATE OR REPLACE TEMP TABLE all_compared_scores AS
-- The texts on the two sides of the AUROC: labelled texts of the evaluation split, or audited and held-out texts. Rebuilt
-- benchmarks are omitted, because scores and texts may belong to different builds.
SELECT scored.model, scored.benchmark, scored.detector, scored.parameters, scored.score, scored."group",
    CASE WHEN pairs.sides = 'labelled' THEN scored.label ELSE (scored.split = 'evaluation')::INTEGER END AS side
FROM all_evidence_scores AS scored JOIN all_evidence_pairs AS pairs USING (model, benchmark)
WHERE pairs.is_current AND scored.status = 'ok' AND isfinite(scored.score)
    AND CASE WHEN pairs.sides = 'labelled' THEN scored.split = 'evaluation' AND scored.label IN (0, 1)
        ELSE scored.split = 'evaluation' OR (scored.split = 'calibration' AND scored.label = 0) END
    AND (scored.model, scored.benchmark, scored.detector, scored.parameters) IN (
        SELECT (model, benchmark, detector, parameters) FROM all_evidence_settings
        WHERE is_default AND detector <> 'blind_control' AND auroc.value IS NOT NULL
    );
