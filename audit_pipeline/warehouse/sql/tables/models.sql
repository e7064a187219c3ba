CREATE TABLE models (
    fingerprint VARCHAR NOT NULL,
    name VARCHAR,
    resolved_from VARCHAR,
    revision VARCHAR,
    dtype VARCHAR,
    attention VARCHAR,
    weights_digest VARCHAR,
    tokenizer_fingerprint VARCHAR,
    start_token VARCHAR,
    start_token_id BIGINT,
    context_length BIGINT,
    vocab_size BIGINT,
    parameters BIGINT,
    release_date VARCHAR,
    training_cutoff VARCHAR,
    first_loaded_at VARCHAR,
    card JSON NOT NULL,
    PRIMARY KEY (fingerprint)
);

COMMENT ON TABLE models IS
    'the models that have been loaded, one row a fingerprint';
COMMENT ON COLUMN models.fingerprint IS 'weights, config, dtype and attention back end';
COMMENT ON COLUMN models.name IS 'the model''s name in config/models.yaml, hub id or path';
COMMENT ON COLUMN models.resolved_from IS 'the hub id, folder or file that the name stood for';
COMMENT ON COLUMN models.revision IS 'the hub commit';
COMMENT ON COLUMN models.dtype IS 'the number format of the weights during the pass';
COMMENT ON COLUMN models.attention IS 'the attention back end';
COMMENT ON COLUMN models.weights_digest IS 'digest of the weights';
COMMENT ON COLUMN models.tokenizer_fingerprint IS 'the tokenizer''s files';
COMMENT ON COLUMN models.start_token IS 'the token put in front of every text';
COMMENT ON COLUMN models.start_token_id IS 'its id';
COMMENT ON COLUMN models.context_length IS 'tokens that the model can read at once';
COMMENT ON COLUMN models.vocab_size IS 'tokens in the model''s vocabulary';
COMMENT ON COLUMN models.parameters IS 'number of parameters';
COMMENT ON COLUMN models.release_date IS 'when the model was released, as the configuration states it';
COMMENT ON COLUMN models.training_cutoff IS 'the end of its training data, as the configuration states it';
COMMENT ON COLUMN models.first_loaded_at IS 'when it was first loaded here';
COMMENT ON COLUMN models.card IS 'the whole card, with whatever else it holds';
