-- Key, checked by every build (table keys): study, setting, value, seed, detector, parameters

CREATE TABLE control_studies (
    study VARCHAR NOT NULL,
    control VARCHAR NOT NULL,
    setting VARCHAR NOT NULL,
    value VARCHAR NOT NULL,
    seed BIGINT NOT NULL,
    detector VARCHAR NOT NULL,
    parameters VARCHAR NOT NULL,
    n_members INTEGER NOT NULL,
    n_nonmembers INTEGER NOT NULL,
    auroc DOUBLE,
    ci_low DOUBLE,
    ci_high DOUBLE,
    training_tokens BIGINT NOT NULL,
    parameters_of_model BIGINT NOT NULL,
    final_loss DOUBLE NOT NULL,
    run_id VARCHAR NOT NULL
);

COMMENT ON TABLE control_studies IS
    'what makes members easier to tell: controls trained again with one setting changed, an AUROC a detector each';
COMMENT ON COLUMN control_studies.study IS 'the study, as named in config/controls.yaml';
COMMENT ON COLUMN control_studies.control IS 'the control that was trained again and again';
COMMENT ON COLUMN control_studies.setting IS 'what was varied: occurrences, learning_rate, surrounding, hidden_size, …';
COMMENT ON COLUMN control_studies.value IS 'its value, as JSON';
COMMENT ON COLUMN control_studies.seed IS 'the seed of drawing and training';
COMMENT ON COLUMN control_studies.detector IS 'the detector, or blind_control';
COMMENT ON COLUMN control_studies.parameters IS 'canonical JSON of the detector''s parameters';
COMMENT ON COLUMN control_studies.n_members IS 'members with a score';
COMMENT ON COLUMN control_studies.n_nonmembers IS 'held-out texts with a score';
COMMENT ON COLUMN control_studies.auroc IS 'AUROC of members against held-out texts; null where not defined';
COMMENT ON COLUMN control_studies.ci_low IS 'lower end of the 95% interval';
COMMENT ON COLUMN control_studies.ci_high IS 'upper end of the 95% interval';
COMMENT ON COLUMN control_studies.training_tokens IS 'tokens of the training, repeats counted';
COMMENT ON COLUMN control_studies.parameters_of_model IS 'trainable numbers of the model';
COMMENT ON COLUMN control_studies.final_loss IS 'mean loss of the last epoch, nats a token';
COMMENT ON COLUMN control_studies.run_id IS 'the run that wrote the row; joins to lineage.run_id';
