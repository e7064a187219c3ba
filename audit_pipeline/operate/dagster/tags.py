"""The tags that runs of this project carry, besides those that say which process runs them (in_process.py).

What belongs here: names. What does not: who sets them.
"""

REASON_TAG = "why"
"""Why there is the run, in words; a short name, because the UI's list of runs has room for 40 characters."""

WEEKLY_TAG = "corpus_audit/weekly_audit"
"""The weekly audit that the run is a step of."""

SUMMARY_TAG = "corpus_audit/summary"
"""What a weekly audit came to."""
