-- The memorisation map: the most covered documents of each side (table document_memorisation), every one in at most 240
-- bins of equally many characters.
--
-- place: place by coverage, of its side
-- log10_p: of each bin log10 of the largest probability of a suffix over it, those set apart left out; null: there is none
-- set_apart: numbers of the bins, from 0, with a suffix over it that is set apart
WITH shown AS (
    SELECT *, least(240, characters) AS bins FROM extraction_documents
    WHERE windows > 0 AND place <= CASE side WHEN 'audited' THEN 20 ELSE 10 END
        AND benchmark IN (SELECT benchmark FROM extraction_pairs, page WHERE number <= page.sections)
), touched AS (
    -- A token that is not among the 40 likeliest is taken as likely as it is.
    SELECT shown.benchmark, shown.document_id, windows.set_apart IS NOT NULL AS is_apart,
        coalesce(windows.log_p_top_40, windows.log_p) / ln(10) AS log10_p,
        unnest(range(
            suffix_begin * bins // shown.characters, (suffix_end - 1) * bins // shown.characters + 1
        )) AS bin
    FROM current_extraction_windows AS windows JOIN shown USING (model, benchmark, document_id)
), binned AS (
    SELECT benchmark, document_id, bin, max(log10_p) FILTER (NOT is_apart) AS log10_p, bool_or(is_apart) AS is_apart
    FROM touched GROUP BY ALL
), filled AS (
    SELECT every.benchmark, every.document_id,
        list(printf('%.4g', binned.log10_p)::DOUBLE ORDER BY every.bin) AS log10_p,
        coalesce(list(every.bin ORDER BY every.bin) FILTER (binned.is_apart), []) AS set_apart
    FROM (SELECT benchmark, document_id, unnest(range(bins)) AS bin FROM shown) AS every
    LEFT JOIN binned USING (benchmark, document_id, bin)
    GROUP BY ALL
)
SELECT shown.model, shown.benchmark, shown.side, shown.place, cut(shown.document_id, 300) AS document_id,
    cut(shown.title, 300) AS title, shown.characters, shown.covered_at_0_001, shown.longest_run,
    shown.covered_set_apart, filled.log10_p, filled.set_apart
FROM shown JOIN filled USING (benchmark, document_id)
ORDER BY shown.benchmark, shown.side, shown.place;
