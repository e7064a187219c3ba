"""Unseen text of a PDF page: text in the colour of its background, on a hidden layer, or painted over.

The page is drawn with and without its text. If the area of a text looks the same both times, the text is unseen. This
detects text that is unseen for any reason: its colour, a layer, clipping or transparency. Two kinds of text are not
removed: invisible text (render mode 3) and text below a picture. Both kinds are usually the text layer of a scan.
"""

from __future__ import annotations

import ctypes
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

_Colour: TypeAlias = tuple[int, int, int]
_Box: TypeAlias = tuple[float, float, float, float]
"""Left, bottom, right and top in units of the page (points)."""

_MAX_PIXELS = 2_000
_MIN_SCALE = 0.5
_MAX_GROUPS = 8
_MAX_AREAS = 200
# Two pixels that differ by at most 10 of 255 levels (4%) in each colour look the same.
_UNSEEN_DIFFERENCE = 10
# Text that differs from its background by at least this value in red, green or blue (0 to 255) is visible.
# It is not examined.
_CLEAR_DIFFERENCE = 60
_NEARLY_OPAQUE = 200
_PAPER = (255, 255, 255)
_TINY_POINTS = 1.0
_LAYER = "OC"
_AREAS = (
    pdfium_c.FPDF_PAGEOBJ_PATH,
    pdfium_c.FPDF_PAGEOBJ_IMAGE,
    pdfium_c.FPDF_PAGEOBJ_SHADING,
)


@dataclass
class _Text:
    """A text object of a page.

    Attributes:
        raw: PDFium's object.
        order: Position in the order of drawing. Later objects cover earlier objects.
        layers: Names of its layers.
        form: The memory address of the outermost form (a group of objects) that contains it, or None.
        bounds: Its box, or the box of that form.
        colour: Red, green and blue from 0 to 255, or None if it is unknown.
        box: The box of its letters, or None if it has only blanks.
    """

    raw: pdfium_c.FPDF_PAGEOBJECT
    order: int
    layers: tuple[str, ...]
    form: int | None
    bounds: _Box
    colour: _Colour | None
    box: _Box | None = None

    @property
    def group(self) -> Hashable:
        """Return the group of texts that are hidden together: those with the same layers, form and colour."""
        return self.layers, self.form, self.colour


class _Area(NamedTuple):
    """An object that may cover text or be its background: a filled path, a picture or a shading.

    Attributes:
        order: Position in the order of drawing.
        bounds: Its box, or the box of the outermost form that contains it.
        is_picture: True for a picture.
        colour: Red, green and blue from 0 to 255, or None if it is unknown.
    """

    order: int
    bounds: _Box
    is_picture: bool
    colour: _Colour | None


def remove_unseen_text(page: pdfium.PdfPage) -> bool:
    """Remove unseen text from the page in memory. Return True if there is any.

    Most pages are dark text on white paper, and drawing a page takes longer than reading it. So only suspect text is
    examined: tiny, clipped, on a layer, in a form, covered, or close to the colour of its background.
    """
    texts: list[_Text] = []
    areas: list[_Area] = []
    for order, item in enumerate(page.get_objects()):
        if _is_drawn_text(item):
            texts.append(_build_text(item, order))
        area = _find_area(item, order)
        if area is not None:
            areas.append(area)
    suspects = {_get_address(text.raw): text for text in texts if _is_suspect(text, areas)}
    if not suspects:
        return False
    _set_boxes(page, suspects)
    unseen = []
    for text in _find_unseen(page, list(suspects.values())):
        if not _is_below_picture(text, areas):
            unseen.append(text)
    _set_active(unseen, is_active=False)
    return bool(unseen)


def _get_address(raw: pdfium_c.FPDF_PAGEOBJECT) -> int:
    return ctypes.cast(raw, ctypes.c_void_p).value or 0


def _is_drawn_text(item: pdfium.PdfObject) -> bool:
    """Return True for text that is drawn. Invisible text and text that is only a clipping path are not."""
    if item.type != pdfium_c.FPDF_PAGEOBJ_TEXT:
        return False
    mode = pdfium_c.FPDFTextObj_GetTextRenderMode(item.raw)
    return mode not in (pdfium_c.FPDF_TEXTRENDERMODE_INVISIBLE, pdfium_c.FPDF_TEXTRENDERMODE_CLIP)


def _build_text(item: pdfium.PdfObject, order: int) -> _Text:
    holders = _list_holders(item)
    layers = tuple(layer for layer in map(_find_layer, holders) if layer is not None)
    form = None
    if len(holders) > 1:
        form = _get_address(holders[-1].raw)
    return _Text(item.raw, order, layers, form, holders[-1].get_bounds(), _find_colour(item))


