-- Answers by prompt style (table chat_documents), for audited and held-out documents separately, ordered by how much of the
-- document the prompt contains.
--
-- place: position of the prompt style
-- documents: number of documents that were asked for
-- reproduced: number of documents with a long common run in an answer
-- not_graded: number of documents with a long common run in an answer to an unknown prompt
-- words_in: number of the document's words in a prompt, mean over documents; null: unknown prompts
-- words_out: largest number of words in an answer beyond those of the prompt
-- longest_mean: number of words of a document's longest run, mean over documents with an answer
-- longest_run: number of words of the longest run of all documents
-- coverage_mean: share of the 40 following words in common runs, mean over draws, passages and documents
-- coverage_best: the same share of the best draw of each passage
-- answer_coverage_mean: share of an answer's words in common runs, mean over answers, passages and documents
-- answer_coverage_best: the same share of the best answer to each passage
WITH counted AS (
    SELECT model, benchmark, rung, side, bool_or(is_headline) AS is_headline, count(*) AS documents,
        count(*) FILTER (claim = 'reproduced') AS reproduced,
        count(*) FILTER (claim = 'not graded') AS not_graded, sum(passages)::BIGINT AS passages,
        avg(words_in) AS words_in, max(words_out) AS words_out, avg(longest_run) AS longest_mean,
        max(longest_run) AS longest_run, max(near_span) AS near_span, avg(coverage_mean) AS coverage_mean,
        avg(coverage_best) AS coverage_best, avg(answer_coverage_mean) AS answer_coverage_mean,
        avg(answer_coverage_best) AS answer_coverage_best, sum(requests)::BIGINT AS requests,
        sum(answered)::BIGINT AS answered, sum(refused)::BIGINT AS refused, sum(filtered)::BIGINT AS filtered, sum(cut)::BIGINT AS cut,
        sum("empty")::BIGINT AS "empty",
        list_position(['title', 'first line', 'prefix', 'instruction', 'handed over'], rung) AS place
    FROM current_chat_documents SEMI JOIN chat_pairs USING (model, benchmark) GROUP BY ALL
)
SELECT *, count(*) OVER (PARTITION BY benchmark) AS in_all FROM counted ORDER BY benchmark, place, rung, side;
