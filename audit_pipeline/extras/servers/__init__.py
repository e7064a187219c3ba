"""Models at endpoints: servers that return the log-probabilities of a prompt's tokens.

The package sends prompts to such a server and reads its answers. It probes the server before the first text: it checks
with a few requests that the answers are usable. It counts the requests and tokens of a run. The package
token_statistics uses the results. The configuration of endpoints is read in models/config.py.
"""
