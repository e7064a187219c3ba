-- Views of the tables that a query of one page reads: the rows of the page's model in the tables of details.sql.

CREATE TEMP VIEW evidence_pairs AS FROM all_evidence_pairs SEMI JOIN page USING (model);

CREATE TEMP VIEW evidence_evaluations AS FROM all_evidence_evaluations SEMI JOIN page USING (model);

CREATE TEMP VIEW evidence_settings AS FROM all_evidence_settings SEMI JOIN page USING (model);

CREATE TEMP VIEW evidence_scores AS FROM all_evidence_scores SEMI JOIN page USING (model);

CREATE TEMP VIEW compared_scores AS FROM all_compared_scores SEMI JOIN page USING (model);

CREATE TEMP VIEW extraction_documents AS
-- The documents that were searched for passages, the most reproduced first on each side.
SELECT documents.*, row_number() OVER (
    PARTITION BY benchmark, side
    ORDER BY covered_at_0_001 DESC NULLS LAST, covered_by_first_choices DESC NULLS LAST, log_p DESC NULLS LAST,
        document_id
) AS place
FROM current_document_memorisation AS documents SEMI JOIN page ON page.model = documents.model;
