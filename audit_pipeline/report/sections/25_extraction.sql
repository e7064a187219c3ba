-- What the model gives word for word of a benchmark's documents (table document_memorisation), one row per benchmark,
-- where the model was asked to go on with them; its parts stand in the folder of this name.
--
-- number: place of the benchmark
-- documents: audited documents with a window
-- reproduced: of them, those with a passage that the model reproduces
-- held_out: held-out documents with a window
-- held_out_reproduced: of them, those with a passage that the model reproduces
-- without_window: documents, of both sides, that were not searched
-- reason: why they were not
-- windows: windows that the model was run on
-- set_apart: windows that the model reproduces, but that are no sign of memorisation
-- smallest_p: the smallest p-value that so many held-out documents allow; null where there are none
-- headline: what was found, in one line
-- claim: what may be said of the audited documents; null where none was searched
-- claim_in_words: the claim in sentences
-- set_apart_in_words: what set apart means; null where no window is
-- calibration_in_words: whether there are held-out documents beside, and what follows
-- tried: how much was tried, and in how many runs; null where no lineage entry says so
-- planned: whether it was planned beforehand; null where no lineage entry says when it was done
-- price: what a million tokens cost, as the benchmark says it; null where it says none
-- is_planned: whether it was planned beforehand
-- absence: what controls that were trained here say of texts that were read so often, a sentence or two each
-- is_current: whether the benchmark is still as it was when its documents were searched
-- lineage: number of the lineage entry behind it, in this report
SELECT pairs.number, pairs.model, pairs.benchmark, pairs.documents, pairs.reproduced, pairs.held_out,
    pairs.held_out_reproduced, pairs.without_window, pairs.reason, pairs.windows, pairs.set_apart, pairs.predictable,
    pairs.prefix_tokens, pairs.suffix_tokens, pairs.stride, pairs.grid_settings, pairs.price,
    pairs.raw_attempted.planned_beforehand AS is_planned,
    CASE WHEN pairs.held_out > 0 THEN 1 / (pairs.held_out + 1) END AS smallest_p,
    coalesce(runs.benchmark_digest = benchmarks.digest, TRUE) AS is_current, entries.number AS lineage,
    count(*) OVER () AS in_all, (
        SELECT coalesce(list({
            'control': control, 'benchmark': benchmark, 'occurrences': occurrences, 'reached': reached
        } ORDER BY control, benchmark, occurrences), []) FROM occurrences WHERE role = 'exposed'
    ) AS raw_doses
FROM extraction_pairs AS pairs
LEFT JOIN (SELECT * FROM runs WHERE "table" = 'document_memorisation') AS runs USING (model, benchmark, run_id)
LEFT JOIN benchmarks USING (benchmark)
LEFT JOIN entries ON entries."table" = 'document_memorisation'
    AND entries."partition" = pairs.benchmark || '|' || pairs.model AND entries.run_id = pairs.run_id
ORDER BY pairs.number LIMIT (SELECT sections FROM page);
