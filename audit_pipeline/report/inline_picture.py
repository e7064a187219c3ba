"""An ROC curve that is small enough for a metadata row of the Dagster UI.

The UI shows Markdown of fewer than 1,000 characters inline, and a link for longer Markdown. Therefore this picture is
written as SVG with few points. The curves of all detectors are a PNG (plots.py).
"""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from audit_pipeline.report.number_format import format_interval, format_number
from audit_pipeline.report.plots import PALETTE, clean_label

MAX_MARKDOWN_CHARACTERS = 1000
"""The Dagster UI shows a link in place of Markdown with this number of characters or more."""
_SIDE = 110
"""Side of the curve's square, in pixels."""
_WIDTH = 300
"""Width of the picture, in pixels. Wider pictures are cut in a window of 1,280 pixels."""
_POINTS = 28
_INK = "#757575"
"""Colour that is legible on the white and on the black background of the UI."""

Floats = npt.NDArray[np.float64]


def draw_inline_roc(
    detector: str, fpr: Floats, tpr: Floats, auroc: Sequence[float | None], blind: float | None
) -> str | None:
    """Return the ROC curve of one detector with its AUROC as a Markdown image, or None if it is too long for the UI.

    Args:
        detector: The detector.
        fpr: False-positive rates of the curve, ascending, of shape (n_points,).
        tpr: True-positive rates of the same points.
        auroc: The area and both ends of its interval. Both ends are None if there is no interval.
        blind: AUROC of the blind control, or None if it was not computed.
    """
    value, *ends = auroc
    lines = [f"AUROC {format_number(value)} {format_interval(ends)}", "0.5 is chance (dashed)"]
    if blind is not None:
        lines.append(f"words alone {format_number(blind)}")
    texts = ""
    for number, line in enumerate([clean_label(detector), *lines]):
        texts += f'<text x="{_SIDE + 12}" y="{20 + 22 * number}">{html.escape(line)}</text>'
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_SIDE}" font-size="12" fill="{_INK}"'
        ' font-family="sans-serif">'
        f'<g fill="none" stroke="#888"><path d="M0 0V{_SIDE}H{_SIDE}"/>'
        f'<path stroke-dasharray="3" d="M0 {_SIDE}L{_SIDE} 0"/>'
        f'<path stroke="{PALETTE[0]}" stroke-width="2" d="{_trace_path(fpr, tpr)}"/></g>{texts}</svg>'
    )
    markdown = f"![ROC curve](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"
    if len(markdown) >= MAX_MARKDOWN_CHARACTERS:
        return None
    return markdown


def _trace_path(fpr: Floats, tpr: Floats) -> str:
    """Return the curve as an SVG path through points at equal steps along it, in whole pixels."""
    # Steps along one axis would miss stretches of the curve that are vertical or horizontal.
    travelled = fpr + tpr
    steps = np.linspace(0.0, 2.0, _POINTS)
    across = np.interp(steps, travelled, fpr)
    up = np.interp(steps, travelled, tpr)
    points = zip(np.rint(across * _SIDE).astype(int), np.rint((1 - up) * _SIDE).astype(int), strict=True)
    return "M" + "L".join(f"{x} {y}" for x, y in points)
