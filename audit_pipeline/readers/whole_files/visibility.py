"""Styles of a web page or chapter: text that no reader sees, and text with preserved line breaks.

The styles are those for a screen of 1280 by 800 pixels, without scripts and without the network. Rules are applied in
the order of the CSS cascade: importance, specificity, position. docs/input-files.md lists the kinds of unseen text.

style_sheets.py parses the rules. The cascade is written here, because no library computes it without a browser.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from bs4 import BeautifulSoup, Tag
from tinycss2 import color4

from audit_pipeline.readers.whole_files import style_sheets

StyleSheetReader: TypeAlias = Callable[[str], str | None]
"""A function that returns the text of a style sheet by its address in the page, or None if it is missing."""

# These elements count as visible even if styles hide them, because a script usually shows them later.
_ROOTS = frozenset(("html", "body"))
_NEVER_SHOWN = frozenset(("noscript", "template"))
_LINES_TAGS = frozenset(("pre", "textarea", "listing", "xmp", "plaintext"))
_LINES_VALUES = {"pre": "pre", "pre-wrap": "pre", "break-spaces": "pre", "pre-line": "pre-line"}

_LENGTH = re.compile(r"(-?(?:\d+\.?\d*|\.\d+))\s*(px|pt|em|rem|ex|ch|cm|mm|in|%|vw|vh)?\Z")
_FAR_AWAY = {"px": -900, "pt": -700, "em": -60, "rem": -60, "ex": -120, "ch": -120, "%": -100, "vw": -100, "vh": -100}
_CLIPPED = re.compile(
    r"rect\(\s*(?:0|1px)(?:px)?[\s,]+(?:0|1px)(?:px)?[\s,]+(?:0|1px)(?:px)?[\s,]+(?:0|1px)(?:px)?\s*\)"
    r"|inset\(\s*(?:50|[5-9]\d|100)%\s*\)|circle\(\s*0(?:px|%)?\s*\)"
)
_TINY_PIXELS = 1
# The maximum size of an element that has no room for text, by unit. The maximum for other units is 0.
_UNIT_SIZES = {"px": 1, "pt": 0.75}
# A font size has a unit or is 0. A font weight has no unit and is not 0.
_FONT_SIZE = re.compile(r"(?:^|\s)(0|(?:\d+\.?\d*|\.\d+)(?:px|pt|em|rem|ex|ch|cm|mm|in|%|vw|vh))(?=[\s/])")
_SAME_COLOUR = 0.04
_FAINT = 0.02
_INLINE = (1_000, 0, 0)
_MAX_IMPORTS = 20

_Weight: TypeAlias = tuple[bool, tuple[int, int, int], int]


@dataclass(frozen=True)
class Styles:
    """The effect of styles on the text of each element. Elements are identified by id().

    Attributes:
        unseen: Elements whose own text is not visible. The text of child elements may be visible.
        lines: Elements whose text preserves line breaks, with the value of white-space.
    """

    unseen: frozenset[int]
    lines: Mapping[int, str]


def find_styles(page: BeautifulSoup | Tag, read_style_sheet: StyleSheetReader) -> Styles:
    """Find the elements of a page whose text no reader sees, and the elements that preserve line breaks."""
    cascade = _Cascade(page, read_style_sheet)
    states: dict[int, _State] = {}
    unseen: set[int] = set()
    lines: dict[int, str] = {}
    root = _State(background=None if cascade.misses_sheets else (1.0, 1.0, 1.0))
    for element in [page, *page.find_all(True)]:
        state = states.get(id(element.parent), root)
        if not isinstance(element, BeautifulSoup):
            state = cascade.derive(element, state)
        states[id(element)] = state
        if state.is_unseen:
            unseen.add(id(element))
        if state.white_space:
            lines[id(element)] = state.white_space
    return Styles(frozenset(unseen), lines)


_Colour: TypeAlias = tuple[float, float, float]


@dataclass(frozen=True)
class _State:
    """The style state that children inherit from an element.

    Attributes:
        is_removed: The element takes no part in the page, for example by ``display: none``.
        is_invisible: The element is hidden by ``visibility``.
        is_tiny: The font has at most one pixel.
        is_far_away: The text is indented far out of the page.
        is_transparent: The colour of the text is transparent.
        colour: Red, green and blue of the text from 0 to 1, or None if the colour is not set.
        background: Red, green and blue of the background from 0 to 1. None if it is a picture or is unknown.
        white_space: The value of white-space if line breaks are preserved, or "".
    """

    is_removed: bool = False
    is_invisible: bool = False
    is_tiny: bool = False
    is_far_away: bool = False
    is_transparent: bool = False
    colour: _Colour | None = None
    background: _Colour | None = None
    white_space: str = ""

    @property
    def is_unseen(self) -> bool:
        """Return True if no reader sees the text of the element."""
        if self.is_removed or self.is_invisible or self.is_tiny or self.is_far_away or self.is_transparent:
            return True
        if self.colour is None or self.background is None:
            return False
        return _are_similar(self.colour, self.background)


@dataclass
class _Cascade:
    """The declarations that apply to each element of a page.

    Attributes:
        page: The parsed page.
        read_style_sheet: Returns the text of a linked style sheet.
        misses_sheets: True if a linked style sheet is missing.
    """

    page: BeautifulSoup | Tag
    read_style_sheet: StyleSheetReader
    misses_sheets: bool = False
    _by_element: dict[int, dict[str, tuple[_Weight, str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rules: list[style_sheets.Rule] = []
        for sheet in self._collect_sheets():
            rules += style_sheets.parse_sheet(sheet)
        index = style_sheets.ElementIndex(self.page)
        for order, rule in enumerate(rules):
            for element in index.select(rule):
                self._store_declarations(element, rule.declarations, rule.specificity, order)
        for element in self.page.find_all(style=True):
            self._store_declarations(
                element, style_sheets.parse_style_attribute(str(element["style"])), _INLINE, len(rules)
            )

    def _collect_sheets(self) -> Iterator[str]:
        """Yield the texts of the page's style sheets in their order. Imported sheets precede their importer."""
        for element in self.page.find_all(["style", "link"]):
            if element.find_parent(_NEVER_SHOWN) is not None or not style_sheets.applies_to_screen(
                str(element.get("media") or "")
            ):
                continue
            if element.name == "style":
                sheet: str | None = element.string or element.get_text()
            else:
                relations = str(element.get_attribute_list("rel")).lower()
                if "stylesheet" not in relations or "alternate" in relations or element.has_attr("disabled"):
                    continue
                sheet = self._read(str(element.get("href") or ""))
            if sheet is not None:
                yield from self._resolve_imports(sheet)

    def _read(self, address: str) -> str | None:
        sheet = self.read_style_sheet(address)
        self.misses_sheets |= sheet is None
        return sheet

    def _resolve_imports(self, sheet: str) -> Iterator[str]:
        seen: set[str] = set()
        pending = [sheet]
        sheets = [sheet]
        while pending and len(seen) < _MAX_IMPORTS:
            for address in style_sheets.find_imports(pending.pop()):
                if address in seen:
                    continue
                seen.add(address)
                imported = self._read(address)
                if imported is not None:
                    pending.append(imported)
                    sheets.insert(0, imported)
        yield from sheets

    def _store_declarations(
        self,
        element: Tag,
        declarations: Iterable[tuple[str, str, bool]],
        specificity: tuple[int, int, int],
        order: int,
    ) -> None:
        declared = self._by_element.setdefault(id(element), {})
        for name, value, is_important in declarations:
            weight = (is_important, specificity, order)
            if name not in declared or weight >= declared[name][0]:
                declared[name] = weight, value

    def derive(self, element: Tag, parent: _State) -> _State:
        """Derive the state of an element from the state of its parent and from its declarations."""
        declared = self._by_element.get(id(element), {})
        values = _read_attributes(element)
        if element.name not in _LINES_TAGS and not declared and not values:
            return parent
        for name, (_, value) in declared.items():
            values[name] = value
        is_root = element.name in _ROOTS
        background = _find_background(values, parent.background)
        colour, is_transparent = _find_colour(values, parent)
        return _State(
            is_removed=parent.is_removed or (not is_root and _is_removed(values)),
            is_invisible=_is_invisible(values, parent.is_invisible, is_root=is_root),
            is_tiny=_is_tiny(values.get("font-size") or _find_font_size(values), parent.is_tiny),
            is_far_away=_is_far_away(values, parent.is_far_away),
            is_transparent=is_transparent,
            colour=colour,
            background=background,
            white_space=_find_white_space(element.name, values, parent.white_space),
        )


