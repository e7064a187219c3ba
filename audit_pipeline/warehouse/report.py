"""The HTML report: one file that loads nothing, for people who read findings and do not write SQL.

What belongs here: turning the report's data into pictures, words and HTML. What does not: reading the warehouse
(report_data.py), drawing (plots.py), the layout (report.html.j2), the meaning of levels and verdicts
(evaluation/claims.py).

Audited texts and the names of models and benchmarks are untrusted: Jinja2 escapes everything, and only the pictures,
whose own text matplotlib has escaped, are put in as they are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from importlib import resources
from pathlib import Path

import jinja2
from markupsafe import Markup

from audit_pipeline.evaluation.claims import CLAIM_IN_WORDS, VERDICT_IN_WORDS
from audit_pipeline.evaluation.metrics import roc_points
from audit_pipeline.tables import write_atomically
from audit_pipeline.warehouse.plots import (
    Interval,
    RocCurve,
    ScorePanel,
    as_svg,
    auroc_forest,
    roc_curves,
    score_histograms,
    study_panels,
)
from audit_pipeline.warehouse.query import open_read_only
from audit_pipeline.warehouse.report_coverage import STATUS_IN_WORDS
from audit_pipeline.warehouse.report_data import PairData, ReportData, read_report_data
from audit_pipeline.warehouse.study_plots import panels_of

FIRST_COMMAND = "corpus-audit audit --model smollm2-135m --benchmark release_notes"
TEMPLATE = "report.html.j2"


@dataclass(frozen=True)
class ReportSummary:
    """What a written report is of, shown or left out; ``findings``: one a model, benchmark and detector."""

    path: Path
    models: int
    benchmarks: int
    pairs: int
    findings: int
    lineage_entries: int
    lineage_gaps: int
    bytes: int


@dataclass(frozen=True)
class Pictures:
    """The pictures of one model on one benchmark; None where there is nothing to draw."""

    forest: Markup | None
    roc: Markup | None
    histograms: Markup | None


def build_report(warehouse: Path, out: Path, *, include_text: bool = True) -> ReportSummary:
    """Write the report of a warehouse; ``include_text=False`` leaves excerpts of the audited texts out.

    Raises DataError where the warehouse is missing or unreadable.
    """
    with open_read_only(warehouse) as connection:
        data = read_report_data(connection)
    page = render(data, include_text=include_text, written_at=datetime.now(UTC)).encode()
    write_atomically(out, lambda temporary: temporary.write_bytes(page))
    totals = data.totals
    return ReportSummary(
        path=out,
        models=totals.models,
        benchmarks=totals.benchmarks,
        pairs=totals.pairs,
        findings=totals.findings,
        lineage_entries=totals.lineage,
        lineage_gaps=totals.gaps,
        bytes=len(page),
    )


def render(data: ReportData, *, include_text: bool, written_at: datetime) -> str:
    """The page as HTML."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        claim_words=claim_words,
        count=count,
        day=day,
        interval=interval,
        moment=moment,
        number=number,
        percent=percent,
        score=score,
        setting=setting,
        side=side,
        signed=signed,
        verdict_words=verdict_words,
    )
    template = resources.files(__package__).joinpath(TEMPLATE).read_text(encoding="utf-8")
    return environment.from_string(template).render(
        data=data,
        pictures={pair.number: pictures(pair) for pair in data.pairs},
        study_pictures=study_pictures(data),
        numbers={(pair.model, pair.benchmark): pair.number for pair in data.pairs},
        status_words=STATUS_IN_WORDS,
        include_text=include_text,
        written_at=written_at,
        first_command=FIRST_COMMAND,
    )


def study_pictures(data: ReportData) -> dict[str, Markup]:
    """A picture for each study of a control."""
    return {
        name: Markup(as_svg(study_panels(panels_of(results)), f"AUROC over the settings that the study {name} varied"))  # noqa: S704
        for name, results in data.studies.items()
    }


