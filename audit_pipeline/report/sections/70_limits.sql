-- The limits of what any report can say.
--
-- title: the limit, in a few words
-- text: what it means
SELECT NULL::VARCHAR AS title, NULL::VARCHAR AS text WHERE FALSE;
