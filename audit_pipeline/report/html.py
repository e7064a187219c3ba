"""The page of a report: HTML made of its data; and the glossary of the documentation as a page next to it.

What belongs here: the template environment, and what templates need apart from the data. What does not: what the report
says (page.py), what the terms mean (docs/glossary.md, of which an installed package has a copy), the layout (sections/,
templates/), writing files (files.py).

Audited texts and the names of models, benchmarks and documents are untrusted: Jinja2 escapes everything, and only the
pictures, whose own text matplotlib has escaped, are put in as they are.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from importlib import resources
from importlib.metadata import version
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import jinja2
from markdown_it import MarkdownIt
from markupsafe import Markup

from audit_pipeline.report.notes import RULE_IN_WORDS, STEP_IN_WORDS, TEST_IN_WORDS, describe_text_counts
from audit_pipeline.report.number_format import FILTERS, format_count_with_noun
from audit_pipeline.report.page import ReportPage, list_plugin_section_folders, list_sections
from audit_pipeline.report.pictures import (
    SHADES,
    SIDE_NAMES,
    STRIP_HEIGHT,
    STRIP_WIDTH,
    build_strip_shapes,
    draw_control_pictures,
    draw_roc_pictures,
    draw_rung_pictures,
    draw_series_pictures,
    draw_spread_pictures,
    draw_study_pictures,
)
from audit_pipeline.report.sentences import Q_LEVEL, SIGNS, Sign
from audit_pipeline.report.summary import group_by_subject
from audit_pipeline.statistics.claims import format_claim_level
from audit_pipeline.statistics.conformal import count_held_out_needed
from audit_pipeline.store.paths import DEFAULTS
from audit_pipeline.tables import UNLEARNING_METRICS

GLOSSARY = DEFAULTS / "docs" / "glossary.md"

TEMPLATE, GLOSSARY_TEMPLATE = "page.html.j2", "glossary.html.j2"
HEAT_LEVELS = 5
ROOM = 0.05
"""Of a scale's width, left free at both ends: a dot at the end is whole."""
LIMITS: Mapping[str, int] = {
    "first_tests": 3,  # tests of whole sets on the first screen
    "first_answers": 3,  # answers in full where there are several
    "most_units": 120,  # documents that a picture shows one by one; of more it shows the share
    "most_drawn": 8,  # answers in the picture of all of them
    "most_counted": 4,  # rows of documents in that picture
    "most_listed": 5,  # models on benchmarks whose answers the first screen lists, a line each
    "most_documents": 20,  # documents of one audit in view; the others are folded
}
"""How much of something a page shows at most; the tables have all of it."""
SIGN_SHAPES: Mapping[Sign, str] = {"found": "◆", "stands out": "▲", "nothing found": "○", "no conclusion": "?"}
"""Shapes that distinguish the kinds of answers without colour, next to the word."""

Row = Mapping[str, Any]


