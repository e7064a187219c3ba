"""The generated parts of docs/detectors.md, and the arrays in docs/adding-a-detector.md."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

import numpy as np

from audit_pipeline.detectors.detector import Detector
from audit_pipeline.detectors.detector_inputs import OWN_PASS
from audit_pipeline.detectors.registry import (
    collect_detector_facts,
    collect_detector_prose,
    iterate_parameter_cells,
    list_all_needs,
)
from audit_pipeline.tables import MEASURED, TOKEN_STATISTICS
from docs.writers.markdown import escape_markdown, format_markdown_table, insert_between_marks

_WIDTH = 100


def format_as_markdown(detector: Detector) -> str:
    """Return a detector's page with a heading of level 3."""
    parts = [
        f"### {detector.name}",
        escape_markdown(_sentence(detector.summary)),
        "\n".join(["```text", *textwrap.wrap(detector.equation, _WIDTH, break_on_hyphens=False), "```"]),
        format_markdown_table(
            ["", ""], ([head, escape_markdown(words)] for head, words in collect_detector_facts(detector).items())
        ),
    ]
    if detector.parameters:
        rows = ([name, *map(escape_markdown, cells)] for name, cells in iterate_parameter_cells(detector))
        parts.append(format_markdown_table(["parameter", "default", "with `--grid`", "takes", "meaning"], rows))
    parts += (f"**{head}.** {escape_markdown(words)}" for head, words in collect_detector_prose(detector).items())
    return "\n\n".join(parts)


def format_overview_table(detectors: Iterable[Detector]) -> str:
    """Return a table of all detectors with links to their pages."""
    head = ["detector", "passes over a text", "further needs", "own log-probabilities suffice"]
    rows = []
    for detector in detectors:
        needs = ", ".join(need for need in list_all_needs(detector) if need != OWN_PASS) or "nothing more"
        on_request = " (on request)" if detector.on_request else ""
        suffice = "yes" if detector.own_logprobs_suffice else "no"
        link = f"[{detector.name}](#{detector.name}){on_request}"
        rows.append([link, escape_markdown(detector.passes), escape_markdown(needs), suffice])
    return format_markdown_table(head, rows)


def format_array_table() -> str:
    """Return the table of the arrays of a text that every detector can read.

    The rows come from the declarations in tables/token_statistics.py.
    """
    always_there = ("token_id", "logprob")
    rows = []
    for column in (TOKEN_STATISTICS.column("token_id"), *MEASURED):
        declared = "nothing" if column.name in always_there else f'`reads_columns("{column.name}")`'
        type_name = np.dtype(column.type.value_type.to_pandas_dtype()).name
        rows.append([f"`statistics.{column.name}`", type_name, escape_markdown(column.description), declared])
    return format_markdown_table(["array", "type", "per scored token", "entry of `reads`"], rows)


def insert_detector_pages(text: str, detectors: Sequence[Detector]) -> str:
    """Return ``text`` with the pages of ``detectors`` between its marks. Raises ValueError if a mark is missing."""
    return insert_between_marks(
        text, "\n\n".join([format_overview_table(detectors), *map(format_as_markdown, detectors)])
    )


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."
