-- The strongest passages of the audited documents (table extraction_windows), no two of which overlap.
--
-- place: place by probability
-- log10_draws: decimal logarithm of the draws that give the passage at least once with an even chance
-- pieces: the first words of the suffix, in the model's tokens; empty where no text is quoted
-- text: what stands in the document
-- first_choice: the model's first choice there, the document's own words before it
-- differs: whether that is something else; blanks around a word do not count, nor a part of a letter
WITH strongest AS (
    SELECT windows.*, documents.title, row_number() OVER (
        PARTITION BY windows.benchmark ORDER BY windows.log_p DESC, windows.document_id, windows.start
    ) AS place
    FROM current_extraction_windows AS windows JOIN extraction_documents AS documents
        USING (model, benchmark, document_id)
    WHERE windows.strength IS NOT NULL AND documents.side = 'audited'
    QUALIFY place <= 10
)
SELECT strongest.model, benchmark, place, cut(document_id, 300) AS document_id, cut(title, 300) AS title, "start", suffix_begin,
    suffix_end, tokens, log_p, NULL::DOUBLE AS log10_draws, first_choices, outside_top_40, reference_log_p,
    CASE WHEN page.includes_text THEN nullif(prefix_excerpt, '') END AS prefix_excerpt,
    [{
        'text': suffix_pieces[i], 'first_choice': first_choice_pieces[i],
        'differs': suffix_pieces[i] <> first_choice_pieces[i] AND NOT contains(first_choice_pieces[i], chr(65533))
            AND (trim(suffix_pieces[i]) = '' OR trim(suffix_pieces[i]) <> trim(first_choice_pieces[i]))
    } FOR i IN range(1, CASE WHEN page.includes_text THEN len(suffix_pieces) ELSE 0 END + 1)] AS pieces
FROM strongest, page
ORDER BY benchmark, place;
