-- Results of the detectors on a control: a model that was trained on this machine on texts drawn by chance (view
-- instrument_check). One row.
--
-- checks: current controls, one row per detector
-- control: control
-- exposed: AUROC of members against held-out texts by the model that was trained on the members
-- twin: the same AUROC by the control model, which was trained on neither side
-- blind: the same AUROC by the blind control, which uses no model
-- answers: true for the headline detector
-- studies: effects of a setting on detection: controls that were trained again with one changed setting
-- panels: AUROC over the values of each varied setting, one line per detector, mean over seeds
-- memorised: reproduced texts of a control's models, by the number of times that the exposed model read a text
-- occurrences: number of times that the exposed model read the text
-- documents: number of texts that were read this number of times
-- n_reached: number of these texts with a passage that has a probability of at least 0.001
-- reached: share of these texts with such a passage
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
