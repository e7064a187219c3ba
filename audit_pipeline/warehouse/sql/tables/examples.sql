-- Key, checked by every build (table keys): benchmark, example_id

CREATE TABLE examples (
    example_id VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    document_id VARCHAR NOT NULL,
    excerpt VARCHAR,
    text_sha256 VARCHAR NOT NULL,
    has_context BOOLEAN NOT NULL,
    label TINYINT,
    split VARCHAR NOT NULL,
    published DATE,
    words INTEGER NOT NULL,
    language VARCHAR NOT NULL,
    collection VARCHAR NOT NULL,
    "group" VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL
);

COMMENT ON TABLE examples IS
    'the labelled texts of the benchmarks';
COMMENT ON COLUMN examples.example_id IS 'sha256(benchmark, document_id, text)[:16]';
COMMENT ON COLUMN examples.benchmark IS 'the benchmark, one partition of the asset';
COMMENT ON COLUMN examples.document_id IS 'the document that the text was taken from';
COMMENT ON COLUMN examples.excerpt IS
    'the first words of the text, 50 at most; null where the warehouse was built without text';
COMMENT ON COLUMN examples.text_sha256 IS
    'sha256 of what a model reads, context and text; joins to token_statistics.text_sha256';
COMMENT ON COLUMN examples.has_context IS
    'whether text stands before it, which the model reads and no detector scores; that text stays in Parquet';
COMMENT ON COLUMN examples.label IS '1 member, 0 non-member, null unknown';
COMMENT ON COLUMN examples.split IS 'calibration | evaluation; groups are never divided';
COMMENT ON COLUMN examples.published IS 'the document''s date';
COMMENT ON COLUMN examples.words IS 'length in words (whitespace words; jieba words in Chinese)';
COMMENT ON COLUMN examples.language IS 'ISO 639-1 code';
COMMENT ON COLUMN examples.collection IS 'the project, series or folder within the source';
COMMENT ON COLUMN examples."group" IS 'the unit of resampling, calibration and cross-validation';
COMMENT ON COLUMN examples.run_id IS 'the run that wrote the row; joins to lineage.run_id';