@cache
def compute_layout_digest() -> str:
    """A digest of the modules, queries, templates and words that make a page: another digest, other pages."""
    digest = hashlib.sha256()
    for folder in (resources.files(__package__), *list_plugin_section_folders()):
        for path, file in sorted(_iterate_layout_files(folder)):
            digest.update(path.encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _iterate_layout_files(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        path = f"{prefix}/{entry.name}"
        if entry.is_dir():
            yield from _iterate_layout_files(entry, path)
        elif entry.name.endswith((".py", ".j2", ".sql", ".yaml")):
            yield path, entry


def render_page(page: ReportPage, *, written_at: datetime, pages: Mapping[str, str], data_version: str) -> str:
    """The page as HTML; ``pages`` are the file names of models' pages, next to this one, by model, and ``data_version``
    is a digest of what the page says."""
    (first,) = page.sections["first_screen"]
    results = (page.sections["answers"], page.sections["corpus_tests"], first["word_for_word"], first["in_answers"])
    subjects = group_by_subject(*results)
    # One verdict per model and benchmark.
    signs = Counter(subject.rows[0]["sign"] for subject in subjects)
    return (
        _build_jinja_environment()
        .get_template(TEMPLATE)
        .render(
            page=page,
            is_model=page.kind == "model",
            data=page.sections,
            sections=list_sections(),
            subjects=subjects,
            signs=[(sign, signs[sign]) for sign in SIGNS if signs[sign]],
            data_version=data_version,
            contents=Contents(),
            written_at=written_at,
            written_with=version("corpus-audit"),
            pages={model: quote(name) for model, name in pages.items()},
        )
    )


def render_glossary() -> str:
    """The documentation's glossary as a page, without its links to other pages of the documentation."""
    markdown = MarkdownIt().enable("table")
    for mark in ("link_open", "link_close"):
        markdown.add_render_rule(mark, lambda *arguments: "")
    text = GLOSSARY.read_text(encoding="utf-8")
    return _build_jinja_environment().get_template(GLOSSARY_TEMPLATE).render(body=markdown.render(text))


@cache
def _build_jinja_environment() -> jinja2.Environment:
    """The templates, compiled once for all pages."""
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [
                jinja2.PackageLoader(__package__, "sections"),
                jinja2.PackageLoader(__package__, "templates"),
                *(jinja2.FileSystemLoader(str(folder)) for folder in list_plugin_section_folders()),
            ]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        FILTERS,
        counted=describe_text_counts,
        rule=partial(spell_out, words=RULE_IN_WORDS),
        spoken=spell_out,
        stated=format_claim_level,
        test=partial(spell_out, words=TEST_IN_WORDS),
        step=partial(spell_out, words=STEP_IN_WORDS),
        unlearning=partial(spell_out, words=UNLEARNING_METRICS),
    )
    environment.globals.update(
        side_names=SIDE_NAMES,
        sign_shapes=SIGN_SHAPES,
        scale_of=Scale.of,
        heat=compute_heat_levels,
        things=format_count_with_noun,
        cells=select_cells,
        needed=partial(count_held_out_needed, level=Q_LEVEL),
        strip_shapes=build_strip_shapes,
        strip_size=(STRIP_WIDTH, STRIP_HEIGHT),
        shades=SHADES,
        curve_pictures=draw_control_pictures,
        roc_pictures=draw_roc_pictures,
        rung_pictures=draw_rung_pictures,
        series_pictures=draw_series_pictures,
        spread_pictures=draw_spread_pictures,
        study_pictures=draw_study_pictures,
        first_command="corpus-audit audit --model smollm2-135m --benchmark release_notes",
        **LIMITS,
    )
    return environment


class Contents:
    """The contents of a page, one row of few words, filled while its sections are rendered."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str]] = []

    def section(self, name: str, heading: str, short: str | None = None) -> Markup:
        """The opening tag and the heading of a section; ``short``: its name in the contents, where it is in there."""
        self._add(name, short)
        return Markup('<section id="{name}" aria-labelledby="{name}-h">\n<h2 id="{name}-h">{heading}</h2>').format(
            name=name, heading=heading
        )

    def folded(self, name: str, heading: str, short: str | None = None) -> Markup:
        """The same of a section that is folded: a link to it, or to anything in it, opens it, for browsers open the
        details that hold the target of a link."""
        self._add(name, short)
        return Markup(
            '<details class="section"><summary><h2>{heading}</h2></summary>\n<span class="anchor" id="{name}"></span>'
        ).format(name=name, heading=heading)

    def _add(self, name: str, short: str | None) -> None:
        if short is not None:
            self.entries.append((name, short))


class Scale:
    """The axis of dot-and-whisker cells: places as percentages of a cell's width, with room at both ends."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    @classmethod
    def of(
        cls, estimates: Sequence[Row | None], least: float, most: float, bounds: tuple[float, float] = (0.0, 1.0)
    ) -> Scale:
        """From ``least`` to ``most``, and as much further as the numbers go, within ``bounds``."""
        known = [number for row in estimates if row for number in (row["low"], row["value"], row["high"])]
        numbers = [least, most, *(number for number in known if number is not None)]
        return cls(max(bounds[0], min(numbers)), min(bounds[1], max(numbers)))

    def place(self, value: float) -> str:
        """The position of a value, as a percentage of the width."""
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return f"{100 * (ROOM + (1 - 2 * ROOM) * min(1.0, max(0.0, share))):.2f}%"

    def width(self, low: float, high: float) -> str:
        """How wide an interval is, as a percentage of the width."""
        span = (self.high - self.low) or 1.0
        start, end = (min(1.0, max(0.0, (value - self.low) / span)) for value in (low, high))
        return f"{100 * (1 - 2 * ROOM) * (end - start):.2f}%"


def compute_heat_levels(texts: Sequence[Row]) -> dict[float, int]:
    """For every token score that occurs its level, 0 (lowest) to 4: fifths of the shown tokens, by their rank."""
    scores = sorted(token["score"] for text in texts for token in text["tokens"] if token["score"] is not None)
    levels: dict[float, int] = {}
    for place, value in enumerate(scores):
        levels.setdefault(value, place * HEAT_LEVELS // len(scores))
    return levels


def select_cells(rows: Sequence[Row], down: str, value: object, across: str, column: object) -> list[Row]:
    """The rows of one cell of a table of two columns' values."""
    return [row for row in rows if (row[down], row[across]) == (value, column)]


def spell_out(name: str, words: Mapping[str, str] = MappingProxyType({})) -> str:
    """A name of the program in words: those that are given for it, else its own, with blanks for underscores."""
    return words.get(name, name.replace("_", " "))
