-- The strongest passages of the audited documents (table extraction_windows). Passages do not overlap.
--
-- place: rank by probability
-- log10_draws: decimal logarithm of the draws that yield the passage at least once with a probability of 50%
-- pieces: first words of the suffix, in the model's tokens; empty: no text is quoted
-- location: start of the passage in the file; null: unknown
-- words: number of words of the document; null: the document has no source
-- suffix_words: number of words of the suffix
-- words_in_common: number of words of the longest run that the suffix and the model's continuation share
-- log10_cost: decimal logarithm of the cost of these draws, by the price of a million tokens; null: no price
-- original: first words of the suffix; empty: the model's continuation is unknown, or no text is quoted
-- given: first words of the model's first choices, each given the preceding words of the model
-- is_common: true if the other side has these words, too
-- text: words of the document
-- first_choice: model's first choice, given the preceding words of the document
-- differs: true if the first choice differs; blanks around a word and parts of a letter are ignored
WITH strongest AS (
    SELECT windows.* RENAME (place AS location), documents.title, row_number() OVER (
        PARTITION BY windows.model, windows.benchmark ORDER BY windows.log_p DESC, windows.document_id, windows.start
    ) AS position
    FROM current_extraction_windows AS windows JOIN all_extraction_documents AS documents
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
    -- The windows of answers differ in length, so their cost is not known here.
    CASE WHEN pairs.stride <> 'answers' THEN pairs.price END AS raw_price, pairs.prefix_tokens + pairs.suffix_tokens AS raw_window
FROM strongest JOIN all_extraction_pairs AS pairs USING (model, benchmark) CROSS JOIN page
LEFT JOIN documents USING (document_id)
ORDER BY strongest.benchmark, position;
