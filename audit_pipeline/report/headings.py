"""The title of a page: what was asked.

What belongs here: the one line that heads a page and its tab. What does not: questions with what texts are compared
with (brief.py), which models and benchmarks a page has (sections/00_first_screen.sql).
"""

from __future__ import annotations

from collections.abc import Sequence

from audit_pipeline.report.numbers import things

WITHOUT_ANSWERS = "Contamination report"


def page_heading(models: Sequence[str], benchmarks: Sequence[str], own_documents: int | None) -> str:
    """What was asked of audited models on benchmarks, all by their titles.

    ``own_documents``: how many documents of a user's own files were audited; None where a benchmark is of other texts.
    """
    if not models:
        return WITHOUT_ANSWERS
    was = "Was" if own_documents == 1 else "Were"
    if own_documents is not None:
        texts = "this document" if own_documents == 1 else f"these {things(own_documents, 'document', 'documents')}"
    else:
        texts = "texts of " + (f"“{benchmarks[0]}”" if len(benchmarks) == 1 else f"{len(benchmarks):,} benchmarks")
    data = f"{models[0]}’s training data" if len(models) == 1 else f"the training data of {len(models):,} models"
    return f"{was} {texts} in {data}?"
