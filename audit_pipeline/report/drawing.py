"""How every picture looks, and a figure as PNG for Dagster or as SVG for a page.

What belongs here: colours, fonts, labels, and turning figures into bytes. What does not: drawing a picture of its own
kind (plots.py), choosing what to draw (pictures.py). Figures are made without pyplot, whose state is global.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from PIL import Image

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's colours, which differ with every kind of colour blindness, and on white and on black."""

LINE_STYLES = ("-", "--", "-.", ":")
DASHED, DOTTED = (0, (4, 3)), (0, (1, 2))
"""Lines that others are read against: what is aimed at or counts, and chance."""
INK = "#20242b"
QUIET = "#868b94"
LABEL_CHARACTERS = 48
MARKDOWN_LIMIT = 100_000
"""Bytes of base64 that an image in Dagster's metadata may have: it is stored with every materialisation."""

STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "corpus-audit",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": QUIET,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.unicode_minus": True,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}


def to_png(figure: Figure, *, dpi: int = 110) -> bytes:
    """The figure as a PNG on white, in 64 colours: a third of the size, and nothing to be seen of it."""
    drawn, small = io.BytesIO(), io.BytesIO()
    with _without_glyph_warnings():
        figure.savefig(drawn, format="png", dpi=dpi, facecolor="white")
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(64).save(small, format="png", optimize=True)
    return small.getvalue()


def to_svg(figure: Figure, title: str, description: str = "") -> str:
    """The figure as an ``<svg>`` element to put into a page: scales, takes the page's text colour, loads nothing.

    The page may set ``--series-1`` and so on to other colours than PALETTE's.

    ``title`` is what a screen reader says, ``description`` what it says of the content; both are escaped.
    """
    import matplotlib  # noqa: PLC0415 - it is heavy

    buffer = io.StringIO()
    with matplotlib.rc_context(STYLE), _without_glyph_warnings():
        figure.savefig(
            buffer,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*pt"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*pt"', r"\1", svg, count=1)
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), svg)
    svg = _make_ids_unique(svg, title)
    svg = svg.replace(INK, "currentColor")
    for position, colour in enumerate(PALETTE, start=1):
        svg = svg.replace(colour.lower(), f"var(--series-{position}, {colour.lower()})")
    label = html.escape(_remove_control_characters(title))
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    described = f"<desc>{html.escape(_remove_control_characters(description))}</desc>" if description else ""
    return re.sub(
        r"(<svg[^>]*>)", lambda opening: f"{opening[1]}<title>{label}</title>{described}", svg, count=1
    ).strip()


def to_markdown_image(png: bytes, alt: str) -> str:
    """The PNG inside Markdown, for Dagster's metadata; ValueError where it is too large to be stored there."""
    encoded = base64.b64encode(png).decode()
    if len(encoded) > MARKDOWN_LIMIT:
        raise ValueError(f"the image has {len(encoded)} bytes in base64, {MARKDOWN_LIMIT} are allowed: lower its dpi")
    escaped = re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(alt.split()))
    return f"![{escaped}](data:image/png;base64,{encoded})"


def clean_label(label: str) -> str:
    """``label`` on one line of bounded length, no control characters, and no ``$`` that starts a formula."""
    shown = _remove_control_characters(label)
    if len(shown) > LABEL_CHARACTERS:
        shown = shown[: LABEL_CHARACTERS - 1] + "…"
    return shown.replace("$", r"\$")


@contextmanager
def _without_glyph_warnings() -> Iterator[None]:
    """Names in any script: a PNG lacks some letters of the font, a page has the reader's fonts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(Glyph|Matplotlib currently does not support)")
        yield


def _make_ids_unique(svg: str, description: str) -> str:
    """Without the ids that nothing refers to, and the others unlike those of the other pictures on the page."""
    prefix = hashlib.sha256(f"{description}\n{svg}".encode(errors="replace")).hexdigest()[:8]
    referred = set(re.findall(r'(?:href="|url\()#([\w-]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda found: f' id="p{prefix}-{found[1]}"' if found[1] in referred else "", svg)
    return re.sub(r'(href="|url\()#([\w-]+)', rf"\1#p{prefix}-\2", svg)


def _remove_control_characters(text: str) -> str:
    """``text`` on one line, without control characters, lone surrogates and the like, which XML cannot hold."""
    return " ".join("".join(" " if unicodedata.category(letter)[0] == "C" else letter for letter in text).split())
