-- The strongest passages of the audited documents (table extraction_windows), no two of which overlap.
--
-- place: place by probability
-- log10_draws: decimal logarithm of the draws that give the passage at least once with an even chance
-- pieces: the first words of the suffix, in the model's tokens; empty where no text is quoted
-- location: where it begins in the file; null where that is not known
-- words: words of the document; null where it is of no source
-- suffix_words: words of the suffix
-- words_in_common: longest run of words that the suffix and what the model gives share
-- log10_cost: decimal logarithm of what those draws cost, by the price of a million tokens; null where none is stated
-- original: the first words of the suffix; empty where what the model gives is not known or no text is quoted
-- given: the first words that the model gives when it always takes its first choice, its own words before each
-- is_common: whether the other side has these words, too
-- text: what stands in the document
-- first_choice: the model's first choice there, the document's own words before it
-- differs: whether that is something else; blanks around a word do not count, nor a part of a letter
WITH strongest AS (
    SELECT windows.* RENAME (place AS location), documents.title, row_number() OVER (
        PARTITION BY windows.benchmark ORDER BY windows.log_p DESC, windows.document_id, windows.start
    ) AS position
    FROM current_extraction_windows AS windows JOIN extraction_documents AS documents
        USING (model, benchmark, document_id)
    WHERE windows.strength IS NOT NULL AND documents.side = 'audited'
    QUALIFY position <= 10
)
SELECT strongest.model, strongest.benchmark, position AS place, cut(strongest.document_id, 300) AS document_id, cut(strongest.title, 300) AS title, "start", suffix_begin,
    suffix_end, cut(location, 200) AS location, tokens, documents.words, suffix_words, words_in_common, log_p,
    first_choices, outside_top_40, reference_log_p,
    CASE WHEN page.includes_text THEN nullif(prefix_excerpt, '') END AS prefix_excerpt,
    [{
        'text': suffix_pieces[i], 'first_choice': first_choice_pieces[i],
        'differs': suffix_pieces[i] <> first_choice_pieces[i] AND NOT contains(first_choice_pieces[i], chr(65533))
            AND (trim(suffix_pieces[i]) = '' OR trim(suffix_pieces[i]) <> trim(first_choice_pieces[i]))
    } FOR i IN range(1, CASE WHEN page.includes_text THEN len(suffix_pieces) ELSE 0 END + 1)] AS pieces,
    CASE WHEN page.includes_text THEN given_text END AS raw_given, array_to_string(suffix_pieces, '') AS raw_original,
    pairs.price AS raw_price, pairs.prefix_tokens + pairs.suffix_tokens AS raw_window
FROM strongest JOIN extraction_pairs AS pairs USING (model, benchmark) CROSS JOIN page
LEFT JOIN documents USING (document_id)
ORDER BY strongest.benchmark, position;
