"""Open corpora: the counts of their tokens, and the search for passages of audited texts in them."""
