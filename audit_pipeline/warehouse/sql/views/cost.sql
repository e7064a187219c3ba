-- Columns without a comment are those of: evaluations, lineage
CREATE VIEW cost AS
WITH tokenizers AS (
    SELECT tokenizer_fingerprint, string_agg(DISTINCT name, ', ' ORDER BY name) AS models
    FROM models WHERE name IS NOT NULL GROUP BY ALL
), parts AS (
    SELECT *, split_part("partition", '|', 1) AS first, split_part("partition", '|', 2) AS second,
        asset_key = 'token_frequencies' AS is_count, asset_key = 'corpus_overlap' AS is_overlap
    FROM lineage WHERE contains("partition", '|')
), steps AS (
    -- One step can write several tables. Its time counts once.
    SELECT CASE WHEN NOT is_count THEN first END AS benchmark,
        -- Token frequencies are stored per tokenizer, regardless of the model that they were counted for.
        CASE WHEN is_count THEN tokenizers.models WHEN NOT is_overlap THEN second END AS model,
        CASE WHEN is_count THEN first WHEN is_overlap THEN second END AS corpus, asset_key AS stage,
        run_id, max(model_fingerprint) AS model_fingerprint, max(benchmark_digest) AS benchmark_digest,
        min(started_at) AS started_at, max(finished_at) AS finished_at
    FROM parts LEFT JOIN tokenizers ON tokenizers.tokenizer_fingerprint = parts.second GROUP BY ALL
), texts AS (
    SELECT benchmark, count(*) AS texts FROM examples GROUP BY ALL
), lengths AS (
    SELECT model_fingerprint, text_sha256, max(tokens) AS tokens FROM token_statistics GROUP BY ALL
), tokens AS (
    SELECT examples.benchmark, lengths.model_fingerprint, sum(lengths.tokens)::BIGINT AS tokens
    FROM examples JOIN lengths ON lengths.text_sha256 = examples.text_sha256 GROUP BY ALL
)
SELECT steps.benchmark, steps.model, steps.corpus, steps.stage, steps.run_id, steps.started_at, steps.finished_at,
    epoch(steps.finished_at - steps.started_at) AS seconds,
    CASE WHEN steps.benchmark_digest = benchmarks.digest THEN texts.texts END AS texts,
    CASE WHEN steps.benchmark_digest = benchmarks.digest THEN tokens.tokens END AS tokens,
    row_number() OVER (
        PARTITION BY steps.benchmark, steps.model, steps.corpus, steps.stage ORDER BY steps.finished_at DESC, steps.run_id DESC
    ) = 1 AS is_latest
FROM steps LEFT JOIN benchmarks ON benchmarks.benchmark = steps.benchmark
LEFT JOIN texts ON texts.benchmark = steps.benchmark
LEFT JOIN tokens ON tokens.benchmark = steps.benchmark AND tokens.model_fingerprint = steps.model_fingerprint
ORDER BY steps.benchmark, steps.model, steps.started_at, steps.stage;

COMMENT ON VIEW cost IS
    'time of every audit, one row per stage of a model on a benchmark, and of searching a corpus or counting its tokens; lineage has the times of fetching and building';
COMMENT ON COLUMN cost.benchmark IS 'benchmark; null: tokens of a corpus were counted';
COMMENT ON COLUMN cost.model IS 'model; for counted tokens: all models with the tokenizer; null: a corpus was searched';
COMMENT ON COLUMN cost.corpus IS
    'corpus that was searched, or whose tokens were counted; null: the stage belongs to a model and a benchmark';
COMMENT ON COLUMN cost.stage IS 'Dagster asset';
COMMENT ON COLUMN cost.seconds IS
    'time from the start to the last rows, in seconds; cached results take no time, and other runs on the machine prolong it';
COMMENT ON COLUMN cost.texts IS 'number of texts of the benchmark; null: another build of the benchmark';
COMMENT ON COLUMN cost.tokens IS
    'number of tokens of the texts that the model has read, each counted once; extra passes (lower case, branches, …) are not counted; null for conversations that a chat template renders';
COMMENT ON COLUMN cost.is_latest IS 'true if the row is the latest of this stage, model, benchmark and corpus';
