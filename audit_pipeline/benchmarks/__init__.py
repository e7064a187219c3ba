"""Benchmarks: from dated documents, or from published labelled rows, to labelled examples of one length.

What belongs here: the named benchmarks (config.py), the builders (builders/), what they share (rows, words,
windows, quotas, splits), the checks, and writing the result (build.py). What does not: fetching documents (sources/),
scoring (token_statistics/, detectors/), metrics and controls (statistics/, splits/).
"""
