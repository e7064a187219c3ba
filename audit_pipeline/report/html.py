"""HTML of the report's pages and of the glossary.

This module renders the templates of sections/ and templates/. page_data.py reads the data, and files.py writes the
files.

Audited texts and the names of models, benchmarks and documents are untrusted. Jinja2 escapes all of them. Only pictures
are inserted without escaping, because plots.py escapes their texts.
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

from audit_pipeline.report import pictures
from audit_pipeline.report.number_format import FILTERS, format_count_with_noun
from audit_pipeline.report.page_data import ReportPage, list_plugin_section_folders, list_sections
from audit_pipeline.report.sentences import (
    Q_LEVEL,
    RULE_IN_WORDS,
    SIGNS,
    STEP_IN_WORDS,
    TEST_IN_WORDS,
    Sign,
    describe_text_counts,
)
from audit_pipeline.report.summary import group_by_subject
from audit_pipeline.statistics.claims import format_claim_level
from audit_pipeline.statistics.conformal import count_held_out_needed
from audit_pipeline.store.paths import DEFAULTS
from audit_pipeline.tables import UNLEARNING_METRICS

GLOSSARY = DEFAULTS / "docs" / "glossary.md"

TEMPLATE = "page.html.j2"
GLOSSARY_TEMPLATE = "glossary.html.j2"
HEAT_LEVELS = 5
ROOM = 0.05
"""Margin at both ends of a scale, as a share of its width. It keeps a dot at the end from being cut off."""
LIMITS: Mapping[str, int] = {
    "first_tests": 3,  # Tests of whole sets on the first screen.
    "first_answers": 3,  # Complete answers on the first screen, if there are several answers.
    "most_units": 120,  # Documents that a picture shows individually. If there are more, it shows their share.
    "most_drawn": 8,  # Answers in the overview picture.
    "most_counted": 4,  # Rows of documents in the overview picture.
    "most_listed": 5,  # Answers that the first screen lists, one line each.
    "most_documents": 20,  # Visible documents of one audit. The other documents are folded.
}
"""Maximum numbers that a page shows. The warehouse contains everything."""
SIGN_SHAPES: Mapping[Sign, str] = {"found": "◆", "stands out": "▲", "nothing found": "○", "no conclusion": "?"}
"""Shapes next to the verdicts, so that they differ without colour, too."""

Row = Mapping[str, Any]


@cache
def compute_layout_digest() -> str:
    """Compute a digest of the modules, queries, templates and sentences that determine a page's layout."""
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
    """Render a page as HTML.

    Args:
        page: Data of the page.
        written_at: Time that the page shows.
        pages: File names of the models' pages in the same folder, by model.
        data_version: Digest of the page's content.
    """
    (first_screen,) = page.sections["first_screen"]
    subjects = group_by_subject(
        page.sections["answers"],
        page.sections["corpus_tests"],
        first_screen["word_for_word"],
        first_screen["in_answers"],
    )
    # Each pair of a model and a benchmark counts once, with the verdict of its most important result.
    signs = Counter(subject.rows[0]["sign"] for subject in subjects)
    sign_counts = [(sign, signs[sign]) for sign in SIGNS if signs[sign]]
    page_links = {model: quote(name) for model, name in pages.items()}
    return (
        _build_jinja_environment()
        .get_template(TEMPLATE)
        .render(
            page=page,
            is_model=page.kind == "model",
            data=page.sections,
            sections=list_sections(),
            subjects=subjects,
            signs=sign_counts,
            data_version=data_version,
            contents=Contents(),
            written_at=written_at,
            written_with=version("corpus-audit"),
            pages=page_links,
        )
    )


def render_glossary() -> str:
    """Render the glossary of the documentation as a page, without links to other pages of the documentation."""
    markdown = MarkdownIt().enable("table")
    for mark in ("link_open", "link_close"):
        markdown.add_render_rule(mark, lambda *arguments: "")
    text = GLOSSARY.read_text(encoding="utf-8")
    return _build_jinja_environment().get_template(GLOSSARY_TEMPLATE).render(body=markdown.render(text))


