CREATE VIEW cost AS
WITH steps AS (
    -- One step can write several tables; its time counts once.
    SELECT split_part("partition", '|', 1) AS benchmark, split_part("partition", '|', 2) AS model, asset_key AS stage,
        run_id, max(model_fingerprint) AS model_fingerprint, max(benchmark_digest) AS benchmark_digest,
        min(started_at) AS started_at, max(finished_at) AS finished_at
    FROM lineage WHERE contains("partition", '|') AND asset_key <> 'corpus_overlap' GROUP BY ALL
), texts AS (
    SELECT benchmark, count(*) AS texts FROM examples GROUP BY ALL
), lengths AS (
    SELECT model_fingerprint, text_sha256, max(tokens) AS tokens FROM token_statistics GROUP BY ALL
), tokens AS (
    SELECT examples.benchmark, lengths.model_fingerprint, sum(lengths.tokens)::BIGINT AS tokens
    FROM examples JOIN lengths ON lengths.text_sha256 = examples.text_sha256 GROUP BY ALL
)
SELECT steps.benchmark, steps.model, steps.stage, steps.run_id, steps.started_at, steps.finished_at,
    epoch(steps.finished_at - steps.started_at) AS seconds,
    CASE WHEN steps.benchmark_digest = benchmarks.digest THEN texts.texts END AS texts,
    CASE WHEN steps.benchmark_digest = benchmarks.digest THEN tokens.tokens END AS tokens,
    row_number() OVER (
        PARTITION BY steps.benchmark, steps.model, steps.stage ORDER BY steps.finished_at DESC, steps.run_id DESC
    ) = 1 AS is_latest
FROM steps LEFT JOIN benchmarks ON benchmarks.benchmark = steps.benchmark
LEFT JOIN texts ON texts.benchmark = steps.benchmark
LEFT JOIN tokens ON tokens.benchmark = steps.benchmark AND tokens.model_fingerprint = steps.model_fingerprint
ORDER BY steps.benchmark, steps.model, steps.started_at, steps.stage;

COMMENT ON VIEW cost IS
    'what every audit took, one row per stage: token statistics, scores, evaluations';
COMMENT ON COLUMN cost.stage IS 'the Dagster asset';
COMMENT ON COLUMN cost.seconds IS
    'from its start to its last rows; what was in the cache already took no time, other runs on the machine took some';
COMMENT ON COLUMN cost.texts IS 'texts of the benchmark; null where it was another build of it';
COMMENT ON COLUMN cost.tokens IS
    'tokens of those texts that have been run, each once; extra passes (lower case, branches, …) are not counted';
COMMENT ON COLUMN cost.is_latest IS 'whether it is the latest time of this stage';
