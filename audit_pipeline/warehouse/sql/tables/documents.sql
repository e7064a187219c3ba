-- Key, checked by every build (table keys): document_id

CREATE TABLE documents (
    document_id VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    collection VARCHAR NOT NULL,
    "group" VARCHAR NOT NULL,
    title VARCHAR NOT NULL,
    published DATE,
    date_kind VARCHAR NOT NULL,
    earliest DATE,
    retrieved_at TIMESTAMPTZ NOT NULL,
    language VARCHAR NOT NULL,
    licence VARCHAR NOT NULL,
    url VARCHAR NOT NULL,
    sha256 VARCHAR NOT NULL,
    words BIGINT NOT NULL,
    run_id VARCHAR NOT NULL
);

COMMENT ON TABLE documents IS
    'the dated documents of the sources, without their text';
COMMENT ON COLUMN documents.document_id IS 'unique within all sources: source:collection:name';
COMMENT ON COLUMN documents.source IS 'the source asset that yielded the document';
COMMENT ON COLUMN documents.collection IS
    'the project, series or folder within the source; splits are balanced over it';
COMMENT ON COLUMN documents."group" IS
    'what resampling and calibration never divide: the book, patent, article or release';
COMMENT ON COLUMN documents.title IS 'the document''s title';
COMMENT ON COLUMN documents.published IS 'date of first publication; null where unknown';
COMMENT ON COLUMN documents.date_kind IS
    'what published is the date of: release, publication, first revision, delivery …';
COMMENT ON COLUMN documents.earliest IS
    'first day on which the text can have existed, where that is before published (a patent''s priority date)';
COMMENT ON COLUMN documents.retrieved_at IS 'when the text was fetched';
COMMENT ON COLUMN documents.language IS 'ISO 639-1 code';
COMMENT ON COLUMN documents.licence IS 'SPDX identifier or the licence in words; ''unknown'' where not stated';
COMMENT ON COLUMN documents.url IS 'where the text came from';
COMMENT ON COLUMN documents.sha256 IS 'sha256 of the UTF-8 text';
COMMENT ON COLUMN documents.words IS 'whitespace words in the text';
COMMENT ON COLUMN documents.run_id IS 'the run that wrote the row; joins to lineage.run_id';
