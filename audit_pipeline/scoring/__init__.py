"""Scoring a user's file without Dagster.

What belongs here: going through the file in pieces, the table that is written, what the labels in it show. What does
not: the pass and its cache (token_statistics/), detectors (detectors/), reading files (readers/).
"""
