-- Key, checked by every build (table keys): run_id, benchmark, model, detector, parameters, example_id

CREATE TABLE highlights (
    model VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    example_id VARCHAR NOT NULL,
    detector VARCHAR NOT NULL,
    parameters VARCHAR NOT NULL,
    place INTEGER NOT NULL,
    score DOUBLE NOT NULL,
    pieces VARCHAR[] NOT NULL,
    token_scores DOUBLE[] NOT NULL,
    counted BOOLEAN[] NOT NULL,
    n_tokens INTEGER NOT NULL,
    run_id VARCHAR NOT NULL
);

COMMENT ON TABLE highlights IS
    'the texts with the highest scores, token by token; current_highlights holds the latest';
COMMENT ON COLUMN highlights.model IS 'the model';
COMMENT ON COLUMN highlights.benchmark IS 'the benchmark';
COMMENT ON COLUMN highlights.example_id IS 'the scored example';
COMMENT ON COLUMN highlights.detector IS 'the detector';
COMMENT ON COLUMN highlights.parameters IS 'canonical JSON of the detector''s parameters';
COMMENT ON COLUMN highlights.place IS '1: the highest score of the evaluated texts';
COMMENT ON COLUMN highlights.score IS 'the text''s score';
COMMENT ON COLUMN highlights.pieces IS 'at most 50 words of the text, in the model''s tokens';
COMMENT ON COLUMN highlights.token_scores IS 'the score of each of those tokens';
COMMENT ON COLUMN highlights.counted IS 'whether the token is among the lowest k% that the score averages';
COMMENT ON COLUMN highlights.n_tokens IS 'scored tokens of the whole text';
COMMENT ON COLUMN highlights.run_id IS 'the run that wrote the row; joins to lineage.run_id';
