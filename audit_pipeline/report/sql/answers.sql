-- Tables of all models: the answer of every pair, tests of whole sets, searches for passages and questions in words. They
-- use the table options (options.sql).

CREATE TEMP TABLE tries AS FROM attempts;

CREATE TEMP TABLE plans_now AS FROM plan_in_force;

CREATE TEMP TABLE attempted AS
-- Attempts, plan and other runs of the current search and of the current scores of every pair.
WITH counted AS (
    SELECT plan.benchmark, plan.model, plan.kind,
        max(tries.tried) FILTER (is_own) AS tried, max(tries.settings) FILTER (is_own) AS computed,
        max(tries.settings_used) FILTER (is_own) AS settings_used,
        count(DISTINCT regexp_replace(coalesce(tries.settings_used, ''), ',"price_per_million":[^,}]*', '')) FILTER (
            tries.kind = 'search' AND tries.same_texts_as IS NULL
        ) AS searched_settings,
        count(DISTINCT tries.run_id) FILTER (NOT is_of_run) AS other_runs,
        count(DISTINCT tries.run_id) FILTER (NOT is_of_run AND tries.found > 0) AS other_findings
    FROM (
        SELECT plan.benchmark, plan.model, plan.kind, list(own.run_id) AS runs
        FROM plans_now AS plan JOIN tries AS own USING (benchmark, model, kind)
        WHERE own.is_current AND own.same_texts_as IS NULL GROUP BY ALL
    ) AS plan JOIN (
        SELECT *, same_texts_as IS NULL AND is_current AS is_present FROM tries
    ) AS tries USING (benchmark, model), LATERAL (
        SELECT tries.is_present AND tries.kind = plan.kind AS is_own,
            list_contains(plan.runs, tries.run_id) AS is_of_run
    )
    GROUP BY ALL
)
SELECT plan.*, counted.tried, counted.settings_used, counted.other_runs, counted.other_findings,
    CASE plan.kind WHEN 'search' THEN counted.searched_settings ELSE counted.computed END AS settings,
    found.windows_found, found.grid_settings
FROM plans_now AS plan JOIN counted USING (benchmark, model, kind)
LEFT JOIN (
    SELECT benchmark, model, 'search' AS kind, sum(reproduced) FILTER (side = 'audited')::BIGINT AS windows_found,
        max(grid_settings) AS grid_settings
    FROM current_document_memorisation GROUP BY ALL
) AS found USING (benchmark, model, kind);

CREATE TEMP TABLE handed_over AS
-- The benchmarks that are tables of external scores.
SELECT benchmark FROM benchmarks WHERE (manifest ->> '$.spec.builder') = 'given';

CREATE TEMP TABLE tests AS
-- The latest result of every test of a whole set, per model.
WITH latest AS (
    SELECT tests.*, runs.finished_at, benchmarks.design, benchmarks.design_stated_by,
        refused(tests.status, tests.reason) AS refused, tests.benchmark IN (FROM handed_over) AS handed_over,
        (SELECT count(p_value) FROM corpus_tests AS every
            WHERE every.model = tests.model AND every.benchmark = tests.benchmark) AS p_values_so_far,
        (SELECT max(found.value) FROM current_evaluations AS found
            WHERE found.model = tests.model AND found.benchmark = tests.benchmark
                AND found.detector = 'blind_control' AND found.metric = 'auroc') AS blind
    FROM current_corpus_tests AS tests
    LEFT JOIN (SELECT * FROM runs WHERE "table" = 'corpus_tests') AS runs
        ON runs.run_id = tests.run_id AND runs.model = tests.model AND runs.benchmark = tests.benchmark
    LEFT JOIN benchmarks ON benchmarks.benchmark = tests.benchmark
)
SELECT model, benchmark, model_title(model) AS model_title, benchmark_title(benchmark) AS benchmark_title, design,
    test, refused, finite(p_value) AS p_value, finite(statistic) AS statistic, n, n_held_out, assumption, direction,
    detectable_auroc,
    claim_level, method,
    p_values_so_far, finished_at, run_id,
    row_number() OVER (
        ORDER BY status <> 'ok', list_position(['sound test', 'statistical evidence'], claim_level) NULLS LAST,
            tests.p_value, model, benchmark, test, method
    ) AS place, handed_over AS raw_handed_over, design_stated_by AS raw_design_stated_by, blind AS raw_blind
