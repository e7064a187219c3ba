-- Findings (view changes_since_last_audit) and documents that stand out, compared with the previous run on the same model
-- and benchmark. One row.
--
-- documents: pairs with changed sets of documents that stand out, by the headline detector
-- tested: number of documents that are tested now
-- standing_out: number of documents that stand out now
-- newly: documents that stand out now and did not before, the first by name
-- no_longer: documents that stood out before and do not now, the first by name
-- same_build: true if both runs used the same build of the benchmark; null: a build is unknown
-- more_documents: number of such pairs that are not listed
-- findings: changed findings, by the headline detectors, or by all detectors on the page of a model
-- change: new detector, no longer there, or changed
-- now: current AUROC
-- before: AUROC of the previous run
-- left_interval: true if the current AUROC lies outside of the previous interval
-- because: other changes between both runs: benchmark, model, code, inputs, packages
-- more_findings: number of such findings that are not listed
WITH ranked AS (
    -- Only audited texts: labelled groups are not expected to stand out individually.
    SELECT *, row_number() OVER (
        PARTITION BY model, benchmark ORDER BY finished_at DESC NULLS LAST, run_id DESC
    ) AS place
    FROM runs SEMI JOIN shown_pairs USING (model, benchmark)
    WHERE "table" = 'group_tests'
        AND benchmark IN (SELECT benchmark FROM examples WHERE split = 'evaluation' AND label IS NULL)
), counted AS (
    SELECT shown.model, shown.benchmark, shown.detector, shown.parameters, ranked.place,
        any_value(ranked.finished_at) AS finished_at, any_value(ranked.benchmark_digest) AS digest,
        count(tests."group") AS tested,
        coalesce(list(tests."group" ORDER BY tests."group") FILTER (
            tests.q_bh <= 0.05 AND tests.direction IS DISTINCT FROM 'opposite'), []) AS out
    FROM ranked JOIN shown_pairs AS shown USING (model, benchmark)
    LEFT JOIN group_tests AS tests
        ON tests.model = shown.model AND tests.benchmark = shown.benchmark AND tests.run_id = ranked.run_id
        AND tests.detector = shown.detector AND tests.parameters = shown.parameters AND tests.label IS NULL
    WHERE ranked.place <= 2 AND shown.detector IS NOT NULL GROUP BY ALL
), compared AS (
    SELECT now.model, now.benchmark, now.detector, now.parameters, now.tested, len(now.out) AS standing_out,
        past.tested AS previous_tested, len(past.out) AS previous_standing_out,
        [cut(one, 300) FOR one IN now.out IF NOT list_contains(past.out, one)] AS newly,
        [cut(one, 300) FOR one IN past.out IF NOT list_contains(now.out, one)] AS no_longer,
        now.digest = past.digest AS same_build, now.finished_at, past.finished_at AS previous_finished_at,
        row_number() OVER (ORDER BY now.finished_at DESC, now.model, now.benchmark) AS place
    FROM counted AS now JOIN counted AS past USING (model, benchmark)
    WHERE now.place = 1 AND past.place = 2 AND (now.tested <> past.tested OR now.out <> past.out)
), changed AS (
    SELECT changed.*, row_number() OVER (
        ORDER BY changed.finished_at DESC, changed.model, changed.benchmark, changed.detector, changed.parameters
    ) AS place
    FROM all_changes AS changed JOIN shown_pairs AS shown USING (model, benchmark), page
    WHERE page.kind = 'model' OR (changed.detector = shown.detector AND changed.parameters = shown.parameters)
)
SELECT (SELECT coalesce(list({
        'model': model, 'benchmark': benchmark, 'detector': detector, 'parameters': parameters,
        'tested': tested, 'standing_out': standing_out, 'previous_tested': previous_tested,
        'previous_standing_out': previous_standing_out,
        'newly': newly[1:10], 'more_newly': greatest(0, len(newly) - 10),
        'no_longer': no_longer[1:10], 'more_no_longer': greatest(0, len(no_longer) - 10),
        'same_build': same_build, 'finished_at': finished_at, 'previous_finished_at': previous_finished_at
    } ORDER BY place), []) FROM compared WHERE place <= 80) AS documents,
    (SELECT greatest(0, count(*) - 80) FROM compared) AS more_documents,
    (SELECT coalesce(list({
        'model': model, 'benchmark': benchmark, 'detector': detector, 'parameters': parameters, 'change': change,
        'now': estimate(auroc, auroc_low, auroc_high),
        'before': estimate(previous_auroc, previous_auroc_low, previous_auroc_high),
        'left_interval': left_interval, 'claim_level': claim_level, 'previous_claim_level': previous_claim_level,
        'finished_at': finished_at, 'previous_finished_at': previous_finished_at
    } ORDER BY place), []) FROM changed WHERE place <= 80) AS findings,
    (SELECT greatest(0, count(*) - 80) FROM changed) AS more_findings,
    (SELECT coalesce(list({
        'benchmark': benchmark_changed, 'model': model_changed, 'code': code_changed, 'inputs': inputs_changed,
        'packages': packages_changed
    } ORDER BY place), []) FROM changed WHERE place <= 80) AS raw_changed
WHERE EXISTS (FROM shown_pairs);
