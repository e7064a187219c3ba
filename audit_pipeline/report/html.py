"""The page of a report: HTML made of its data; and the glossary of the documentation as a page beside it.

What belongs here: the template environment, and what templates need beside the data. What does not: what the report
says (page.py), what the terms mean (docs/glossary.md, of which an installed package has a copy), the layout (sections/,
templates/), writing files (files.py).

Audited texts and the names of models, benchmarks and documents are untrusted: Jinja2 escapes everything, and only the
pictures, whose own text matplotlib has escaped, are put in as they are.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, partial
from importlib import resources
from importlib.metadata import version
from importlib.resources.abc import Traversable
from typing import Any
from urllib.parse import quote

import jinja2
from markdown_it import MarkdownIt
from markupsafe import Markup

from audit_pipeline.catalogue.paths import DEFAULTS
from audit_pipeline.evidence.conformal import count_held_out_needed
from audit_pipeline.metrics.claims import format_claim_level
from audit_pipeline.report.answer_kinds import SIGNS, Sign
from audit_pipeline.report.number_format import (
    amount,
    count,
    day,
    draws,
    duration,
    interval,
    level,
    moment,
    number,
    percent,
    probability,
    score,
    setting,
    share,
    side,
    signed,
    things,
    visible,
)
from audit_pipeline.report.page import ReportPage, brought_sections, sections
from audit_pipeline.report.pictures import (
    SHADES,
    SIDE_NAMES,
    STRIP_HEIGHT,
    STRIP_WIDTH,
    curve_pictures,
    roc_pictures,
    rung_pictures,
    spread_pictures,
    strip_shapes,
    study_pictures,
)
from audit_pipeline.report.summary import is_evidence, is_shown_first, sort_by_kind
from audit_pipeline.report.vocabulary import Q_LEVEL, STEP_IN_WORDS, TEST_IN_WORDS, describe_text_counts, format_rule
from audit_pipeline.unlearning.measures import METRIC_IN_WORDS

GLOSSARY = DEFAULTS / "docs" / "glossary.md"

FIRST_COMMAND = "corpus-audit audit --model smollm2-135m --benchmark release_notes"
TEMPLATE, GLOSSARY_TEMPLATE = "page.html.j2", "glossary.html.j2"
HEAT_LEVELS = 5
ROOM = 0.05
"""Of a scale's width, left free at both ends: a dot at the end is whole."""
FIRST_TESTS = 3
"""Tests of whole sets that are shown on the first screen."""
MOST_UNITS = 120
"""Documents that a picture shows one by one; of more it shows the share."""
MOST_DRAWN = 8
"""Answers in the picture of all of them; the table has the others."""
MOST_COUNTED = 4
"""Rows of documents in that picture."""
MOST_DOCUMENTS = 20
"""Documents of one audit in view; the others are folded."""
FIRST_ANSWERS = 3
"""Answers that are shown in full where there are several; the table has all of them."""
SIGN_SHAPES: Mapping[Sign, str] = {"found": "◆", "stands out": "▲", "nothing found": "○", "no conclusion": "?"}
"""Shapes that tell the kinds of answers apart without colour, beside the word."""

Row = Mapping[str, Any]