def _read_attributes(element: Tag) -> dict[str, str]:
    """Return the CSS properties that follow from an element's attributes and from browsers' own style sheets."""
    values: dict[str, str] = {}
    if element.has_attr("hidden") or element.has_attr("popover") or element.name in _NEVER_SHOWN:
        values["display"] = "none"
    if element.name == "dialog" and not element.has_attr("open"):
        values["display"] = "none"
    if element.name == "font" and element.has_attr("color"):
        values["color"] = str(element["color"])
    if element.name == "body" and element.has_attr("text"):
        values["color"] = str(element["text"])
    if element.has_attr("bgcolor"):
        values["background-color"] = str(element["bgcolor"])
    if element.has_attr("background"):
        values["background-image"] = "url"
    return values


def _is_removed(values: Mapping[str, str]) -> bool:
    if values.get("display") == "none" or values.get("content-visibility") == "hidden":
        return True
    opacity = _LENGTH.match(values.get("opacity", ""))
    # An element with a transition or an animation may appear later, so it counts as visible.
    effects = map(values.get, ("transition", "animation", "animation-name"))
    is_faded_in = not {"none", None}.issuperset(effects)
    if opacity and float(opacity[1]) <= _FAINT and not is_faded_in:
        return True
    if not is_faded_in and _has_no_room(values):
        return True
    is_placed = values.get("position") in ("absolute", "fixed")
    if is_placed and any(map(_is_length_far_away, map(values.get, ("left", "top", "right", "bottom")))):
        return True
    is_clipped = is_placed and _CLIPPED.match(values.get("clip", ""))
    return bool(is_clipped or _CLIPPED.match(values.get("clip-path", "")))


