-- Passages of a benchmark's documents that the model reproduces word for word (table document_memorisation). One row per
-- searched benchmark. The folder of this name contains its parts.
--
-- number: position of the benchmark
-- documents: number of audited documents with a window
-- reproduced: number of audited documents with a passage that the model reproduces
-- held_out: number of held-out documents with a window
-- held_out_reproduced: number of held-out documents with a passage that the model reproduces
-- without_window: number of documents of both sides without a window
-- reason: reason why they have no window
-- windows: number of windows that the model was run on
-- set_apart: number of windows that the model reproduces, but that are no sign of memorisation
-- smallest_p: smallest p-value that this number of held-out documents allows; null: no held-out documents
-- headline: result in one line
-- claim: claim about the audited documents; null: no document was searched
-- claim_in_words: claim in sentences
-- set_apart_in_words: explanation of windows that are set apart; null: no such window
-- calibration_in_words: presence of held-out documents and its consequence
-- tried: number of attempts and of their runs; null: not in the ledger
-- planned: sealed plan of the results; null: time of the work not in the ledger
-- price: price of a million tokens in the benchmark's entry; null: no price
-- is_planned: true if the search was planned beforehand
-- absence: conclusions from controls about texts that were read a number of times, a sentence or two per control
-- is_current: true if the benchmark is unchanged since the search
-- lineage: number of the ledger entry in this report
SELECT pairs.number, pairs.model, pairs.benchmark, pairs.documents, pairs.reproduced, pairs.held_out,
    pairs.held_out_reproduced, pairs.without_window, pairs.reason, pairs.windows, pairs.set_apart, pairs.predictable,
    pairs.prefix_tokens, pairs.suffix_tokens, pairs.stride, pairs.grid_settings, pairs.price,
    pairs.raw_attempted.planned_beforehand AS is_planned,
    CASE WHEN pairs.held_out > 0 THEN 1 / (pairs.raw_held_out_compared + 1) END AS smallest_p,
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
