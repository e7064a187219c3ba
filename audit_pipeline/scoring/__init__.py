"""The scoring of texts without Dagster.

This package has the scoring session, the scoring of a user's file, and the tables of external scores. The pass and its
cache belong to token_statistics/, detectors to detectors/, and file formats to readers/.
"""