def _has_no_room(values: Mapping[str, str]) -> bool:
    """Return True if an element is at most one pixel wide or high, and hides its overflow."""
    overflows = (values.get("overflow") or "visible").split()
    for axis, size, sides, overflow in (
        ("x", "width", ("padding-left", "padding-right"), overflows[0]),
        ("y", "height", ("padding-top", "padding-bottom"), overflows[-1]),
    ):
        if values.get(f"overflow-{axis}", overflow) not in ("hidden", "clip"):
            continue
        # A box without height is as high as its padding, and flexible boxes grow.
        enlarging = ("padding", *sides, f"min-{size}", "flex", "flex-grow")
        if any(values.get(name, "0") not in ("0", "0px", "none") for name in enlarging):
            continue
        for name in (size, f"max-{size}"):
            length = _LENGTH.match(values.get(name, ""))
            if length and float(length[1]) <= _UNIT_SIZES.get(length[2] or "px", 0):
                return True
    return False


def _find_font_size(values: Mapping[str, str]) -> str | None:
    """Return the size in the value of "font", which precedes a slash or the name of the family."""
    size = _FONT_SIZE.search(values.get("font", ""))
    if size is None:
        return None
    return size[1]


def _is_invisible(values: Mapping[str, str], inherited: bool, *, is_root: bool) -> bool:
    value = values.get("visibility")
    if value in (None, "inherit", "unset") or is_root:
        return inherited
    return value in ("hidden", "collapse")


def _is_tiny(size: str | None, inherited: bool) -> bool:
    length = _LENGTH.match(size or "")
    if size is None or size in ("inherit", "unset"):
        return inherited
    if length is None:
        return inherited and size in ("smaller", "larger")
    pixels = float(length[1])
    if length[2] in ("em", "%", "ex", "ch"):
        return inherited or pixels <= 0
    if length[2] == "rem":
        pixels *= style_sheets.PIXELS_PER_EM
    return pixels <= _TINY_PIXELS


def _is_far_away(values: Mapping[str, str], inherited: bool) -> bool:
    indent = values.get("text-indent")
    if indent in (None, "inherit", "unset"):
        return inherited
    return _is_length_far_away(indent)


def _is_length_far_away(value: str | None) -> bool:
    length = _LENGTH.match(value or "")
    return length is not None and float(length[1]) <= _FAR_AWAY.get(length[2] or "px", -1_000)


def _find_colour(values: Mapping[str, str], parent: _State) -> tuple[_Colour | None, bool]:
    """Return the colour of the text (None if it is unknown), and True if it is transparent.

    Letters that are filled with a background (``background-clip: text``) count as visible.
    """
    value = values.get("color")
    if value is None or value in ("inherit", "unset", "currentcolor"):
        return parent.colour, parent.is_transparent
    parsed = _parse_colour(value)
    if parsed is None or "text" in (values.get("background-clip"), values.get("-webkit-background-clip")):
        return None, False
    colour, alpha = parsed
    return colour, alpha <= _FAINT


def _find_background(values: Mapping[str, str], inherited: _Colour | None) -> _Colour | None:
    if values.get("background-image", "none") not in ("none", "initial"):
        return None
    background = inherited
    for name in ("background", "background-color"):
        for word in _split_words(values.get(name, "")):
            parsed = _parse_colour(word)
            if parsed is not None and parsed[1] > _FAINT:
                background = parsed[0] if parsed[1] == 1 else None
            elif "(" in word and parsed is None:
                # The value is a picture, a gradient or a variable.
                return None
    return background


def _split_words(value: str) -> list[str]:
    """Split a value at blanks outside parentheses."""
    return re.findall(r"(?:[^\s(),]|\((?:[^()]|\([^()]*\))*\))+", value)


@lru_cache(maxsize=4096)
def _parse_colour(value: str) -> tuple[_Colour, float] | None:
    parsed = color4.parse_color(value)
    if not isinstance(parsed, color4.Color):
        return None
    try:
        red, green, blue = (float(part or 0) for part in parsed.to("srgb").coordinates)
    except (NotImplementedError, ValueError):
        return None
    return (red, green, blue), float(parsed.alpha)


def _are_similar(one: _Colour, other: _Colour) -> bool:
    return all(abs(first - second) <= _SAME_COLOUR for first, second in zip(one, other, strict=True))


def _find_white_space(name: str, values: Mapping[str, str], inherited: str) -> str:
    value = values.get("white-space")
    if value in ("inherit", "unset") or (value is None and name not in _LINES_TAGS):
        return inherited
    if not value:
        return "pre"
    return _LINES_VALUES.get(value.split()[0], "")
