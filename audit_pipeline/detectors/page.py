"""The description of a detector: on its page of docs/detectors.md, and in the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from audit_pipeline.detectors.detector import Detector, ParameterValue
from audit_pipeline.detectors.statistics import OWN_PASS, list_need_summaries
from audit_pipeline.tables import canonical_json

BEGIN = "<!-- From here to the end mark: `make docs` writes it from the detectors. Change their declarations. -->"
END = "<!-- The end mark. -->"

_WIDTH = 100


def collect_detector_facts(detector: Detector) -> dict[str, str]:
    """What one line each says of a detector, by its heading."""
    return {
        "source": detector.source,
        "needs": ", ".join(_list_needs(detector)),
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


def format_as_markdown(detector: Detector) -> str:
    """A detector's page, of level 3."""
    parts = [
        f"### {detector.name}",
        escape_markdown(_sentence(detector.summary)),
        "\n".join(["```text", *textwrap.wrap(detector.equation, _WIDTH, break_on_hyphens=False), "```"]),
        format_markdown_table(
            ["", ""], ([head, escape_markdown(words)] for head, words in collect_detector_facts(detector).items())
        ),
    ]
    if detector.parameters:
        rows = ([name, *map(escape_markdown, cells)] for name, cells in _iterate_parameter_cells(detector))
        parts.append(format_markdown_table(["parameter", "default", "with `--grid`", "takes", "meaning"], rows))
    parts += (f"**{head}.** {escape_markdown(words)}" for head, words in collect_detector_prose(detector).items())
    return "\n\n".join(parts)


def format_overview_table(detectors: Iterable[Detector]) -> str:
    """All detectors in one table, each with a link to its page."""
    head = ["detector", "passes over a text", "further needs", "own log-probabilities suffice"]
    rows = []
    for detector in detectors:
        needs = ", ".join(need for need in _list_needs(detector) if need != OWN_PASS) or "nothing more"
        on_request = " (on request)" if detector.on_request else ""
        suffice = "yes" if detector.own_logprobs_suffice else "no"
        link = f"[{detector.name}](#{detector.name}){on_request}"
        rows.append([link, escape_markdown(detector.passes), escape_markdown(needs), suffice])
    return format_markdown_table(head, rows)


def insert_detector_pages(text: str, detectors: Sequence[Detector]) -> str:
    """``text`` with the pages of ``detectors`` between its two marks; raises ValueError where it lacks them."""
    return insert_between_marks(
        text, "\n\n".join([format_overview_table(detectors), *map(format_as_markdown, detectors)])
    )


def insert_between_marks(text: str, content: str) -> str:
    """``text`` with ``content`` between its two marks; raises ValueError where it lacks them."""
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n\n{content}\n\n{END}{tail}"


def _list_needs(detector: Detector) -> list[str]:
    """What it needs, and after that what some of its settings need as well."""
    return list_need_summaries(detector.needs) + [f"for some settings: {wish.summary}" for wish in detector.wishes]


def _iterate_parameter_cells(detector: Detector) -> Iterator[tuple[str, tuple[str, str, str, str]]]:
    """Each parameter's default, what ``--grid`` sweeps, what it takes and what it means."""
    for name, parameter in detector.parameters.items():
        swept = ", ".join(map(_format_parameter_value, parameter.values)) if len(parameter.values) > 1 else "not swept"
        yield name, (_format_parameter_value(parameter.default), swept, parameter.requirement, parameter.description)


def _format_parameter_value(value: ParameterValue) -> str:
    """As ``--set`` takes it."""
    return value if isinstance(value, str) else canonical_json(value)


def _iterate_parameter_lines(detector: Detector) -> Iterator[str]:
    for name, (default, swept, takes, meaning) in _iterate_parameter_cells(detector):
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


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def format_markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def escape_markdown(words: str) -> str:
    """Text in Markdown as it is: no bar ends a cell, nothing is a tag or an emphasis."""
    for character in "|*<":
        words = words.replace(character, f"\\{character}")
    return words
