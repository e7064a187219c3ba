"""Models at endpoints: servers that give the log-probabilities of a prompt's tokens.

What belongs here: asking such a server, reading its answers, trying it out before the first text, and what a run may
spend. What does not: what becomes of the statistics (token_statistics/), what an entry says (models/config.py).
"""
