-- The answer of every pair, tests of whole sets, and what is given word for word, of all models; beside the table
-- options (options.sql).

CREATE TEMP TABLE handed_over AS
-- The benchmarks that are tables of scores handed over.
SELECT benchmark FROM benchmarks WHERE (manifest ->> '$.spec.builder') = 'given';

CREATE TEMP TABLE tests AS
-- The latest result of every test of a whole set, of every model.
WITH told AS (
    SELECT tests.*, runs.finished_at, benchmarks.design, refused(tests.status, tests.reason) AS refused,
        tests.benchmark IN (FROM handed_over) AS is_handed_over,
        (SELECT count(p_value) FROM corpus_tests AS every
            WHERE every.model = tests.model AND every.benchmark = tests.benchmark) AS p_values_so_far,
        test_rests_on(tests.test, tests.claim_level, benchmarks.design_stated_by, (
            SELECT max(found.value) FROM current_evaluations AS found
            WHERE found.model = tests.model AND found.benchmark = tests.benchmark
                AND found.detector = 'blind_control' AND found.metric = 'auroc'
        )) AS claim_stated_by
    FROM current_corpus_tests AS tests
    LEFT JOIN (SELECT * FROM runs WHERE "table" = 'corpus_tests') AS runs
        ON runs.run_id = tests.run_id AND runs.model = tests.model AND runs.benchmark = tests.benchmark
    LEFT JOIN benchmarks ON benchmarks.benchmark = tests.benchmark
), worded AS (
    SELECT *, whole_set_words(test, refused, finite(p_value), p_values_so_far, claim_level, direction, is_handed_over,
        claim_stated_by) AS words
    FROM told
)
SELECT model, benchmark, model_title(model) AS model_title, benchmark_title(benchmark) AS benchmark_title, design,
    test, words.outcome AS outcome, words.headline AS headline, refused,
    finite(p_value) AS p_value, finite(statistic) AS statistic, n, n_held_out, assumption, direction,
    claim_level, claim_stated_by, claim_words(claim_level, claim_stated_by) AS claim_in_words, method,
    p_values_so_far, finished_at, run_id,
    row_number() OVER (
        ORDER BY status <> 'ok', list_position(['sound test', 'statistical evidence'], claim_level) NULLS LAST,
            tests.p_value, model, benchmark, test, method
    ) AS place
FROM worded AS tests;

CREATE TEMP TABLE extraction_counts AS
-- What every model gives word for word of the documents of every benchmark that it was asked to go on with.
SELECT *, extraction_words(model_title, benchmark_title, documents, reproduced, held_out, held_out_reproduced, set_apart, reason) AS said FROM (
    SELECT model, benchmark, run_id, model_title(model) AS model_title, benchmark_title(benchmark) AS benchmark_title,
        count(*) FILTER (side = 'audited' AND windows > 0) AS documents,
        count(*) FILTER (side = 'audited' AND claim = 'reproduced') AS reproduced,
        count(*) FILTER (side = 'held_out' AND windows > 0) AS held_out,
        count(*) FILTER (side = 'held_out' AND claim = 'reproduced') AS held_out_reproduced,
        count(*) FILTER (windows = 0) AS without_window, max(reason) AS reason,
        sum(windows)::BIGINT AS windows, sum(every.set_apart)::BIGINT AS set_apart,
        sum(predictable)::BIGINT AS predictable, any_value(prefix_tokens) AS prefix_tokens,
        any_value(suffix_tokens) AS suffix_tokens, any_value(stride) AS stride
    FROM current_document_memorisation AS every GROUP BY ALL
);