def pictures(pair: PairData) -> Pictures:
    """The pictures of one model on one benchmark, at the detectors' default parameters."""
    what = f"{pair.model} on {pair.benchmark}"
    if not pair.headline:
        return Pictures(None, None, None)
    names = [f"{row['detector']} {setting(row['parameters'])}".strip() for row in pair.headline]
    intervals = [
        Interval(name, row["auroc"], row["auroc_low"], row["auroc_high"])
        for name, row in zip(names, pair.headline, strict=True)
    ]
    blind = (
        Interval("blind control", pair.blind["value"], pair.blind["ci_low"], pair.blind["ci_high"])
        if pair.blind
        else None
    )
    # By name, not by result: a detector keeps its colour from one model to the next.
    both_sides = sorted(
        (
            (name, row["auroc"], scores)
            for name, row, scores in zip(names, pair.headline, pair.scores, strict=True)
            if scores.members.size and scores.nonmembers.size
        ),
        key=lambda drawn: drawn[0],
    )
    curves = [
        RocCurve(name, points.fpr, points.tpr, auroc)
        for name, auroc, scores in both_sides
        for points in [roc_points(scores.scores, scores.labels)]
    ]
    panels = [ScorePanel(name, scores.members, scores.nonmembers) for name, _, scores in both_sides]
    return Pictures(
        forest=_markup(as_svg(auroc_forest(intervals, blind=blind), f"AUROC of every detector with intervals: {what}")),
        roc=_markup(as_svg(roc_curves(curves), f"ROC curves: {what}")) if curves else None,
        histograms=_markup(as_svg(score_histograms(panels), f"Score histograms: {what}")) if panels else None,
    )


def claim_words(level: str) -> str:
    """What a claim level allows to say, in plain sentences; the level itself where an older run wrote another one."""
    return next((words for name, words in CLAIM_IN_WORDS.items() if name == level), level)


def verdict_words(verdict: str) -> str:
    """What a split verdict means, in plain sentences; the verdict itself where an older run wrote another one."""
    return next((words for name, words in VERDICT_IN_WORDS.items() if name == verdict), verdict)


def number(value: float | None) -> str:
    """A metric with three decimals; a dash where it is not defined."""
    return "–" if value is None or math.isnan(value) else f"{value:.3f}"


def percent(value: float | None) -> str:
    """A rate in percent with one decimal; a dash where it is not defined."""
    return "–" if value is None or math.isnan(value) else f"{100 * value:.1f}%"


def score(value: float) -> str:
    """A score with four significant digits: detectors differ in scale."""
    return f"{value:.4g}".replace("-", "\u2212")


def signed(value: float | None) -> str:
    """A difference with its sign; a dash where it is not defined."""
    return "–" if value is None or math.isnan(value) else f"{value:+.3f}".replace("-", "\u2212")


def interval(ends: Sequence[float | None], rate: bool = False) -> str:
    """Both ends of an interval in brackets, a rate in percent; nothing where one is not known."""
    low, high = ends
    if low is None or high is None:
        return ""
    return f"[{100 * low:.1f}, {100 * high:.1f}]" if rate else f"[{low:.3f}, {high:.3f}]"


def setting(parameters: str) -> str:
    """A detector's parameters in words: ``{"k":0.2}`` as ``k=0.2``."""
    return ", ".join(f"{name}={value}" for name, value in sorted(json.loads(parameters).items()))


def day(value: date | datetime | None) -> str:
    """A date as YYYY-MM-DD; 'unknown' where there is none."""
    return "unknown" if value is None else f"{value:%Y-%m-%d}"


def moment(value: datetime | None) -> str:
    """A time in UTC to the second; 'unknown' where there is none."""
    return "unknown" if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def side(label: int | None) -> str:
    """A label in words."""
    return {1: "member", 0: "non-member"}.get(label, "unknown") if label is not None else "unknown"


def count(value: int | None) -> str:
    """A number of things with thin spaces between thousands; a dash where it is not known."""
    return "–" if value is None else f"{value:,}".replace(",", "\u202f")


def _markup(svg: str) -> Markup:
    return Markup(svg)  # noqa: S704 - made by plots.py, which escapes every text that it is given
