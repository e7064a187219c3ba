"""The warehouse: one DuckDB file built from the Parquet tables, read-only access to it, plots and the HTML report.

What belongs here: everything that reads finished tables to show them. What does not: computing a score, a metric or a
claim level (detectors/, metrics/, evidence/), and Dagster's side of it (assets/reports.py).
"""
