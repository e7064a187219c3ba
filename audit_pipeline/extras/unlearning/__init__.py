"""A model before and after it was made to forget texts: what it forgot, and what only looks forgotten.

What belongs here: statistics of texts under two or three models, the table of them, and what may be concluded. What
does not: running a model (token_statistics/), training one (controls/), what a model can be made to say (extraction/).
"""
