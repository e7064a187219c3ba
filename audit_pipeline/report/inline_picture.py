"""Pictures so small that the Dagster UI shows them in place: it hides Markdown of a thousand characters behind a link.

What belongs here: an interval on an axis and a count, drawn by hand in SVG. What does not: all other pictures, which
matplotlib draws (drawing.py), and those of the report's first screen (templates/).
"""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence

from audit_pipeline.report.drawing import PALETTE
from audit_pipeline.report.number_format import count, number
from audit_pipeline.report.vocabulary import Estimate

IN_PLACE = 1000
"""Characters from which on the Dagster UI shows a link in the place of Markdown."""
WIDTH = 300
"""Pixels: wider ones are cut on the page of a partition in a window of 1280 pixels."""
_LEFT, _RIGHT, _ROW = 96, 250, 26
_LOW, _HIGH = 0.3, 1.0
_INK = "#757575"
"""Read on white and on black: the UI has both, and a picture does not know which."""


def draw_auroc_axis_markdown(rows: Sequence[tuple[str, Estimate]]) -> str:
    """AUROCs with their intervals on one axis, chance marked, as a Markdown image; a row each, two at most."""
    drawn = "".join(_draw_row(place, name, auroc) for place, (name, auroc) in enumerate(rows))
    bottom = _ROW * len(rows)
    chance, perfect = _scale_to_x(0.5), _scale_to_x(1.0)
    axis = (
        f'<path d="M{chance} 0V{bottom}" stroke="#888" stroke-dasharray="3"/>'
        f'<text x="{chance - 38}" y="{bottom + 14}">0.5 chance</text><text x="{perfect}" y="{bottom + 14}">1</text>'
    )
    values = "; ".join(f"{name} {number(auroc.value)}" for name, auroc in rows)
    return _build_markdown_image(f"AUROC: {values}; chance 0.5", bottom + 20, axis + drawn)


def draw_share_bar_markdown(name: str, hits: int, total: int) -> str:
    """How many of how many, as a bar and below it in words, as a Markdown image."""
    width = round(WIDTH * hits / total) if total else 0
    words = f"{count(hits)} of {count(total)} {name}"
    bar = f'<path d="M0 5h{WIDTH}v12h-{WIDTH}z" fill="#ddd"/><path d="M0 5h{width}v12h-{width}z" fill="{PALETTE[0]}"/>'
    return _build_markdown_image(words, 40, f'{bar}<text y="33">{html.escape(words)}</text>')


def _draw_row(place: int, name: str, auroc: Estimate) -> str:
    middle = _ROW * place + 13
    colour = "#888" if place else PALETTE[0]
    reach = ""
    if auroc.low is not None and auroc.high is not None:
        low, high = _scale_to_x(auroc.low), _scale_to_x(auroc.high)
        reach = f'<path d="M{low} {middle}H{high}" stroke="{colour}" stroke-width="5" opacity=".4"/>'
    dot = f'<circle cx="{_scale_to_x(auroc.value or 0.0)}" cy="{middle}" r="5" fill="{colour}"/>'
    value = f'<text x="{_RIGHT + 14}" y="{middle + 4}">{number(auroc.value)}</text>'
    return f'<text y="{middle + 4}">{html.escape(name)}</text>{reach}{dot}{value}'


def _scale_to_x(auroc: float) -> int:
    share = (min(_HIGH, max(_LOW, auroc)) - _LOW) / (_HIGH - _LOW)
    return round(_LEFT + share * (_RIGHT - _LEFT))


def _build_markdown_image(words: str, height: int, drawn: str) -> str:
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-size="12" fill="{_INK}"'
        f' font-family="sans-serif">{drawn}</svg>'
    )
    return f"![{words}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"