@cache
def layout_digest() -> str:
    """A digest of the modules, queries, templates and words that make a page: another one, other pages."""
    digest = hashlib.sha256()
    for folder in (resources.files(__package__), *brought_sections()):
        for path, file in sorted(_iterate_layout_files(folder)):
            digest.update(path.encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _iterate_layout_files(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        path = f"{prefix}/{entry.name}"
        if entry.is_dir():
            yield from _iterate_layout_files(entry, path)
        elif entry.name.endswith((".py", ".j2", ".sql")):
            yield path, entry


@dataclass
class Subject:
    """The results of one model on one benchmark or set: from scores, word for word, in answers, and by tests of the
    whole set."""

    answer: Row | None = None
    found: Row | None = None
    said: Row | None = None
    tests: list[Row] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        """Its rows, in the order of the terminal, too."""
        return sort_by_kind([row for row in (self.answer, *self.tests, self.found, self.said) if row])

    @property
    def signs(self) -> list[Sign]:
        """The signs of its rows, each once, in their order."""
        return list(dict.fromkeys(row["sign"] for row in self.rows))


def subjects_of(sections: Mapping[str, Sequence[Row]]) -> list[Subject]:
    """The subjects of the first screen: reproduced passages first, then evidence of tests, answers, and all others."""
    (asked,) = sections["first_screen"]
    tests = [test for test in sections["corpus_tests"] if is_shown_first(test)]
    answers, searched, chats = sections["answers"], asked["word_for_word"], asked["in_answers"]
    subjects: dict[tuple[str, str], Subject] = {}
    reproduced = (row for row in (*searched, *chats) if row["reproduced"])
    for row in (*reproduced, *filter(is_evidence, tests), *answers, *searched, *chats, *tests):
        subjects.setdefault((row["model"], row["benchmark"]), Subject())
    for row in answers:
        subjects[row["model"], row["benchmark"]].answer = row
    for row in searched:
        subjects[row["model"], row["benchmark"]].found = row
    for row in chats:
        subjects[row["model"], row["benchmark"]].said = row
    for test in tests:
        subjects[test["model"], test["benchmark"]].tests.append(test)
    return list(subjects.values())


def render(page: ReportPage, *, written_at: datetime, pages: Mapping[str, str], data_version: str) -> str:
    """The page as HTML; ``pages`` are the file names of models' pages, beside this one, by model, and ``data_version``
    is a digest of what the page says."""
    subjects = subjects_of(page.sections)
    signs = Counter(sign for subject in subjects for sign in subject.signs)
    return (
        _build_jinja_environment()
        .get_template(TEMPLATE)
        .render(
            page=page,
            is_model=page.kind == "model",
            data=page.sections,
            sections=sections(),
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
                *(jinja2.FileSystemLoader(str(folder)) for folder in brought_sections()),
            ]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(_build_filters())
    environment.tests.update(shown_first=is_shown_first, evidence=is_evidence)
    environment.globals.update(_build_globals())
    return environment


def _build_filters() -> dict[str, Callable[..., object]]:
    """How templates write values, by the names that they use."""
    return dict[str, Callable[..., object]](
        amount=amount,
        count=count,
        counted=describe_text_counts,
        day=day,
        draws=draws,
        duration=duration,
        ends=ends,
        interval=interval,
        level=level,
        moment=moment,
        number=number,
        percent=percent,
        probability=probability,
        rule=format_rule,
        score=score,
        setting=setting,
        share=share,
        side=side,
        signed=signed,
        spoken=spoken,
        stated=format_claim_level,
        visible=visible,
        test=lambda name: TEST_IN_WORDS.get(name, spoken(name)),
        step=lambda name: STEP_IN_WORDS.get(name, spoken(name)),
        unlearning=lambda name: METRIC_IN_WORDS.get(name, spoken(name)),
    )


def _build_globals() -> dict[str, object]:
    """The limits, pictures and scales of templates, by the names that they use."""
    return dict[str, object](
        side_names=SIDE_NAMES,
        sign_shapes=SIGN_SHAPES,
        scale_of=Scale.of,
        heat=compute_heat_levels,
        things=things,
        cells=select_cells,
        needed=partial(count_held_out_needed, level=Q_LEVEL),
        strip_shapes=strip_shapes,
        strip_size=(STRIP_WIDTH, STRIP_HEIGHT),
        shades=SHADES,
        curve_pictures=curve_pictures,
        roc_pictures=roc_pictures,
        rung_pictures=rung_pictures,
        spread_pictures=spread_pictures,
        study_pictures=study_pictures,
        most_units=MOST_UNITS,
        most_drawn=MOST_DRAWN,
        most_counted=MOST_COUNTED,
        most_documents=MOST_DOCUMENTS,
        first_answers=FIRST_ANSWERS,
        first_tests=FIRST_TESTS,
        first_command=FIRST_COMMAND,
    )


class Contents:
    """The table of contents of a page, filled while its sections are rendered: each says its heading once."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str]] = []

    def section(self, name: str, heading: str, short: str | None = None) -> Markup:
        """The opening tag and the heading of a section, and its entry in the contents."""
        self.entries.append((name, short or heading))
        return Markup('<section id="{name}" aria-labelledby="{name}-h">\n<h2 id="{name}-h">{heading}</h2>').format(
            name=name, heading=heading
        )

    def folded(self, name: str, heading: str, short: str | None = None) -> Markup:
        """The same of a section that is folded: a link to it, or to anything in it, opens it, for browsers open the
        details that hold the target of a link."""
        self.entries.append((name, short or heading))
        return Markup(
            '<details class="section"><summary><h2>{heading}</h2></summary>\n<span class="anchor" id="{name}"></span>'
        ).format(name=name, heading=heading)


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


def ends(estimate: Row) -> tuple[float | None, float | None]:
    """Both ends of an estimate's interval."""
    return estimate["low"], estimate["high"]


def spoken(name: str) -> str:
    """A name of the program in words: underscores are blanks."""
    return name.replace("_", " ")
