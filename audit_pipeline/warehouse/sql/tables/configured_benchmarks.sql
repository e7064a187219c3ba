CREATE TABLE configured_benchmarks (
    benchmark VARCHAR NOT NULL,
    family VARCHAR NOT NULL,
    words INTEGER,
    design VARCHAR NOT NULL,
    description VARCHAR NOT NULL,
    is_up_to_date BOOLEAN,
    on_request BOOLEAN NOT NULL,
    PRIMARY KEY (benchmark)
);

COMMENT ON TABLE configured_benchmarks IS
    'the benchmarks of config/benchmarks.yaml when the warehouse was built, broken entries as far as they are known; empty '
    'where the file could not be read';
COMMENT ON COLUMN configured_benchmarks.benchmark IS 'the benchmark';
COMMENT ON COLUMN configured_benchmarks.family IS 'the entry that it comes from, at one of its lengths';
COMMENT ON COLUMN configured_benchmarks.words IS 'window length in words; null: texts of any length';
COMMENT ON COLUMN configured_benchmarks.design IS 'how the two sides come about';
COMMENT ON COLUMN configured_benchmarks.description IS 'what it is, in words';
COMMENT ON COLUMN configured_benchmarks.is_up_to_date IS
    'whether the built examples are those that entry and sources give now; null where it is not built, or a '
    'source is missing or cannot be read';
COMMENT ON COLUMN configured_benchmarks.on_request IS 'built and audited only where it is named';
