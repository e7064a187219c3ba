-- The detectors at their default setting (view current_evaluations): the headline detector first, the others by name,
-- not by result.
--
-- answers: whether this is the detector that was named beforehand
-- margin: AUROC minus the blind control's; never raises a claim level
-- warning: what to heed when reading the AUROC; null where nothing stands against it
SELECT found.model, found.benchmark, found.detector, found.parameters,
    (pairs.detector = found.detector AND pairs.parameters = found.parameters) IS TRUE AS answers,
    found.* EXCLUDE (model, benchmark, detector, parameters, is_default, place)
FROM evidence_settings AS found JOIN evidence_pairs AS pairs
    ON pairs.model = found.model AND pairs.benchmark = found.benchmark
WHERE found.is_default AND found.detector <> 'blind_control'
ORDER BY answers DESC, found.detector, found.parameters;
