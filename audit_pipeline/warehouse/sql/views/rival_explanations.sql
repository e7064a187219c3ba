CREATE VIEW rival_explanations AS
WITH found_documents AS (
    -- The answers of a conversation are not independent of each other.
    SELECT *, CASE WHEN stride = 'answers' THEN regexp_replace(document_id, '/[0-9]+$', '') ELSE document_id END AS unit_id
    FROM current_document_memorisation
), searched AS (
    SELECT benchmark, model, count(DISTINCT unit_id) FILTER (windows > 0) AS documents,
        count(*) FILTER (side = 'audited' AND claim = 'reproduced') AS with_passage,
        count(DISTINCT unit_id) FILTER (side = 'held_out' AND windows > 0) AS held_out,
        count(DISTINCT unit_id) FILTER (side = 'held_out' AND claim = 'reproduced') AS held_out_with_passage
    FROM found_documents GROUP BY ALL
), likely AS (
    SELECT found.benchmark, found.model, count(*) AS windows,
        count(*) FILTER (found.set_apart = 'in several documents') AS elsewhere,
        count(*) FILTER (found.set_apart = 'repeats its prefix') AS repeats,
        count(*) FILTER (found.set_apart = 'predictable') AS predictable,
        count(*) FILTER (found.set_apart = 'likely anyway') AS likely_anyway,
        count(found.reference_log_p) AS by_reference, count(found.prior_log_p) AS after_others
    FROM current_extraction_windows AS found JOIN current_document_memorisation AS document
        USING (benchmark, model, document_id)
    WHERE document.side = 'audited' AND (found.set_apart IS NOT NULL OR found.tokens = found.first_choices
        OR coalesce(found.log_p_top_40, CASE WHEN found.outside_top_40 IS NULL THEN found.log_p END) >= ln(0.001))
    GROUP BY ALL
), texts AS (
    -- If a benchmark consists of published rows, the search for passages uses the example id as the document id.
    -- The first day on which the text can have existed: a text of 1998 is not later than a model of May 1998.
    SELECT examples.benchmark, examples.example_id, least(examples.published, documents.earliest) AS published,
        unnest(list_distinct([examples.document_id, examples.example_id])) AS document_id
    FROM examples LEFT JOIN documents ON documents.document_id = examples.document_id
), passages AS (
    SELECT document.benchmark, document.model, document.document_id, min(texts.published) AS published,
        list(DISTINCT texts.example_id) AS examples
    FROM found_documents AS document
    LEFT JOIN texts ON texts.benchmark = document.benchmark AND texts.document_id = document.unit_id
    WHERE document.side = 'audited' AND document.claim = 'reproduced' GROUP BY ALL
), dated AS (
    SELECT passages.benchmark, passages.model, any_value(released.release_date) AS release_date,
        count(passages.published) AS dated, count(*) FILTER (passages.published >= released.release_date) AS later
    FROM passages LEFT JOIN model_releases AS released ON released.model = passages.model GROUP BY ALL
), corpora AS (
    SELECT benchmark, list(corpus ORDER BY corpus) AS corpora, bool_and(is_complete AND is_current) AS is_complete
    FROM overlap_summary GROUP BY ALL
), copies AS (
    SELECT passages.benchmark, passages.model, count(DISTINCT passages.document_id) AS documents
    FROM (SELECT benchmark, model, document_id, unnest(examples) AS example_id FROM passages) AS passages
    JOIN corpus_overlap AS overlap USING (benchmark, example_id) WHERE overlap.verdict IN ('found', 'shared text')
    GROUP BY ALL
), bounds AS (
    SELECT benchmark, model, reached_low, reached_high FROM current_extraction_rates
    WHERE unit = 'benchmark' AND side = 'held_out' AND rule = 'probability' AND threshold = 0.001
), every AS (
    SELECT searched.*, coalesce(likely.windows, 0) AS windows, coalesce(likely.elsewhere, 0) AS elsewhere,
        coalesce(likely.repeats, 0) AS repeats, coalesce(likely.predictable, 0) AS predictable,
        coalesce(likely.likely_anyway, 0) AS likely_anyway, coalesce(likely.by_reference, 0) AS by_reference,
        coalesce(likely.after_others, 0) AS after_others, corpora.corpora, corpora.is_complete,
        coalesce(copies.documents, 0) AS copied, bounds.reached_low, bounds.reached_high, dated.release_date,
        coalesce(dated.dated, 0) AS dated, coalesce(dated.later, 0) AS later
    FROM searched LEFT JOIN likely USING (benchmark, model) LEFT JOIN corpora USING (benchmark)
    LEFT JOIN copies USING (benchmark, model) LEFT JOIN bounds USING (benchmark, model)
    LEFT JOIN dated USING (benchmark, model)
), tested AS (
    SELECT benchmark, model, windows, with_passage, unnest([
        {'place': 1, 'explanation': 'It stands in several documents of this collection.',
            'test': 'Does a run of 20 of its tokens stand in three documents or more?',
            'is_tested': documents >= 3, 'applies': elsewhere, 'of': windows, 'unit': 'windows',
            'more': '', 'is_open': FALSE},
        {'place': 2, 'explanation': 'It stands in a corpus that was searched.',
            'test': 'Does text of the document stand there, word for word?',
            'is_tested': corpora IS NOT NULL, 'applies': copied, 'of': with_passage, 'unit': 'documents',
            'more': '; searched: ' || array_to_string(corpora, ', ')
                || CASE WHEN is_complete THEN '' ELSE ', not all of it' END, 'is_open': NOT is_complete},
        {'place': 3, 'explanation': 'It is likely after any words.',
            'test': 'Is it as likely after prefixes of other documents?',
            'is_tested': after_others > 0, 'applies': likely_anyway, 'of': windows, 'unit': 'windows', 'more': '',
            'is_open': FALSE},
        {'place': 4, 'explanation': 'It is predictable.',
            'test': 'Does a reference model reproduce it, too?',
            'is_tested': by_reference > 0, 'applies': predictable, 'of': windows, 'unit': 'windows', 'more': '',
            'is_open': FALSE},
        {'place': 5, 'explanation': 'The model does so with texts that it has not read.',
            'test': 'Does it give passages of the held-out documents?',
            'is_tested': held_out > 0, 'applies': held_out_with_passage, 'of': held_out, 'unit': 'held-out documents',
            'more': coalesce(printf('; 95%% interval %.1f%% to %.1f%%', 100 * reached_low, 100 * reached_high), '')
                || CASE WHEN held_out < 19 THEN '; too few to exclude it' ELSE '' END,
            'is_open': held_out < 19},
        {'place': 6, 'explanation': 'The prompt contains it.',
            'test': 'Does a run of 20 of its tokens stand in the prefix?',
            'is_tested': TRUE, 'applies': repeats, 'of': windows, 'unit': 'windows', 'more': '', 'is_open': FALSE},
        {'place': 7, 'explanation': 'The model is older than the text.',
            'test': 'Is the document dated on or after the release of the model?',
            'is_tested': release_date IS NOT NULL AND dated > 0, 'applies': later, 'of': with_passage,
            'unit': 'documents', 'more': '; released ' || release_date
                || CASE WHEN dated < with_passage THEN '; without a date: ' || (with_passage - dated) ELSE '' END,
            'is_open': dated < with_passage}
    ], recursive := TRUE) FROM every
)
SELECT benchmark, model, place, explanation, test,
    CASE WHEN is_moot THEN 'no such passage was found' WHEN is_tested THEN unit || ': ' || applies || ' of ' || "of" || more
        || CASE WHEN unit = 'windows' AND applies > 0 THEN '; they are set apart and count nowhere' ELSE '' END
    END AS result,
    CASE WHEN is_moot THEN 'nothing to explain' WHEN NOT is_tested THEN 'not tested'
        WHEN applies > 0 AND unit = 'held-out documents' THEN 'not excluded'
        WHEN applies > 0 AND applies = "of" THEN 'applies'
        WHEN applies > 0 THEN 'applies in part' WHEN is_open THEN 'not excluded' ELSE 'excluded' END AS verdict
FROM (SELECT *, with_passage = 0 AND (windows = 0 OR unit <> 'windows') AS is_moot FROM tested)
ORDER BY benchmark, model, place;

COMMENT ON VIEW rival_explanations IS
    'alternative explanations of the passages that a model reproduces from audited documents, and their tests';
COMMENT ON COLUMN rival_explanations.benchmark IS 'benchmark';
COMMENT ON COLUMN rival_explanations.model IS 'model';
COMMENT ON COLUMN rival_explanations.place IS 'position in the list';
COMMENT ON COLUMN rival_explanations.explanation IS 'alternative explanation of a passage';
COMMENT ON COLUMN rival_explanations.test IS 'question that the test answers';
COMMENT ON COLUMN rival_explanations.result IS
    'number of windows that reach 0.001, or of documents with a passage, to which the explanation applies; null: not tested';
COMMENT ON COLUMN rival_explanations.verdict IS
    'excluded | not excluded | applies in part | applies | not tested | nothing to explain';
