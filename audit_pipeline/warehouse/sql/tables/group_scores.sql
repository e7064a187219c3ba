-- Filled from scores and examples by fills/group_scores.sql: as a view it would read every score for every answer.
-- Key, checked by every build (table keys): benchmark, model, detector, parameters, "group"

CREATE TABLE group_scores (
    model VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    "group" VARCHAR NOT NULL,
    detector VARCHAR NOT NULL,
    parameters VARCHAR NOT NULL,
    texts BIGINT NOT NULL,
    mean_score DOUBLE,
    median_score DOUBLE,
    highest_score DOUBLE,
    lowest_score DOUBLE,
    rank_in_benchmark BIGINT NOT NULL
);

COMMENT ON TABLE group_scores IS
    'scores of the latest runs by the group that texts belong to: the book, patent, article or release';
COMMENT ON COLUMN group_scores.model IS 'the model''s name in config/models.yaml, hub id or path';
COMMENT ON COLUMN group_scores.benchmark IS 'the benchmark';
COMMENT ON COLUMN group_scores."group" IS 'the unit of resampling, calibration and cross-validation';
COMMENT ON COLUMN group_scores.detector IS 'the detector';
COMMENT ON COLUMN group_scores.parameters IS 'canonical JSON of the detector''s parameters';
COMMENT ON COLUMN group_scores.texts IS 'texts of the group with a score';
COMMENT ON COLUMN group_scores.mean_score IS 'their mean';
COMMENT ON COLUMN group_scores.median_score IS 'their median';
COMMENT ON COLUMN group_scores.highest_score IS 'the highest';
COMMENT ON COLUMN group_scores.lowest_score IS 'the lowest';
COMMENT ON COLUMN group_scores.rank_in_benchmark IS 'place among the benchmark''s groups by mean score, 1 the highest';
