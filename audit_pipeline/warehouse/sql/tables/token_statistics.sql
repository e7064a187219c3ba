-- Key, checked by every build (table keys): model_fingerprint, key

CREATE TABLE token_statistics (
    key VARCHAR NOT NULL,
    text_sha256 VARCHAR NOT NULL,
    model_fingerprint VARCHAR NOT NULL,
    tokens INTEGER NOT NULL,
    mean_logprob DOUBLE
);

COMMENT ON TABLE token_statistics IS
    'the texts that a model has been run on, one row a cached text; the values a token stay in Parquet';
COMMENT ON COLUMN token_statistics.key IS
    'cache key: text, model, tokenizer, start-token policy and token, window, stride, kind version';
COMMENT ON COLUMN token_statistics.text_sha256 IS 'sha256 of the UTF-8 text';
COMMENT ON COLUMN token_statistics.model_fingerprint IS
    'weights, config, dtype and attention back end; joins to models.fingerprint';
COMMENT ON COLUMN token_statistics.tokens IS 'scored tokens';
COMMENT ON COLUMN token_statistics.mean_logprob IS 'mean log-probability of the scored tokens';