FROM latest AS tests;

CREATE TEMP TABLE extraction_counts AS
-- Counts of the search for passages that a model reproduces word for word, per model and benchmark.
SELECT model, benchmark, run_id, model_title(model) AS model_title, benchmark_title(benchmark) AS benchmark_title,
    count(*) FILTER (side = 'audited' AND windows > 0) AS documents,
    count(*) FILTER (side = 'audited' AND claim = 'reproduced') AS reproduced,
    count(*) FILTER (side = 'held_out' AND windows > 0) AS held_out,
    count(*) FILTER (side = 'held_out' AND claim = 'reproduced') AS held_out_reproduced,
    count(*) FILTER (windows = 0) AS without_window, max(reason) AS reason,
    sum(windows)::BIGINT AS windows, sum(every.set_apart)::BIGINT AS set_apart,
    sum(predictable)::BIGINT AS predictable, any_value(prefix_tokens) AS prefix_tokens,
    any_value(suffix_tokens) AS suffix_tokens, any_value(stride) AS stride,
    count(*) FILTER (side = 'audited' AND windows = 0) AS raw_without_window,
    -- An answer is compared with one answer of each held-out conversation.
    count(DISTINCT CASE WHEN stride = 'answers' THEN regexp_replace(document_id, '/[0-9]+$', '') ELSE document_id END)
        FILTER (side = 'held_out' AND windows > 0) AS raw_held_out_compared,
    count(*) FILTER (side = 'audited' AND q_bh <= 0.05) AS raw_stand_out,
    EXISTS (FROM current_chat_documents AS asked
        WHERE asked.model = every.model AND asked.benchmark = every.benchmark) AS raw_asked,
    max(every.grid_settings) AS grid_settings,
    any_value(present.settings_used::JSON ->> '$.price_per_million')::DOUBLE AS price, any_value(present) AS raw_attempted,
    (SELECT any_value(built.design_stated_by) FROM benchmarks AS built WHERE built.benchmark = every.benchmark)
        AS raw_design_stated_by
FROM current_document_memorisation AS every LEFT JOIN (
    SELECT benchmark, model, attempted AS present FROM attempted WHERE kind = 'search'
) USING (benchmark, model)
GROUP BY ALL;

CREATE TEMP TABLE chat_counts AS
-- Counts of the questions to models that answer in words, per model and benchmark, in the headline prompt style.
WITH ladder AS (
    SELECT model, benchmark, any_value(run_id) AS run_id, any_value(rung) FILTER (is_headline) AS rung,
        count(*) FILTER (is_headline AND side = 'audited' AND answered > 0) AS documents,
        count(*) FILTER (is_headline AND side = 'audited' AND answered = 0) AS unanswered,
        count(*) FILTER (is_headline AND side = 'audited' AND claim = 'reproduced') AS reproduced,
        count(*) FILTER (is_headline AND side = 'audited' AND claim = 'not graded') AS not_graded,
        count(*) FILTER (is_headline AND side = 'audited' AND q_bh <= 0.05) AS stand_out,
        count(*) FILTER (is_headline AND side = 'held_out') AS held_out_asked,
        count(*) FILTER (is_headline AND side = 'held_out' AND answered > 0) AS held_out,
        count(*) FILTER (is_headline AND side = 'held_out' AND claim = 'reproduced') AS held_out_reproduced,
        max(n_held_out) FILTER (is_headline) AS compared_with,
        max(longest_run) FILTER (is_headline AND side = 'audited') AS longest_run,
        sum(requests)::BIGINT AS requests, sum(requests - answered)::BIGINT AS not_measured
    FROM current_chat_documents GROUP BY ALL
), others AS (
    SELECT model, benchmark, list({'rung': rung, 'reproduced': reproduced, 'documents': documents} ORDER BY rung)
        AS elsewhere
    FROM (
        SELECT model, benchmark, rung, count(*) FILTER (claim = 'reproduced') AS reproduced,
            count(*) FILTER (answered > 0) AS documents
        FROM current_chat_documents WHERE NOT is_headline AND side = 'audited' GROUP BY ALL
    ) WHERE reproduced > 0 GROUP BY ALL
)
SELECT ladder.*, model_title(model) AS model_title, benchmark_title(benchmark) AS benchmark_title,
    coalesce(elsewhere, []) AS elsewhere
