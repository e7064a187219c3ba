-- The memorisation map: the documents of each side with the highest coverage (table document_memorisation). Each document
-- is divided into at most 240 bins with equal numbers of characters.
--
-- place: rank by coverage on its side
-- log10_p: log10 of the largest probability of a suffix over each bin, without suffixes that are set apart; null: no suffix
-- set_apart: numbers of the bins, from 0, with a suffix that is set apart
WITH shown AS (
    SELECT *, least(240, characters) AS bins FROM all_extraction_documents
    WHERE windows > 0 AND place <= CASE side WHEN 'audited' THEN 20 ELSE 10 END
), touched AS (
    -- A suffix with a token outside of the 40 likeliest has its probability over all tokens.
    SELECT shown.model, shown.benchmark, shown.document_id, windows.set_apart IS NOT NULL AS is_apart,
        coalesce(windows.log_p_top_40, windows.log_p) / ln(10) AS log10_p,
        unnest(range(
            suffix_begin * bins // shown.characters, (suffix_end - 1) * bins // shown.characters + 1
        )) AS bin
    FROM current_extraction_windows AS windows JOIN shown USING (model, benchmark, document_id)
), binned AS (
    SELECT model, benchmark, document_id, bin, max(log10_p) FILTER (NOT is_apart) AS log10_p, bool_or(is_apart) AS is_apart
    FROM touched GROUP BY ALL
), filled AS (
    SELECT every.model, every.benchmark, every.document_id,
        list(printf('%.4g', binned.log10_p)::DOUBLE ORDER BY every.bin) AS log10_p,
        coalesce(list(every.bin ORDER BY every.bin) FILTER (binned.is_apart), []) AS set_apart
    FROM (SELECT model, benchmark, document_id, unnest(range(bins)) AS bin FROM shown) AS every
    LEFT JOIN binned USING (model, benchmark, document_id, bin)
    GROUP BY ALL
)
SELECT shown.model, shown.benchmark, shown.side, shown.place, cut(shown.document_id, 300) AS document_id,
    cut(shown.title, 300) AS title, shown.characters, shown.covered_at_0_001, shown.longest_run,
    shown.covered_set_apart, filled.log10_p, filled.set_apart
FROM shown JOIN filled USING (model, benchmark, document_id)
ORDER BY shown.model, shown.benchmark, shown.side, shown.place;