CREATE TEMP TABLE answers AS
WITH pairs AS (
    SELECT runs.model, runs.benchmark, max(runs.finished_at) AS audited_at,
        max(benchmarks.design) AS design, max(benchmarks.design_stated_by) AS design_stated_by,
        max(benchmarks.manifest ->> 'description') AS description,
        max(benchmarks.manifest ->> '$.spec.member_before') AS member_before,
        max(benchmarks.manifest ->> '$.spec.nonmember_from') AS nonmember_from,
        max(benchmarks.manifest ->> '$.spec.builder') AS builder, max(benchmarks.manifest ->> 'origin') AS origin,
        coalesce(
            bool_and(runs.benchmark_digest = benchmarks.digest) FILTER (runs."table" = 'scores'), TRUE
        ) AS is_current
    FROM runs LEFT JOIN benchmarks ON benchmarks.benchmark = runs.benchmark
    WHERE runs.is_current AND runs.model IS NOT NULL AND runs."table" IN ('scores', 'evaluations')
    GROUP BY ALL
), board AS (
    SELECT board.*, found.method FROM leaderboard AS board
    LEFT JOIN (SELECT * FROM current_evaluations WHERE metric = 'auroc' AND is_default) AS found
        USING (model, benchmark, detector, parameters)
), scored AS (
    -- Rows of earlier versions do not say whether a setting is the default: there it is, where some evaluation says so, or
    -- its highest scores are kept token by token, which is done at the default alone.
    SELECT DISTINCT scored.model, scored.benchmark, scored.detector, scored.parameters,
        coalesce(scored.is_default, (scored.detector, scored.parameters) IN (
            SELECT (detector, parameters) FROM evaluations WHERE is_default
            UNION SELECT (detector, parameters) FROM highlights
        )) AS is_default
    FROM scored_settings AS scored SEMI JOIN (SELECT * FROM current_runs WHERE "table" = 'scores') AS latest
        USING (model, benchmark, run_id)
    WHERE scored.scored > 0
), tested AS (
    -- Groups without a label are audited ones, or of texts of both sides where no text is audited.
    SELECT model, benchmark, detector, parameters, count(*) FILTER (label IS NULL) AS tested,
        count(*) FILTER (label IS NULL AND q_bh <= 0.05) AS standing_out,
        count(*) FILTER (label IS NULL AND q_ledger <= 0.05) AS standing_out_of_all,
        min(n_calibration_groups) AS calibration_groups, min(claim_level) AS claim_level, min(direction) AS direction,
        benchmark IN (SELECT benchmark FROM examples WHERE split = 'evaluation' AND label IS NULL) AS has_audited
    FROM current_group_tests WHERE is_default GROUP BY ALL
), candidates AS (
    -- Evaluated, tested, scored at its default, scored: the first of these in which a detector answers.
    SELECT model, benchmark, 1 AS step, detector, parameters FROM board WHERE n > 0
    UNION ALL SELECT model, benchmark, 2, detector, parameters FROM tested
    UNION ALL SELECT model, benchmark, 3, detector, parameters FROM scored WHERE is_default
    UNION ALL SELECT model, benchmark, 4, detector, parameters FROM scored
), steps AS (
    SELECT model, benchmark, step, any_value(options.settings::JSON ->> 'headline') AS named,
        headline_detector(list(DISTINCT detector), any_value(options.settings::JSON ->> 'headline')) AS detector
    FROM candidates LEFT JOIN options USING (model, benchmark) GROUP BY ALL
), chosen AS (
    -- Where nobody named one of several that were evaluated, there is no headline: the next step is not asked.
    SELECT * FROM steps WHERE detector IS NOT NULL OR named IS NULL
    QUALIFY row_number() OVER (PARTITION BY model, benchmark ORDER BY step) = 1
), answering AS (
    SELECT pairs.*, options.settings, chosen.detector, why_it_answers(chosen.detector, chosen.named) AS detector_chosen,
        min(candidates.parameters) AS parameters
    FROM pairs LEFT JOIN options USING (model, benchmark) LEFT JOIN chosen USING (model, benchmark)
    LEFT JOIN candidates ON candidates.model = pairs.model AND candidates.benchmark = pairs.benchmark
        AND candidates.step = chosen.step AND candidates.detector = chosen.detector
    GROUP BY ALL
), firsts AS (
    -- Of every pair the row of the headline detector, or else the first.
    SELECT board.*, (board.detector = answering.detector AND board.parameters = answering.parameters) IS TRUE AS answers
    FROM board JOIN answering USING (model, benchmark)
    QUALIFY row_number() OVER (
        PARTITION BY board.model, board.benchmark ORDER BY answers DESC, board.detector, board.parameters
    ) = 1
), sides AS (
    SELECT model, benchmark,
        CASE WHEN bool_or(starts_with(coalesce(method, ''), against_held_out()))
            THEN 'audited against held-out' ELSE 'labelled' END AS sides
    FROM board GROUP BY ALL
), every AS (
    SELECT model, benchmark, list({
        'detector': detector, 'parameters': parameters,
        'auroc': estimate(auroc, auroc_low, auroc_high, method),
        'tpr_at_5_fpr': estimate(tpr_at_5_fpr, tpr_at_5_fpr_low, tpr_at_5_fpr_high),
        'standing_out': standing_out_of_all, 'direction': direction
    } ORDER BY detector, parameters) AS detectors
    FROM board FULL JOIN (SELECT * EXCLUDE (claim_level) FROM tested WHERE has_audited) AS tested
        USING (model, benchmark, detector, parameters)
    GROUP BY ALL
), calibrating AS (
    SELECT model, benchmark, detector, max(n_calibration_groups) AS groups FROM current_decisions
    WHERE is_default GROUP BY ALL
), rates AS (
    SELECT * FROM current_contamination_rates WHERE unit = 'benchmark' AND is_default
    QUALIFY row_number() OVER (
        PARTITION BY model, benchmark, detector
        ORDER BY rule_place(rule, alpha), parameters, rule DESC, alpha DESC
    ) = 1
), documents_of_one AS (
    SELECT model, benchmark, {
        'tested': tested.tested, 'standing_out': tested.standing_out, 'detectors': 1::BIGINT, 'tests': tested.tested,
        'can_stand_out': tested.tested, 'direction': tested.direction,
        'calibration_groups': tested.calibration_groups::BIGINT,
        'calibration_groups_in_all': calibrating.groups::BIGINT,
        'smallest_q': smallest_q(tested.calibration_groups, tested.tested, 1),
        'flagged': CASE WHEN rates.model IS NOT NULL
            THEN estimate(rates.flagged, rates.flagged_low, rates.flagged_high) END,
        'corrected': CASE WHEN rates.model IS NOT NULL
            THEN estimate(rates.corrected, rates.corrected_low, rates.corrected_high, rates.reason) END,
        'alpha': rates.alpha
    } AS documents
    FROM answering JOIN tested USING (model, benchmark, detector, parameters)
    LEFT JOIN rates USING (model, benchmark, detector) LEFT JOIN calibrating USING (model, benchmark, detector)
    WHERE tested.has_audited AND tested.tested > 0
), by_any AS (
    -- By any detector, its scores running with training as far as is known.
    SELECT model, benchmark, count(DISTINCT "group") AS tested, max(n_ledger) AS tests,
        count(*) FILTER (direction IS DISTINCT FROM 'opposite') AS can_stand_out,
        count(DISTINCT "group") FILTER (
            q_ledger <= 0.05 AND direction IS DISTINCT FROM 'opposite'
        ) AS standing_out
    FROM current_group_tests WHERE is_default AND label IS NULL GROUP BY ALL
), tested_by_several AS (
    SELECT model, benchmark, count(*) AS detectors, min(calibration_groups) AS calibration_groups,
        CASE WHEN bool_and(direction IS NOT DISTINCT FROM 'opposite') THEN 'opposite'
            WHEN count(DISTINCT coalesce(direction, '')) FILTER (direction IS DISTINCT FROM 'opposite') > 1 THEN 'none'
            ELSE max(direction) FILTER (direction <> 'opposite') END AS direction
    FROM tested WHERE has_audited AND tested > 0 GROUP BY ALL
), documents_of_all AS (
    SELECT model, benchmark, {
        'tested': by_any.tested, 'standing_out': by_any.standing_out, 'detectors': several.detectors,
        'tests': by_any.tests::BIGINT, 'can_stand_out': by_any.can_stand_out, 'direction': several.direction,
        'calibration_groups': several.calibration_groups::BIGINT,
        'calibration_groups_in_all': (
            SELECT max(groups)::BIGINT FROM calibrating
            WHERE calibrating.model = several.model AND calibrating.benchmark = several.benchmark
        ),
        'smallest_q': smallest_q(several.calibration_groups, by_any.tested,
            penalty(by_any.tests) * by_any.tests / greatest(1, by_any.can_stand_out)),
        'flagged': NULL, 'corrected': NULL, 'alpha': NULL
    } AS documents
    FROM tested_by_several AS several JOIN by_any USING (model, benchmark)
), counted AS (
    -- With a score by the headline detector; by any where none does.
    SELECT model, benchmark, list({
        'split': split, 'texts': texts, 'groups': groups, 'members': members, 'nonmembers': nonmembers,
        'unknown': unknown
    } ORDER BY split DESC) AS counted
    FROM (
        SELECT model, benchmark, split, count(*) AS texts, count(DISTINCT "group") AS groups,
            count(*) FILTER (label = 1) AS members, count(*) FILTER (label = 0) AS nonmembers,
            count(*) FILTER (label IS NULL) AS unknown
        FROM (
            SELECT DISTINCT scores.model, scores.benchmark, scores.example_id
            FROM current_scores AS scores JOIN answering
                ON scores.model = answering.model AND scores.benchmark = answering.benchmark
                AND scores.detector = coalesce(answering.detector, scores.detector)
                AND scores.parameters = coalesce(answering.parameters, scores.parameters)
            WHERE scores.status = 'ok'
        ) JOIN examples USING (benchmark, example_id)
        GROUP BY ALL
    ) GROUP BY ALL
), known AS (
    SELECT answering.model, answering.benchmark, model_title(answering.model) AS model_title,
        benchmark_title(answering.benchmark) AS benchmark_title, answering.member_before, answering.nonmember_from,
        cut(nullif(answering.description, ''), 400) AS description,
        answering.design, answering.design_stated_by, labels_words(answering.builder, answering.origin) AS labels_by,
        answering.settings::JSON ->> 'file' AS handed_over, coalesce(sides.sides, 'none') AS sides,
        coalesce(firsts.claim_level, own.claim_level, other.claim_level) AS claim_level, firsts.split_verdict,
        answering.detector, answering.detector_chosen, answering.parameters,
        CASE WHEN answering.detector IS NULL THEN every.detectors END AS every_detector,
        coalesce(firsts.is_current, answering.is_current) AS is_current,
        CASE WHEN firsts.answers THEN firsts.n_not_scored ELSE 0 END AS not_scored,
        CASE WHEN firsts.auroc IS NOT NULL THEN few_texts(firsts.n_members, firsts.n_nonmembers) END AS warning,
        CASE WHEN firsts.answers
            THEN estimate(firsts.auroc, firsts.auroc_low, firsts.auroc_high, firsts.method) END AS auroc,
        CASE WHEN firsts.answers
            THEN estimate(firsts.tpr_at_5_fpr, firsts.tpr_at_5_fpr_low, firsts.tpr_at_5_fpr_high) END AS tpr_at_5_fpr,
        CASE WHEN firsts.answers THEN estimate(firsts.margin, firsts.margin_low, firsts.margin_high) END AS margin,
        CASE WHEN firsts.model IS NOT NULL
            THEN estimate(firsts.blind_auroc, firsts.blind_auroc_low, firsts.blind_auroc_high, blind.method)
        END AS blind,
        CASE WHEN firsts.model IS NOT NULL
            THEN estimate(firsts.blind_tpr_at_5_fpr, firsts.blind_tpr_at_5_fpr_low, firsts.blind_tpr_at_5_fpr_high)
        END AS blind_tpr_at_5_fpr,
        firsts.worst_control AS strongest_control, finite(firsts.worst_control_auroc) AS strongest_control_auroc,
        CASE WHEN answering.detector IS NULL THEN documents_of_all.documents
            ELSE documents_of_one.documents END AS documents,
        answering.audited_at, coalesce(answering.builder = 'given', FALSE) AS is_given,
        whole_set.direction AS whole_set,
        counted.counted
    FROM answering LEFT JOIN firsts USING (model, benchmark) LEFT JOIN sides USING (model, benchmark)
    LEFT JOIN tested AS own ON own.model = answering.model AND own.benchmark = answering.benchmark
        AND own.detector = answering.detector AND own.parameters = answering.parameters
    LEFT JOIN (
        SELECT model, benchmark, arg_min(claim_level, (detector, parameters)) AS claim_level FROM tested GROUP BY ALL
    ) AS other USING (model, benchmark)
    LEFT JOIN every USING (model, benchmark) LEFT JOIN documents_of_one USING (model, benchmark)
    LEFT JOIN documents_of_all USING (model, benchmark) LEFT JOIN counted USING (model, benchmark)
    LEFT JOIN (
        SELECT model, benchmark, any_value(method) AS method FROM current_evaluations
        WHERE detector = 'blind_control' AND metric = 'auroc' GROUP BY ALL
    ) AS blind USING (model, benchmark)
    LEFT JOIN (
        SELECT model, benchmark, any_value(direction) AS direction FROM current_corpus_tests
        WHERE test = 'dataset_inference' GROUP BY ALL
    ) AS whole_set USING (model, benchmark)
), stated AS (
    SELECT *, rests_on(claim_level, design_stated_by, blind.value) AS claim_stated_by FROM known
), worded AS (
    SELECT *, answer_words(sides, claim_level, split_verdict, auroc, margin, documents, every_detector, whole_set,
        is_given, claim_stated_by) AS words
    FROM stated
), briefed AS (
    SELECT *, brief_of(model_title, benchmark_title, words.outcome::VARCHAR, sides, design, claim_level, split_verdict,
        auroc, blind, documents, warning, is_given, claim_stated_by, member_before, nonmember_from) AS brief
    FROM worded
)
SELECT model, benchmark, model_title, benchmark_title, description, design, design_stated_by, labels_by, handed_over,
    sides, words.outcome AS outcome, words.headline AS headline, words.explanation AS explanation, brief.question AS question,
    brief.how_sure AS how_sure, brief.what_would_change AS what_would_change, claim_level,
    claim_stated_by,
    CASE WHEN claim_level IS NOT NULL THEN claim_words(claim_level, claim_stated_by) END AS claim_in_words,
    split_verdict,
    CASE WHEN split_verdict IS NOT NULL THEN verdict_words(split_verdict, claim_stated_by) END AS verdict_in_words,
    detector, detector_chosen, parameters, coalesce(every_detector[1:12], []) AS every_detector,
    greatest(0, coalesce(len(every_detector), 0) - 12) AS more_detectors,
    CASE WHEN is_current THEN coalesce(counted, []) ELSE [] END AS counted, not_scored, warning, auroc, tpr_at_5_fpr,
    blind, blind_tpr_at_5_fpr, strongest_control, strongest_control_auroc, documents, audited_at, is_current
FROM briefed;