@cache
def _build_jinja_environment() -> jinja2.Environment:
    """Build the template environment. It compiles each template once for all pages."""
    loaders: list[jinja2.BaseLoader] = [
        jinja2.PackageLoader(__package__, "sections"),
        jinja2.PackageLoader(__package__, "templates"),
    ]
    for folder in list_plugin_section_folders():
        loaders.append(jinja2.FileSystemLoader(str(folder)))
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        FILTERS,
        counted=describe_text_counts,
        rule=partial(spell_out, labels=RULE_IN_WORDS),
        spoken=spell_out,
        stated=format_claim_level,
        test=partial(spell_out, labels=TEST_IN_WORDS),
        step=partial(spell_out, labels=STEP_IN_WORDS),
        unlearning=partial(spell_out, labels=UNLEARNING_METRICS),
    )
    environment.globals.update(
        side_names=pictures.SIDE_NAMES,
        sign_shapes=SIGN_SHAPES,
        scale_of=Scale.from_estimates,
        heat=compute_heat_levels,
        things=format_count_with_noun,
        cells=select_cells,
        needed=partial(count_held_out_needed, level=Q_LEVEL),
        strip_shapes=pictures.build_strip_shapes,
        strip_size=(pictures.STRIP_WIDTH, pictures.STRIP_HEIGHT),
        shades=pictures.SHADES,
        curve_pictures=pictures.draw_control_pictures,
        roc_pictures=pictures.draw_roc_pictures,
        rung_pictures=pictures.draw_rung_pictures,
        series_pictures=pictures.draw_series_pictures,
        spread_pictures=pictures.draw_spread_pictures,
        study_pictures=pictures.draw_study_pictures,
        first_command="corpus-audit audit --model smollm2-135m --benchmark release_notes",
        **LIMITS,
    )
    return environment


class Contents:
    """The table of contents of a page, filled while its sections are rendered."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str]] = []

    def section(self, name: str, heading: str, short: str | None = None) -> Markup:
        """Open a section with its heading. ``short`` is its entry in the contents, or None for no entry."""
        self._add(name, short)
        return Markup('<section id="{name}" aria-labelledby="{name}-h">\n<h2 id="{name}-h">{heading}</h2>').format(
            name=name, heading=heading
        )

    def folded(self, name: str, heading: str, short: str | None = None) -> Markup:
        """Open a folded section, as :meth:`section` does. Browsers unfold it if a link leads to it or into it."""
        self._add(name, short)
        return Markup(
            '<details class="section"><summary><h2>{heading}</h2></summary>\n<span class="anchor" id="{name}"></span>'
        ).format(name=name, heading=heading)

    def _add(self, name: str, short: str | None) -> None:
        if short is not None:
            self.entries.append((name, short))


class Scale:
    """The axis of dot-and-whisker cells. Positions are percentages of the cell's width."""

    def __init__(self, low: float, high: float) -> None:
        self.low = low
        self.high = high

    @classmethod
    def from_estimates(
        cls, estimates: Sequence[Row | None], least: float, most: float, bounds: tuple[float, float] = (0.0, 1.0)
    ) -> Scale:
        """Build a scale from ``least`` to ``most``, extended to all estimates, but not beyond ``bounds``."""
        numbers = [least, most]
        for estimate in filter(None, estimates):
            for part in ("low", "value", "high"):
                if estimate[part] is not None:
                    numbers.append(estimate[part])
        return cls(max(bounds[0], min(numbers)), min(bounds[1], max(numbers)))

    def place(self, value: float) -> str:
        """Return the position of a value as a percentage of the cell's width."""
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return f"{100 * (ROOM + (1 - 2 * ROOM) * min(1.0, max(0.0, share))):.2f}%"

    def width(self, low: float, high: float) -> str:
        """Return the width of an interval as a percentage of the cell's width."""
        span = (self.high - self.low) or 1.0
        start = min(1.0, max(0.0, (low - self.low) / span))
        end = min(1.0, max(0.0, (high - self.low) / span))
        return f"{100 * (1 - 2 * ROOM) * (end - start):.2f}%"


def compute_heat_levels(texts: Sequence[Row]) -> dict[float, int]:
    """Return the heat level of every token score, 0 (lowest) to 4. Each level contains a fifth of the shown tokens."""
    scores: list[float] = []
    for text in texts:
        for token in text["tokens"]:
            if token["score"] is not None:
                scores.append(token["score"])
    levels: dict[float, int] = {}
    for rank, score in enumerate(sorted(scores)):
        levels.setdefault(score, rank * HEAT_LEVELS // len(scores))
    return levels


def select_cells(rows: Sequence[Row], down: str, value: object, across: str, column: object) -> list[Row]:
    """Select the rows of one cell of a cross table.

    Its rows have ``value`` in the column named ``down``, and ``column`` in the column named ``across``.
    """
    return [row for row in rows if (row[down], row[across]) == (value, column)]


def spell_out(name: str, labels: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the label of an identifier, or the identifier with blanks in place of underscores."""
    return labels.get(name, name.replace("_", " "))