def _find_area(item: pdfium.PdfObject, order: int) -> _Area | None:
    """Return the area that an object covers, or None for objects without an area, such as text and lines."""
    if item.type not in _AREAS:
        return None
    is_picture = item.type == pdfium_c.FPDF_PAGEOBJ_IMAGE
    colour = None
    if item.type == pdfium_c.FPDF_PAGEOBJ_PATH:
        fill = ctypes.c_int()
        pdfium_c.FPDFPath_GetDrawMode(item.raw, fill, ctypes.c_int())
        if fill.value == pdfium_c.FPDF_FILLMODE_NONE:
            return None
        if item.container is None:
            colour = _find_colour(item)
    return _Area(order, _list_holders(item)[-1].get_bounds(), is_picture, colour)


def _list_holders(item: pdfium.PdfObject) -> list[pdfium.PdfObject]:
    """Return the object and the forms that contain it, from the innermost to the outermost."""
    holders = [item]
    while (container := holders[-1].container) is not None:
        holders.append(container)
    return holders


def _find_layer(item: pdfium.PdfObject) -> str | None:
    """Return the name of an object's layer, or None if it has no layer."""
    for number in range(pdfium_c.FPDFPageObj_CountMarks(item.raw)):
        mark = pdfium_c.FPDFPageObj_GetMark(item.raw, number)
        if _read_string(pdfium_c.FPDFPageObjMark_GetName, mark) == _LAYER:
            return _read_string(pdfium_c.FPDFPageObjMark_GetParamStringValue, mark, b"Name")
    return None


