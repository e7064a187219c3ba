CREATE TABLE benchmarks (
    benchmark VARCHAR NOT NULL,
    digest VARCHAR,
    design VARCHAR,
    design_stated_by VARCHAR,
    words VARCHAR,
    counts JSON,
    manifest JSON NOT NULL,
    PRIMARY KEY (benchmark)
);

COMMENT ON TABLE benchmarks IS
    'the benchmarks that have been built, one row a benchmark';
COMMENT ON COLUMN benchmarks.benchmark IS 'the benchmark''s name in config/benchmarks.yaml';
COMMENT ON COLUMN benchmarks.digest IS 'config entry and sources of the benchmark';
COMMENT ON COLUMN benchmarks.design IS 'how the two sides came about';
COMMENT ON COLUMN benchmarks.design_stated_by IS
    'who says how they came about; null where it follows from how the texts were drawn here';
COMMENT ON COLUMN benchmarks.words IS 'window lengths in words (JSON)';
COMMENT ON COLUMN benchmarks.counts IS 'examples by side, split and length, as the builder counted them';
COMMENT ON COLUMN benchmarks.manifest IS 'the whole manifest, with its specification and counts';
