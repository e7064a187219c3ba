-- The detectors at default parameters (view current_evaluations): the headline detector, then the others by name.
--
-- answers: true for the headline detector
-- margin: AUROC minus that of the blind control; it never raises a claim level
-- warning: warning for readers of the AUROC; null: none
SELECT found.model, found.benchmark, found.detector, found.parameters,
    (pairs.detector = found.detector AND pairs.parameters = found.parameters) IS TRUE AS answers,
    found.* EXCLUDE (model, benchmark, detector, parameters, is_default, place)
FROM all_evidence_settings AS found JOIN all_evidence_pairs AS pairs
    ON pairs.model = found.model AND pairs.benchmark = found.benchmark
WHERE found.is_default AND found.detector <> 'blind_control'
ORDER BY answers DESC, found.detector, found.parameters;
