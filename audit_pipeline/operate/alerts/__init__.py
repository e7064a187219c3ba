"""Alerts: which findings changed, and telling somebody.

What belongs here: comparing findings (evidence/findings.py) and delivering what is to be told (deliver.py). What does
not: when to compare and what to do with a failed run (operate/dagster/).
"""
