"""The description of a detector in the terminal, and the facts that docs/detectors.md has as well."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from audit_pipeline.detectors.detector import Detector, ParameterValue
from audit_pipeline.detectors.detector_inputs import list_need_summaries
from audit_pipeline.tables import canonical_json

_WIDTH = 100


def collect_detector_facts(detector: Detector) -> dict[str, str]:
    """What one line each says of a detector, by its heading."""
    return {
        "source": detector.source,
        "needs": ", ".join(list_all_needs(detector)),
        "passes over a text": detector.passes,
        "own log-probabilities suffice": "yes" if detector.own_logprobs_suffice else "no",
        "scored": "only where it is named (--detectors, --set)" if detector.on_request else "in every audit",
    }


def collect_detector_prose(detector: Detector) -> dict[str, str]:
    """What takes a sentence or two, by its heading."""
    return {"What is reported": detector.reported, "It also reads": detector.also_reads}


def format_as_text(detector: Detector) -> str:
    """A detector's page for a terminal."""
    return "\n".join(
        [
            *_wrap_indented(f"{detector.name}: {detector.summary}", first=""),
            "",
            *_wrap_with_head("score", detector.equation),
            *(line for fact in collect_detector_facts(detector).items() for line in _wrap_with_head(*fact)),
            *(line for prose in collect_detector_prose(detector).items() for line in ["", *_wrap_with_head(*prose)]),
            *_iterate_parameter_lines(detector),
        ]
    )


def list_all_needs(detector: Detector) -> list[str]:
    """What it needs, and after that what some of its settings need as well."""
    return list_need_summaries(detector.needs) + [
        f"for some settings: {wish.summary}" for wish in detector.optional_needs
    ]


def iterate_parameter_cells(detector: Detector) -> Iterator[tuple[str, tuple[str, str, str, str]]]:
    """Each parameter's default, what ``--grid`` sweeps, what it takes and what it means."""
    for name, parameter in detector.parameters.items():
        swept = ", ".join(map(_format_parameter_value, parameter.values)) if len(parameter.values) > 1 else "not swept"
        yield name, (_format_parameter_value(parameter.default), swept, parameter.requirement, parameter.description)


def _format_parameter_value(value: ParameterValue) -> str:
    """As ``--set`` takes it."""
    return value if isinstance(value, str) else canonical_json(value)


def _iterate_parameter_lines(detector: Detector) -> Iterator[str]:
    for name, (default, swept, takes, meaning) in iterate_parameter_cells(detector):
        yield ""
        yield from _wrap_indented(f"parameter {name}: default {default}; --grid: {swept}", first="")
        yield from _wrap_indented(meaning)
        yield from _wrap_indented(f"takes {takes}")


def _wrap_with_head(head: str, words: str) -> list[str]:
    """After its head where that fits on a line, else below it."""
    line = f"{head}: {words}"
    return [line] if len(line) <= _WIDTH else [f"{head}:", *_wrap_indented(words)]


def _wrap_indented(words: str, first: str = "    ") -> list[str]:
    return textwrap.wrap(words, _WIDTH, initial_indent=first, subsequent_indent="    ", break_on_hyphens=False)
