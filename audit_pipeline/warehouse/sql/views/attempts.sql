CREATE VIEW attempts AS
WITH entries AS (
    -- Runs are read from the lineage and not from the rows, so that a run counts even if its rows were deleted.
    SELECT split_part("partition", '|', 1) AS benchmark, split_part("partition", '|', 2) AS model, run_id,
        CASE "table" WHEN 'document_memorisation' THEN 'search' WHEN 'extraction_grid' THEN 'grid'
            WHEN 'corpus_tests' THEN 'tests of the whole set' WHEN 'chat_answers' THEN 'asked'
            WHEN 'chat_documents' THEN 'asked' ELSE 'detectors' END AS kind,
        min(lineage.started_at) AS started_at, max(lineage.settings) AS settings_used,
        max(lineage.model_fingerprint) AS model_fingerprint,
        -- chat_answers is ignored here: a run without new answers uses those of earlier runs, so all answers count.
        coalesce(bool_or(runs.is_current AND "table" <> 'chat_answers'), FALSE) AS is_current
    FROM lineage LEFT JOIN runs USING ("table", "partition", run_id)
    WHERE contains("partition", '|') AND "table" IN (
        'document_memorisation', 'extraction_grid', 'corpus_tests', 'chat_answers', 'chat_documents',
        'token_statistics', 'scores', 'evaluations'
    )
        -- A search without a grid writes an empty table.
        AND ("table" <> 'extraction_grid' OR contains(lineage.settings, '"grid":true'))
    GROUP BY ALL
), scored AS (
    SELECT benchmark, model, run_id, max(texts) AS tried, max(settings) AS settings FROM (
        SELECT benchmark, model, run_id, nullif(max(audited), 0) AS texts, count(*) AS settings FROM scored_settings GROUP BY ALL
        UNION ALL
        SELECT benchmark, model, run_id, max(n_members), count(DISTINCT (detector, parameters))
        FROM evaluations WHERE detector <> 'blind_control' GROUP BY ALL
    ) GROUP BY ALL
), concluded AS (
    -- If a run stored no answer, a later run computed it. The id of that run is answer- and the id of the first run.
    SELECT benchmark, model, regexp_replace(run_id, '^answer-', '') AS run_id, any_value(headline) AS headline,
        max(CASE sign WHEN 'stands out' THEN coalesce(standing_out, 1) WHEN 'nothing found' THEN 0 END) AS found
    FROM pair_answers GROUP BY ALL
), done AS (
    SELECT benchmark, model, run_id, 'search' AS kind, 1 AS settings,
        sum(windows) FILTER (side = 'audited') AS tried,
        count(*) FILTER (side = 'audited' AND claim = 'reproduced') AS found,
        'audited documents with a passage: ' || count(*) FILTER (side = 'audited' AND claim = 'reproduced') || ' of '
            || count(*) FILTER (side = 'audited' AND windows > 0) || '; windows of them: '
            || coalesce(sum(reproduced) FILTER (side = 'audited'), 0) || ', and '
            || coalesce(sum(set_apart) FILTER (side = 'audited'), 0) || ' set apart' AS outcome
    FROM document_memorisation GROUP BY ALL
    UNION ALL
    SELECT benchmark, model, run_id, 'grid', count(*), sum(places), count(*) FILTER (reached > 0),
        'settings at which an audited document reaches 0.001: ' || count(*) FILTER (reached > 0) || ' of ' || count(*)
    FROM (
        SELECT benchmark, model, run_id, prefix_tokens, suffix_tokens, temperature, drawn_from,
            sum(places) FILTER (side = 'audited') AS places, sum(reached) FILTER (side = 'audited') AS reached
        FROM extraction_grid GROUP BY ALL
    ) GROUP BY ALL
    UNION ALL
    SELECT benchmark, model, run_id, 'detectors', settings, tried, found, headline
    FROM scored LEFT JOIN concluded USING (benchmark, model, run_id)
    UNION ALL
    SELECT benchmark, model, run_id, 'tests of the whole set', count(p_value), max(n), count(*) FILTER (is_found),
        'tests with a finding: ' || count(*) FILTER (is_found) || ' of ' || count(p_value)
    FROM (
        SELECT *, p_value * count(p_value) OVER (PARTITION BY benchmark, model) <= 0.05
            AND direction IS DISTINCT FROM 'opposite' AS is_found FROM corpus_tests
    ) GROUP BY ALL
    UNION ALL
    SELECT benchmark, model, run_id, 'asked', coalesce(rungs, 0), coalesce(tried, 0), reproduced, concat_ws('; ',
        'audited documents reproduced by the rung named beforehand: ' || reproduced || ' of ' || documents,
        'requests about them that were answered: ' || coalesce(answered, 0) || ' of ' || coalesce(tried, 0))
    FROM (
        SELECT benchmark, model, run_id, count(*) FILTER (side = 'audited') AS tried,
            count(*) FILTER (side = 'audited' AND outcome = 'answered') AS answered
        FROM chat_answers GROUP BY ALL
    ) FULL JOIN (
        SELECT benchmark, model, run_id, count(DISTINCT rung) AS rungs,
            count(*) FILTER (is_headline AND side = 'audited') AS documents,
            count(*) FILTER (is_headline AND side = 'audited' AND claim = 'reproduced') AS reproduced
        FROM chat_documents GROUP BY ALL
    ) USING (benchmark, model, run_id)
), own AS (
    SELECT entries.*, plans.plan_sha256, plans.sealed_at
    FROM entries ASOF LEFT JOIN plans ON plans.benchmark = entries.benchmark
        AND plans.model = entries.model AND entries.started_at > plans.sealed_at
), drawn AS (
    -- Only audited documents are compared: held-out documents that two benchmarks share are no second attempt.
    SELECT DISTINCT benchmark, document_id FROM examples WHERE split = 'evaluation' AND label IS DISTINCT FROM 0
), shared AS (
    SELECT DISTINCT drawn.benchmark, other.benchmark AS other FROM drawn JOIN drawn AS other USING (document_id)
), every AS (
    SELECT *, benchmark AS of_benchmark, model AS of_model, NULL AS same_texts_as FROM own
    UNION ALL
    SELECT pair.benchmark, pair.model, own.* EXCLUDE (benchmark, model), own.benchmark, own.model, own.benchmark
    FROM (SELECT DISTINCT benchmark, model, model_fingerprint FROM own) AS pair JOIN shared USING (benchmark)
    JOIN own ON own.benchmark = shared.other AND own.model_fingerprint = pair.model_fingerprint
    WHERE (own.benchmark, own.model) <> (pair.benchmark, pair.model)
)
SELECT every.benchmark, every.model, every.run_id, every.started_at, every.kind, every.settings_used,
    done.settings::BIGINT AS settings, done.tried::BIGINT AS tried,
    CASE WHEN every.kind IN ('search', 'grid') THEN 'windows' WHEN every.kind = 'asked' THEN 'requests' ELSE 'texts' END
        AS unit, done.found::BIGINT AS found,
    coalesce(done.outcome, 'not known: rows or answer are not there') AS outcome, every.same_texts_as,
    every.plan_sha256, every.sealed_at, every.is_current