FROM ladder LEFT JOIN others USING (model, benchmark);

CREATE TEMP TABLE answers AS
-- The answer of each pair with the numbers that it rests on.
WITH pairs AS (
    SELECT runs.model, runs.benchmark, max(runs.finished_at) AS audited_at,
        max(benchmarks.design) AS design, max(benchmarks.design_stated_by) AS design_stated_by,
        max(benchmarks.manifest ->> 'description') AS description,
        (SELECT max(scored_part) FROM examples WHERE examples.benchmark = runs.benchmark) AS scored_part,
        max(benchmarks.manifest ->> '$.spec.builder') AS builder, max(benchmarks.manifest ->> 'origin') AS origin,
        coalesce(
            bool_and(runs.benchmark_digest = benchmarks.digest) FILTER (runs."table" = 'scores'), TRUE
        ) AS is_current
    FROM runs LEFT JOIN benchmarks ON benchmarks.benchmark = runs.benchmark
    WHERE runs.is_current AND runs.model IS NOT NULL AND runs."table" IN ('scores', 'evaluations')
    GROUP BY ALL
), board AS (
    SELECT board.*, found.method FROM leaderboard_history AS board
    LEFT JOIN (SELECT * FROM current_evaluations WHERE metric = 'auroc' AND is_default) AS found
        USING (model, benchmark, detector, parameters)
    WHERE board.is_latest
), firsts AS (
    -- Each pair has the row of the headline detector, or else the first row.
    SELECT board.*, (board.detector = answer.detector AND board.parameters = answer.parameters) IS TRUE AS answers
    FROM board JOIN current_pair_answers AS answer USING (model, benchmark)
    QUALIFY row_number() OVER (
        PARTITION BY board.model, board.benchmark ORDER BY answers DESC, board.detector, board.parameters
    ) = 1
), tested AS (
    SELECT model, benchmark, detector, parameters, min(direction) AS direction,
        count(*) FILTER (label IS NULL AND q_ledger <= 0.05) AS standing_out_of_all
    FROM current_group_tests WHERE is_default GROUP BY ALL
), every AS (
    SELECT model, benchmark, list({
        'detector': detector, 'parameters': parameters,
        'auroc': estimate(auroc, auroc_low, auroc_high, method),
        'tpr_at_5_fpr': estimate(tpr_at_5_fpr, tpr_at_5_fpr_low, tpr_at_5_fpr_high),
        'standing_out': standing_out_of_all, 'direction': direction
    } ORDER BY detector, parameters) AS detectors
    FROM board FULL JOIN tested USING (model, benchmark, detector, parameters)
    GROUP BY ALL
), rates AS (
    SELECT * FROM current_contamination_rates WHERE unit = 'benchmark' AND is_default
    QUALIFY row_number() OVER (
        PARTITION BY model, benchmark, detector
        ORDER BY rule_place(rule, alpha), parameters, rule DESC, alpha DESC
    ) = 1
), counted AS (
    -- Texts with a score by the headline detector, or by any detector if there is no headline detector.
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
            FROM current_scores AS scores JOIN current_pair_answers AS answer
                ON scores.model = answer.model AND scores.benchmark = answer.benchmark
                AND scores.detector = coalesce(answer.detector, scores.detector)
                AND scores.parameters = coalesce(answer.parameters, scores.parameters)
            WHERE scores.status = 'ok'
        ) JOIN examples USING (benchmark, example_id)
        GROUP BY ALL
    ) GROUP BY ALL
)
SELECT pairs.model, pairs.benchmark, model_title(pairs.model) AS model_title,
    benchmark_title(pairs.benchmark) AS benchmark_title, cut(nullif(pairs.description, ''), 400) AS description,
    pairs.design, pairs.design_stated_by,
    options.settings::JSON ->> 'scores' AS handed_over, answer.sides, answer.sign, answer.outcome, answer.headline,
    answer.explanation, answer.question, answer.how_sure, answer.what_would_change, answer.claim_level,
    answer.claim_stated_by, answer.split_verdict,
    answer.detector, answer.detector_chosen, answer.parameters,
    CASE WHEN answer.detector IS NULL THEN coalesce(every.detectors[1:12], []) ELSE [] END AS every_detector,
    CASE WHEN answer.detector IS NULL THEN greatest(0, coalesce(len(every.detectors), 0) - 12) ELSE 0 END
        AS more_detectors,
    CASE WHEN coalesce(firsts.is_current, pairs.is_current) THEN coalesce(counted.counted, []) ELSE [] END AS counted,
    CASE WHEN firsts.answers THEN firsts.n_not_scored ELSE 0 END AS not_scored, answer.warning,
    CASE WHEN firsts.answers
        THEN estimate(firsts.auroc, firsts.auroc_low, firsts.auroc_high, firsts.method) END AS auroc,
    CASE WHEN firsts.answers
        THEN estimate(firsts.tpr_at_5_fpr, firsts.tpr_at_5_fpr_low, firsts.tpr_at_5_fpr_high) END AS tpr_at_5_fpr,
    CASE WHEN firsts.model IS NOT NULL
        THEN estimate(firsts.blind_auroc, firsts.blind_auroc_low, firsts.blind_auroc_high, blind.method)
    END AS blind,
    CASE WHEN firsts.model IS NOT NULL
        THEN estimate(firsts.blind_tpr_at_5_fpr, firsts.blind_tpr_at_5_fpr_low, firsts.blind_tpr_at_5_fpr_high)
    END AS blind_tpr_at_5_fpr,
    firsts.worst_control AS strongest_control, finite(firsts.worst_control_auroc) AS strongest_control_auroc,
    CASE WHEN answer.tested IS NOT NULL THEN {
        'tested': answer.tested, 'standing_out': answer.standing_out, 'detectors': answer.detectors,
        'tests': answer.tests,
        'can_stand_out': answer.can_stand_out, 'direction': answer.direction,
        'calibration_groups': answer.calibration_groups, 'calibration_groups_in_all': answer.calibration_groups_in_all,
        'smallest_q': answer.smallest_q,
        -- The false-positive rate of a threshold is known only if the threshold is certified.
        'flagged': CASE WHEN rates.rule = 'certified'
            THEN estimate(rates.flagged, rates.flagged_low, rates.flagged_high) END,
        'corrected': CASE WHEN rates.model IS NOT NULL
            THEN estimate(rates.corrected, rates.corrected_low, rates.corrected_high, rates.reason) END,
        'alpha': rates.alpha
    } END AS documents,
    pairs.audited_at, coalesce(firsts.is_current, pairs.is_current) AS is_current,
    pairs.scored_part AS raw_scored_part, pairs.builder AS raw_builder, pairs.origin AS raw_origin,
    present AS raw_attempted,
    EXISTS (FROM extraction_counts AS counted WHERE counted.model = pairs.model
        AND counted.benchmark = pairs.benchmark AND counted.documents > 0) AS raw_searched,
    EXISTS (FROM tests WHERE tests.model = pairs.model AND test = 'twins' AND refused IS NULL) AS raw_twins
FROM pairs JOIN current_pair_answers AS answer USING (model, benchmark) LEFT JOIN options USING (model, benchmark)
LEFT JOIN firsts USING (model, benchmark) LEFT JOIN every USING (model, benchmark)
LEFT JOIN rates ON rates.model = answer.model AND rates.benchmark = answer.benchmark
    AND rates.detector = answer.detector
LEFT JOIN counted USING (model, benchmark)
LEFT JOIN (
    SELECT benchmark, model, attempted AS present FROM attempted WHERE kind = 'detectors'
) USING (model, benchmark)
LEFT JOIN (
    SELECT model, benchmark, any_value(method) AS method FROM current_evaluations
    WHERE detector = 'blind_control' AND metric = 'auroc' GROUP BY ALL
) AS blind USING (model, benchmark);
