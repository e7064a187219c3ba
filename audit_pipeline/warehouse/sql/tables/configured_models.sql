CREATE TABLE configured_models (
    name VARCHAR NOT NULL,
    origin VARCHAR NOT NULL,
    release_date DATE,
    training_cutoff DATE,
    on_request BOOLEAN NOT NULL,
    PRIMARY KEY (name)
);

COMMENT ON TABLE configured_models IS
    'the models of config/models.yaml when the warehouse was built, broken entries as far as they are known; empty '
    'where the file could not be read';
COMMENT ON COLUMN configured_models.name IS 'the model''s name';
COMMENT ON COLUMN configured_models.origin IS
    'the hub id, path or package file that the entry names; unknown: the entry is broken';
COMMENT ON COLUMN configured_models.release_date IS 'when the model was released, as the entry states it';
COMMENT ON COLUMN configured_models.training_cutoff IS 'the end of its training data, as the entry states it';
COMMENT ON COLUMN configured_models.on_request IS 'audited only where it is named (a control''s models)';
