"""The memorisation map: a document as a strip from its first to its last character, shaded by how likely
the model gives each place of it.

What belongs here: from the bins of a document to the shapes of its strip, and what their shades mean. What does not:
which documents are shown and how their windows are binned (sections/25_extraction/), colours (templates/style.css.j2).

A strip is a few rectangles, so it is made without matplotlib, and its colours follow the page's: light, dark, print.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from audit_pipeline.metrics.claims import REPRODUCED_FROM

STRIP_WIDTH, STRIP_HEIGHT = 720, 14
"""Of the picture that holds a strip, in its own units."""
SHADES: Sequence[tuple[float, str]] = (
    (-math.inf, "below 10⁻⁴⁰"),
    (-40.0, "from 10⁻⁴⁰"),
    (-20.0, "from 10⁻²⁰"),
    (-10.0, "from 10⁻¹⁰"),
    (math.log10(REPRODUCED_FROM), f"from {REPRODUCED_FROM}"),
    (math.log10(0.1), "from 0.1"),
    (math.log10(0.5), "from 0.5"),
)
"""From which log10 of a suffix's probability on a shade counts, the lightest first, and that in words."""
SET_APART = "apart"

Row = Mapping[str, Any]


def strip_shapes(row: Row) -> list[tuple[str, str]]:
    """The shapes of a document's strip: a CSS class and an SVG path each; no shape where no window lies.

    ``row``: ``log10_p``, of every bin of its characters the largest of the suffixes that touch it, or None;
    ``set_apart``, the numbers of the bins that a window that is set apart touches.
    """
    apart = set(row["set_apart"])
    classes = [_class(value, number in apart) for number, value in enumerate(row["log10_p"])]
    width = STRIP_WIDTH / max(1, len(classes))
    paths: dict[str, list[str]] = {}
    for name, bins in groupby(range(len(classes)), key=lambda number: classes[number]):
        if name is not None:
            some = list(bins)
            left, wide = some[0] * width, len(some) * width
            paths.setdefault(name, []).append(f"M{left:.5g} 0h{wide:.5g}v{STRIP_HEIGHT}h-{wide:.5g}z")
    return [(name, "".join(parts)) for name, parts in sorted(paths.items())]


def shade(log10_p: float) -> int:
    """The number of a probability's shade, 1 (the lightest) to 7."""
    return sum(log10_p >= least for least, _ in SHADES)


def _class(log10_p: float | None, is_set_apart: bool) -> str | None:
    """A passage that counts is shown before one that is set apart."""
    if is_set_apart and (log10_p is None or log10_p < math.log10(REPRODUCED_FROM)):
        return SET_APART
    return None if log10_p is None else f"m{shade(log10_p)}"