def _read_string(function: object, *arguments: object) -> str:
    size = ctypes.c_ulong()
    if not function(*arguments, None, 0, size):  # type: ignore[operator]
        return ""
    buffer = (ctypes.c_ushort * (size.value // 2))()
    function(*arguments, buffer, size.value, size)  # type: ignore[operator]
    return bytes(buffer).decode("utf-16-le", "replace").rstrip("\0")


def _find_colour(item: pdfium.PdfObject) -> _Colour | None:
    """Return the fill colour of an object, or None for patterns, transparency and outlined letters."""
    parts = [ctypes.c_uint() for _ in range(4)]
    is_text = item.type == pdfium_c.FPDF_PAGEOBJ_TEXT
    if is_text and pdfium_c.FPDFTextObj_GetTextRenderMode(item.raw) != pdfium_c.FPDF_TEXTRENDERMODE_FILL:
        return None
    if pdfium_c.FPDFPageObj_HasTransparency(item.raw):
        return None
    if not pdfium_c.FPDFPageObj_GetFillColor(item.raw, *parts):
        return None
    red, green, blue, alpha = (part.value for part in parts)
    if alpha <= _NEARLY_OPAQUE:
        return None
    return red, green, blue


def _is_suspect(text: _Text, areas: Sequence[_Area]) -> bool:
    """Return True if text may be unseen, so that the page must be drawn to decide."""
    # A form may name its layer in a dictionary that PDFium does not return.
    if text.layers or text.form is not None or _is_tiny(text) or _is_clipped(text) or len(areas) > _MAX_AREAS:
        return True
    centre = _find_centre(text.bounds)
    below: _Area | None = None
    for area in areas:
        if not _contains(area.bounds, *centre):
            continue
        if area.order < text.order:
            # The last area below the text is the uppermost.
            below = area
        elif area.order > text.order and not area.is_picture:
            return True
    background: _Colour | None = _PAPER
    if below is not None:
        background = below.colour
        if not _contains(below.bounds, *text.bounds[:2]) or not _contains(below.bounds, *text.bounds[2:]):
            # The area covers only a part of the text.
            return True
    if text.colour is None or background is None:
        return True
    largest = 0
    for part, other in zip(text.colour, background, strict=True):
        largest = max(largest, abs(part - other))
    return largest < _CLEAR_DIFFERENCE


def _is_tiny(text: _Text) -> bool:
    size = ctypes.c_float()
    matrix = pdfium_c.FS_MATRIX()
    pdfium_c.FPDFTextObj_GetFontSize(text.raw, size)
    pdfium_c.FPDFPageObj_GetMatrix(text.raw, matrix)
    scale = max(abs(matrix.a), abs(matrix.b), abs(matrix.c), abs(matrix.d))
    return bool(size.value * scale <= _TINY_POINTS)


def _is_clipped(text: _Text) -> bool:
    """Return True if a clipping path excludes the whole text."""
    path = pdfium_c.FPDFPageObj_GetClipPath(text.raw)
    x = ctypes.c_float()
    y = ctypes.c_float()
    for number in range(pdfium_c.FPDFClipPath_CountPaths(path) if path else 0):
        points = []
        for segment in range(pdfium_c.FPDFClipPath_CountPathSegments(path, number)):
            pdfium_c.FPDFPathSegment_GetPoint(pdfium_c.FPDFClipPath_GetPathSegment(path, number, segment), x, y)
            points.append((x.value, y.value))
        if not points:
            continue
        columns, rows = zip(*points, strict=True)
        if not _do_boxes_overlap((min(columns), min(rows), max(columns), max(rows)), text.bounds):
            return True
    return False


def _contains(box: _Box, x: float, y: float) -> bool:
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def _find_centre(box: _Box) -> tuple[float, float]:
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def _do_boxes_overlap(box: _Box, other: _Box) -> bool:
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]


def _set_boxes(page: pdfium.PdfPage, texts: dict[int, _Text]) -> None:
    """Set the boxes of text objects from the boxes of their letters.

    PDFium returns the boxes of letters in units of the page, also for letters within forms.
    """
    text_page = page.get_textpage()
    edges = [ctypes.c_double() for _ in range(4)]
    for number in range(text_page.count_chars()):
        raw = pdfium_c.FPDFText_GetTextObject(text_page.raw, number)
        if not raw:
            continue
        text = texts.get(_get_address(raw))
        if text is None or not pdfium_c.FPDFText_GetCharBox(text_page.raw, number, *edges):
            continue
        left, right, bottom, top = (edge.value for edge in edges)
        if right <= left or top <= bottom:
            continue
        box = text.box or (left, bottom, right, top)
        text.box = (min(box[0], left), min(box[1], bottom), max(box[2], right), max(box[3], top))
    text_page.close()


def _find_unseen(page: pdfium.PdfPage, texts: Sequence[_Text]) -> list[_Text]:
    """Return the texts without which the page looks the same, and the texts that are too small to read."""
    scale = min(1.0, _MAX_PIXELS / max(*page.get_size(), 1))
    unseen: list[_Text] = []
    groups: dict[Hashable, list[_Text]] = {}
    for text in texts:
        if text.box is None:
            continue
        if _is_tiny(text):
            unseen.append(text)
            continue
        key = text.group
        if key not in groups and len(groups) >= _MAX_GROUPS:
            # The page is drawn once per group. To limit the drawing, all further texts share the group None.
            key = None
        groups.setdefault(key, []).append(text)
    if not groups or scale < _MIN_SCALE:
        return unseen
    with_all = _draw_page(page, scale)
    for group in groups.values():
        _set_active(group, is_active=False)
        without = _draw_page(page, scale)
        _set_active(group, is_active=True)
        differences = (np.maximum(without, with_all) - np.minimum(without, with_all)).max(axis=2) > _UNSEEN_DIFFERENCE
        counts = np.pad(differences.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
        unseen += [text for text in group if text.box and not _count_differences(page, counts, text.box)]
    return unseen


def _draw_page(page: pdfium.PdfPage, scale: float) -> npt.NDArray[np.uint8]:
    """Return the page as an array of shape (height, width, 3)."""
    bitmap = page.render(scale=scale, may_draw_forms=False, draw_annots=False)
    pixels: npt.NDArray[np.uint8] = bitmap.to_numpy()[:, :, :3].copy()
    bitmap.close()
    return pixels


def _count_differences(page: pdfium.PdfPage, counts: npt.NDArray[np.int_], box: _Box) -> int:
    """Count the differing pixels in a box.

    Args:
        page: The page.
        counts: Two-dimensional cumulative sums of differing pixels, of shape (height + 1, width + 1).
        box: The box, in units of the page.
    """
    height = counts.shape[0] - 1
    width = counts.shape[1] - 1
    x = ctypes.c_int()
    y = ctypes.c_int()
    corners = []
    for left, top in ((box[0], box[1]), (box[2], box[3])):
        pdfium_c.FPDF_PageToDevice(page.raw, 0, 0, width, height, 0, left, top, x, y)
        corners.append((x.value, y.value))
    columns, rows = (sorted(values) for values in zip(*corners, strict=True))
    first_column, last_column = (int(np.clip(edge, 0, width)) for edge in (columns[0] - 1, columns[1] + 2))
    first_row, last_row = (int(np.clip(edge, 0, height)) for edge in (rows[0] - 1, rows[1] + 2))
    within = counts[last_row, last_column] - counts[first_row, last_column]
    return int(within - counts[last_row, first_column] + counts[first_row, first_column])


def _is_below_picture(text: _Text, areas: Sequence[_Area]) -> bool:
    """Return True if a picture is drawn over the text, as in a scan with OCR text."""
    if text.box is None or text.layers:
        return False
    centre = _find_centre(text.box)
    return any(area.is_picture and area.order > text.order and _contains(area.bounds, *centre) for area in areas)


def _set_active(texts: Iterable[_Text], *, is_active: bool) -> None:
    for text in texts:
        pdfium_c.FPDFPageObj_SetIsActive(text.raw, is_active)