FROM every LEFT JOIN done ON done.benchmark = every.of_benchmark AND done.model = every.of_model
    AND done.run_id = every.run_id AND done.kind = every.kind
ORDER BY every.benchmark, every.model, every.started_at, every.kind, every.run_id;

COMMENT ON VIEW attempts IS
    'every run of a model on the texts of a benchmark, from the ledger: one row per run and kind of work';
COMMENT ON COLUMN attempts.benchmark IS 'benchmark of the texts';
COMMENT ON COLUMN attempts.model IS 'model';
COMMENT ON COLUMN attempts.run_id IS 'run; joins to lineage.run_id';
COMMENT ON COLUMN attempts.started_at IS 'time when the run started this kind of work';
COMMENT ON COLUMN attempts.kind IS 'search | grid | asked | detectors | tests of the whole set';
COMMENT ON COLUMN attempts.settings_used IS 'options of the command as canonical JSON; null: not recorded';
COMMENT ON COLUMN attempts.settings IS
    'number of computed settings: 1 for a search, prompt styles for asked, detectors with their parameters for detectors';
COMMENT ON COLUMN attempts.tried IS
    'number of audited windows (for a grid: at all settings together), of new requests about audited documents, or of evaluated texts that are not known non-members; null: the rows are missing';
COMMENT ON COLUMN attempts.unit IS 'windows | requests | texts: unit of tried';
COMMENT ON COLUMN attempts.found IS
    'number of findings: audited documents with a passage (search), audited documents reproduced in the headline prompt style (asked), settings that reach 0.001 (grid), tests after the Bonferroni correction, documents that stand out in the answer of the run, or 1 if all texts together do (detectors); null: no conclusion';
COMMENT ON COLUMN attempts.outcome IS 'result in words';
COMMENT ON COLUMN attempts.same_texts_as IS
    'null: a run on the benchmark itself; else the other benchmark of the run, which shares audited documents with this benchmark';
COMMENT ON COLUMN attempts.plan_sha256 IS 'plan in force: the last plan that was sealed before the work started';
COMMENT ON COLUMN attempts.sealed_at IS 'time when the plan was sealed; null: no plan was sealed';
COMMENT ON COLUMN attempts.is_current IS
    'true if the results of the run are the current results of the benchmark and the model';
