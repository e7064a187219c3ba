"""Open corpora: their token frequencies, and what they hold of audited texts word for word."""
