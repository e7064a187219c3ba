"""Benchmarks: labelled examples of one length, from dated documents or from published labelled rows.

This package reads the configured benchmarks (config.py), draws their examples (builders/), checks them (checks.py) and
writes the result (build.py). Documents are fetched in sources/ and scored in token_statistics/ and detectors/. Metrics
and blind controls are in statistics/ and splits/.
"""
