-- What detectors make of a control: a model that was trained here on texts drawn by chance (view instrument_check).
-- One row.
--
-- checks: the controls as they are, one row per detector
-- control: the control
-- exposed: AUROC of members against held-out texts in the model that was trained on the members
-- twin: the same in the control model, which was trained on neither
-- blind: the same without any model
-- answers: whether this is the headline detector
-- studies: what makes members easier to detect: a control trained again with one setting changed
-- panels: AUROC over the values of each setting that was varied, one line per detector, seeds averaged
-- memorised: how much a control's models give word for word, by how many times the exposed model read a text
-- occurrences: how many times
-- documents: texts that were read so often
-- n_reached: of them, those with a passage that has a probability of at least 0.001
-- reached: their share
-- log10_p: decimal logarithm of the probability of the median text's strongest passage
WITH trained AS (
    SELECT study, list({
        'setting': setting, 'value': value, 'detector': detector, 'auroc': auroc, 'ci_low': ci_low, 'ci_high': ci_high
    } ORDER BY place) AS results
    FROM (SELECT *, row_number() OVER () AS place FROM control_studies), page
    WHERE page.kind = 'across' OR page.model IN (SELECT model FROM control_models)
    GROUP BY study
), curves AS (
    SELECT control, benchmark, role, list({
        'occurrences': occurrences, 'documents': documents, 'n_reached': n_reached, 'reached': reached,
        'log10_p': log10_p
    } ORDER BY occurrences) AS points
    FROM occurrences GROUP BY ALL
), memorised AS (
    SELECT control, benchmark, coalesce(any_value(points) FILTER (role = 'exposed'), []) AS exposed,
        coalesce(any_value(points) FILTER (role = 'twin'), []) AS twin
    FROM curves GROUP BY ALL
)
SELECT
    (SELECT coalesce(list({
        'control': control, 'benchmark': benchmark, 'exposed': exposed, 'twin': twin
    } ORDER BY control, benchmark), []) FROM memorised) AS memorised,
    (SELECT coalesce(list({'name': study, 'results': results} ORDER BY study), []) FROM trained) AS raw_results
WHERE EXISTS (FROM shown_pairs) OR EXISTS (FROM extraction_pairs) OR EXISTS (FROM instrument_checks)
    OR EXISTS (FROM memorised);
