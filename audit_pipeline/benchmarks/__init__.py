"""Benchmarks: labelled examples of one length, from dated documents or from published labelled rows.

This package holds the named benchmarks (config.py), the builders (builders/) and their shared parts (rows, words,
windows, quotas, splits). It also holds the checks and the code that writes the result (build.py). Fetching documents belongs in sources/.
Scoring belongs in token_statistics/ and detectors/. Metrics and controls belong in statistics/ and splits/.
"""
