"""Metrics, intervals, tests and decisions that are computed from scores. No model runs here."""
