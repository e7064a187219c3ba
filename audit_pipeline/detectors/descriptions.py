"""Descriptions of detectors for the terminal and for docs/detectors.md."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from audit_pipeline.detectors.detector import Detector, ParameterValue
from audit_pipeline.detectors.detector_inputs import list_need_summaries
from audit_pipeline.tables import canonical_json

_WIDTH = 100


def collect_detector_facts(detector: Detector) -> dict[str, str]:
    """Return the one-line facts about a detector by their headings."""
    own_logprobs = "yes" if detector.own_logprobs_suffice else "no"
    scored = "only if you name it (--detectors, --set)" if detector.on_request else "in every audit"
    return {
        "source": detector.source,
        "needs": ", ".join(list_all_needs(detector)),
        "passes over a text": detector.passes,
        "own log-probabilities suffice": own_logprobs,
        "scored": scored,
    }


def collect_detector_prose(detector: Detector) -> dict[str, str]:
    """Return the longer descriptions of a detector by their headings."""
    return {"What is reported": detector.reported, "It also reads": detector.also_reads}


def format_as_text(detector: Detector) -> str:
    """Format the page of a detector for a terminal."""
    lines = [*_wrap_indented(f"{detector.name}: {detector.summary}", first_indent=""), ""]
    lines += _wrap_with_head("score", detector.equation)
    for head, fact in collect_detector_facts(detector).items():
        lines += _wrap_with_head(head, fact)
    for head, prose in collect_detector_prose(detector).items():
        lines += ["", *_wrap_with_head(head, prose)]
    lines += _iterate_parameter_lines(detector)
    return "\n".join(lines)


def list_all_needs(detector: Detector) -> list[str]:
    """Return the summaries of all data that a detector reads: first for every setting, then for some settings only."""
    optional = [f"for some settings: {need.summary}" for need in detector.optional_needs]
    return [*list_need_summaries(detector.needs), *optional]


def iterate_parameter_cells(detector: Detector) -> Iterator[tuple[str, tuple[str, str, str, str]]]:
    """Yield the name of each parameter and the cells of its table row: default, grid, accepted values and meaning."""
    for name, parameter in detector.parameters.items():
        swept = "not swept"
        if len(parameter.values) > 1:
            swept = ", ".join(map(_format_parameter_value, parameter.values))
        yield name, (_format_parameter_value(parameter.default), swept, parameter.requirement, parameter.description)


def _format_parameter_value(value: ParameterValue) -> str:
    """Format a value as ``--set`` accepts it."""
    return value if isinstance(value, str) else canonical_json(value)


def _iterate_parameter_lines(detector: Detector) -> Iterator[str]:
    for name, (default, swept, requirement, meaning) in iterate_parameter_cells(detector):
        yield ""
        yield from _wrap_indented(f"parameter {name}: default {default}; --grid: {swept}", first_indent="")
        yield from _wrap_indented(meaning)
        yield from _wrap_indented(f"takes {requirement}")


def _wrap_with_head(head: str, text: str) -> list[str]:
    line = f"{head}: {text}"
    return [line] if len(line) <= _WIDTH else [f"{head}:", *_wrap_indented(text)]


def _wrap_indented(text: str, first_indent: str = "    ") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=first_indent, subsequent_indent="    ", break_on_hyphens=False)
