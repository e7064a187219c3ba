"""Models at endpoints: servers that return the log-probabilities of a prompt's tokens.

The package sends prompts to such a server, reads its answers, probes it before the first text, and counts the usage of
a run. The package token_statistics uses the results. The configuration of endpoints is read in models/config.py.
"""
