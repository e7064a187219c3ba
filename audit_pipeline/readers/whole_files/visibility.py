"""Text of a web page or chapter that nobody sees, and text whose lines are kept, as HTML and CSS say.

The page is taken as its bytes are, on a screen of 1280 by 800 pixels, without scripts and without the network. Rules
are applied in the cascade's order: importance, specificity, place. docs/input-files.md says what counts as unseen.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import soupsieve
import tinycss2
from bs4 import BeautifulSoup, Tag
from tinycss2 import color4

StyleSheetReader: TypeAlias = Callable[[str], str | None]
"""Returns the text of a style sheet by the address that the page gives, or None if it is not at hand."""

_PROPERTY_NAMES = """
display visibility content-visibility opacity font font-size
overflow overflow-x overflow-y width height max-width max-height min-width min-height
padding padding-top padding-right padding-bottom padding-left flex flex-grow
color background background-color background-image background-clip -webkit-background-clip
position left right top bottom text-indent clip clip-path white-space transition animation animation-name
"""
_PROPERTIES = frozenset(_PROPERTY_NAMES.split())
# A page whose root is hidden is shown by its script: no page is written for nobody.
_ROOTS = frozenset(("html", "body"))
_NEVER_SHOWN = frozenset(("noscript", "template"))
_LINES_TAGS = frozenset(("pre", "textarea", "listing", "xmp", "plaintext"))
_LINES_VALUES = {"pre": "pre", "pre-wrap": "pre", "break-spaces": "pre", "pre-line": "pre-line"}
_ALL_BLANKS, _LINES_ONLY = "pre", "pre-line"

_SCREEN = {"width": 1280.0, "height": 800.0}
_PIXELS_PER_EM = 16
_TRUE_FEATURES = re.compile(
    r"\(\s*(orientation\s*:\s*landscape|prefers-color-scheme\s*:\s*light|scripting(\s*:\s*enabled)?|color"
    r"|(any-)?hover(\s*:\s*hover)?|(any-)?pointer(\s*:\s*fine)?|prefers-reduced-motion\s*:\s*no-preference)\s*\)"
)
_SIZE_FEATURE = re.compile(r"\(\s*(min|max)-(?:device-)?(width|height)\s*:\s*([\d.]+)\s*(px|em|rem)?\s*\)")
_SIZE_RANGE = re.compile(r"\(\s*(width|height)\s*([<>]=?)\s*([\d.]+)\s*(px|em|rem)?\s*\)")
_LENGTH = re.compile(r"(-?(?:\d+\.?\d*|\.\d+))\s*(px|pt|em|rem|ex|ch|cm|mm|in|%|vw|vh)?\Z")
_FAR_AWAY = {"px": -900, "pt": -700, "em": -60, "rem": -60, "ex": -120, "ch": -120, "%": -100, "vw": -100, "vh": -100}
_CLIPPED = re.compile(
    r"rect\(\s*(?:0|1px)(?:px)?[\s,]+(?:0|1px)(?:px)?[\s,]+(?:0|1px)(?:px)?[\s,]+(?:0|1px)(?:px)?\s*\)"
    r"|inset\(\s*(?:50|[5-9]\d|100)%\s*\)|circle\(\s*0(?:px|%)?\s*\)"
)
_TINY_PIXELS = 1
# The largest size that leaves no room, by unit; of units that are not here only 0 is so small.
_UNIT_SIZES = {"px": 1, "pt": 0.75}
# The weight of a font has no unit and is no 0, its size has a unit or is 0.
_FONT_SIZE = re.compile(r"(?:^|\s)(0|(?:\d+\.?\d*|\.\d+)(?:px|pt|em|rem|ex|ch|cm|mm|in|%|vw|vh))(?=[\s/])")
_SAME_COLOUR = 0.04
_FAINT = 0.02
_SIMPLE_SELECTOR = re.compile(r"([#.]?)((?:[\w-]|[^\x00-\x7f])+|\*)")
_INLINE = (1_000, 0, 0)
_ARGUMENTS = re.compile(r"\([^()]*\)")
_MOST_IMPORTS = 20

_Weight: TypeAlias = tuple[bool, tuple[int, int, int], int]


@dataclass(frozen=True)
class _Rule:
    """A selector without commas, with the declarations that matter here.

    Attributes:
        names: Types, ids (with #) and classes (with a dot) without which it matches nothing.
        key: The name of ``names`` that the matched element itself has; "*" if none is known.
        has_siblings: Names may belong to siblings of the element or of its ancestors, and not to these alone.
    """

    selector: str
    names: tuple[str, ...]
    key: str
    has_siblings: bool
    specificity: tuple[int, int, int]
    declarations: tuple[tuple[str, str, bool], ...]


@dataclass(frozen=True)
class Styles:
    """What styles do to the text of each element, by the element's id().

    Attributes:
        unseen: Elements whose own text nobody sees.
        lines: Elements whose own text keeps its line breaks, with the value of white-space.
    """

    unseen: frozenset[int]
    lines: Mapping[int, str]


def find_styles(page: BeautifulSoup | Tag, read_style_sheet: StyleSheetReader) -> Styles:
    """Return which elements of a page have text that nobody sees, and which keep their line breaks."""
    cascade = _Cascade(page, read_style_sheet)
    states: dict[int, _State] = {}
    unseen: set[int] = set()
    lines: dict[int, str] = {}
    root = _State(background=None if cascade.misses_sheets else (1.0, 1.0, 1.0))
    for element in [page, *page.find_all(True)]:
        parent = states.get(id(element.parent), root)
        state = parent if element is page and isinstance(page, BeautifulSoup) else cascade.derive(element, parent)
        states[id(element)] = state
        if state.is_unseen:
            unseen.add(id(element))
        if state.white_space:
            lines[id(element)] = state.white_space
    return Styles(frozenset(unseen), lines)


_Colour: TypeAlias = tuple[float, float, float]


@dataclass(frozen=True)
class _State:
    """What an element hands down to its children.

    Attributes:
        background: Red, green and blue from 0 to 1; None if it is unknown: a picture, or a sheet not at hand.
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
        is_on_its_colour = (
            self.colour is not None and self.background is not None and _are_alike(self.colour, self.background)
        )
        is_faint = self.is_transparent or is_on_its_colour
        return self.is_removed or self.is_invisible or self.is_tiny or self.is_far_away or is_faint


@dataclass
class _Cascade:
    """The declarations that hold for each element of a page."""

    page: BeautifulSoup | Tag
    read_style_sheet: StyleSheetReader
    misses_sheets: bool = False
    _by_element: dict[int, dict[str, tuple[_Weight, str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rules = [rule for sheet in self._collect_sheets() for rule in _parse_sheet(sheet)]
        index = _Index(self.page)
        for order, rule in enumerate(rules):
            for element in index.select(rule):
                self._declare(element, rule.declarations, rule.specificity, order)
        for element in self.page.find_all(style=True):
            self._declare(element, _parse_inline(str(element["style"])), _INLINE, len(rules))

    def _collect_sheets(self) -> Iterator[str]:
        """Yield the texts of the page's style sheets in their order, those that it imports before it."""
        for element in self.page.find_all(["style", "link"]):
            if element.find_parent(_NEVER_SHOWN) is not None or not _applies_to_screen(str(element.get("media") or "")):
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
        pending, sheets = [sheet], [sheet]
        while pending and len(seen) < _MOST_IMPORTS:
            for address in _find_imports(pending.pop()):
                imported = None if address in seen else self._read(address)
                seen.add(address)
                if imported is not None:
                    pending.append(imported)
                    sheets.insert(0, imported)
        yield from sheets

    def _declare(
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
        """Return the state of an element from its parent's and its own declarations."""
        declared = {name: value for name, (_, value) in self._by_element.get(id(element), {}).items()}
        hints = _read_attributes(element)
        if element.name not in _LINES_TAGS and not declared and not hints:
            return parent
        values = hints | declared
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
    """Return what attributes and browsers' own style sheets say, in the words of CSS."""
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
    # An element with a transition is faded in or unfolded by its page.
    is_faded_in = any(values.get(name, "none") != "none" for name in ("transition", "animation", "animation-name"))
    if opacity and float(opacity[1]) <= _FAINT and not is_faded_in:
        return True
    if not is_faded_in and _has_no_room(values):
        return True
    is_placed = values.get("position") in ("absolute", "fixed")
    if is_placed and any(_is_length_far_away(values.get(name)) for name in ("left", "top", "right", "bottom")):
        return True
    is_clipped = is_placed and _CLIPPED.match(values.get("clip", ""))
    return bool(is_clipped or _CLIPPED.match(values.get("clip-path", "")))


def _has_no_room(values: Mapping[str, str]) -> bool:
    """Return whether an element hides what does not fit into it, and is at most a pixel wide or high."""
    for axis, size, sides in (("x", "width", ("left", "right")), ("y", "height", ("top", "bottom"))):
        overflow = (values.get("overflow") or "visible").split()
        hides = values.get(f"overflow-{axis}", overflow[-1 if axis == "y" else 0]) in ("hidden", "clip")
        # A box without height and with padding is as high as its padding, and flexible boxes grow.
        enlarging = ("padding", *(f"padding-{side}" for side in sides), f"min-{size}", "flex", "flex-grow")
        if not hides or any(values.get(name, "0") not in ("0", "0px", "none") for name in enlarging):
            continue
        lengths = [_LENGTH.match(values.get(name, "")) for name in (size, f"max-{size}")]
        if any(length and float(length[1]) <= _UNIT_SIZES.get(length[2] or "px", 0) for length in lengths):
            return True
    return False


def _find_font_size(values: Mapping[str, str]) -> str | None:
    """Return the size in the value of "font", which comes before a slash or the name of the family."""
    size = _FONT_SIZE.search(values.get("font", ""))
    return None if size is None else size[1]


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
    number, unit = float(length[1]), length[2] or "px"
    if unit in ("em", "%", "ex", "ch"):
        return inherited or number <= 0
    pixels = number * (_PIXELS_PER_EM if unit == "rem" else 1)
    return pixels <= _TINY_PIXELS


def _is_far_away(values: Mapping[str, str], inherited: bool) -> bool:
    indent = values.get("text-indent")
    return inherited if indent in (None, "inherit", "unset") else _is_length_far_away(indent)


def _is_length_far_away(value: str | None) -> bool:
    length = _LENGTH.match(value or "")
    return length is not None and float(length[1]) <= _FAR_AWAY.get(length[2] or "px", -1_000)


def _find_colour(values: Mapping[str, str], parent: _State) -> tuple[_Colour | None, bool]:
    """Return the colour of text, and whether it is transparent. Text that a background fills is seen."""
    value = values.get("color")
    parsed = _parse_colour(value) if value is not None else None
    if parsed is None:
        is_same = value is None or value in ("inherit", "unset", "currentcolor")
        return (parent.colour, parent.is_transparent) if is_same else (None, False)
    colour, alpha = parsed
    clips = (values.get("background-clip"), values.get("-webkit-background-clip"))
    if "text" in clips:
        return None, False
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
                # A picture, a gradient, a variable.
                return None
    return background


def _split_words(value: str) -> list[str]:
    """Split a value at its blanks outside of parentheses."""
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


def _are_alike(one: _Colour, other: _Colour) -> bool:
    return all(abs(first - second) <= _SAME_COLOUR for first, second in zip(one, other, strict=True))


def _find_white_space(name: str, values: Mapping[str, str], inherited: str) -> str:
    value = values.get("white-space")
    if value in ("inherit", "unset") or (value is None and name not in _LINES_TAGS):
        return inherited
    return _LINES_VALUES.get(value.split()[0], "") if value else _ALL_BLANKS


class _Index:
    """The elements of a page by their names and in document order, so that a rule is compared with few of them."""

    def __init__(self, page: BeautifulSoup | Tag) -> None:
        # Numbers in document order.
        self._elements: dict[str, list[int]] = {}
        self._tags: list[Tag] = page.find_all(True)
        self._numbers = {id(element): number for number, element in enumerate(self._tags)}
        # The number after the last descendant of each element.
        self._ends = list(range(1, len(self._tags) + 1))
        for number, element in reversed(list(enumerate(self._tags))):
            parent = self._numbers.get(id(element.parent))
            if parent is not None:
                self._ends[parent] = max(self._ends[parent], self._ends[number])
            names = ["*", element.name, f"#{element.get('id')}"]
            names += [f".{name}" for name in element.get_attribute_list("class") if name]
            for name in dict.fromkeys(names):
                self._elements.setdefault(name, []).append(number)
        for numbers in self._elements.values():
            numbers.reverse()

    def select(self, rule: _Rule) -> list[Tag]:
        """Return the elements that a rule matches. Browsers skip rules that they do not know."""
        if any(name not in self._elements for name in rule.names):
            return []
        try:
            selector = soupsieve.compile(rule.selector)
        except (soupsieve.SelectorSyntaxError, NotImplementedError, ValueError):
            return []
        return [element for element in self._list_candidates(rule) if selector.match(element)]

    def _list_candidates(self, rule: _Rule) -> Iterator[Tag]:
        """Yield the elements that have the rule's key and lie within an element that has its rarest name."""
        candidates = self._elements.get(rule.key, [])
        rarest = min((self._elements[name] for name in rule.names), key=len, default=candidates)
        begin = 0
        for first in sorted({self._find_holder(number, rule) for number in rarest}):
            end = self._ends[first] if first >= 0 else len(self._tags)
            begin = max(begin, bisect_left(candidates, first))
            last = bisect_left(candidates, end)
            for candidate in candidates[begin:last]:
                yield self._tags[candidate]
            begin = max(begin, last)

    def _find_holder(self, number: int, rule: _Rule) -> int:
        """Return the number of the element around all that a rule can match from a named element; -1 for the page."""
        if not rule.has_siblings:
            return number
        return self._numbers.get(id(self._tags[number].parent), -1)


def _build_rule(selector: str, declarations: tuple[tuple[str, str, bool], ...]) -> _Rule:
    """Return the rule with what its selector needs and weighs. Arguments of pseudo-classes count for nothing."""
    plain = selector
    while (shorter := _ARGUMENTS.sub("", plain)) != plain:
        plain = shorter
    plain, attributes = re.subn(r"\[[^\]]*\]", "", plain)
    plain, pseudo_classes = re.subn(r"(?<!:):[\w-]+", "", plain)
    # Names with escapes are left to the comparison.
    simple = [] if "\\" in plain else _SIMPLE_SELECTOR.findall(plain)
    names = [f"{mark}{name}" if mark else name.lower() for mark, name in simple if name != "*"]
    last = _SIMPLE_SELECTOR.findall(re.split(r"[\s>+~]+", plain.strip())[-1]) if simple else []
    keys = [f"{mark}{name}" if mark else name.lower() for mark, name in sorted(last, key=lambda part: part[0] == "")]
    ids = sum(name[0] == "#" for name in names)
    classes = sum(name[0] == "." for name in names)
    specificity = ids, classes + attributes + pseudo_classes, len(names) - ids - classes
    has_siblings = re.search(r"[+~]", plain) is not None
    return _Rule(selector, tuple(names), keys[0] if keys else "*", has_siblings, specificity, declarations)


@lru_cache(maxsize=64)
def _parse_sheet(sheet: str) -> tuple[_Rule, ...]:
    """Return the rules of a style sheet that hold on a screen and declare something that matters here."""
    rules: list[_Rule] = []
    pending = list(tinycss2.parse_stylesheet(sheet, skip_comments=True, skip_whitespace=True))
    while pending:
        node = pending.pop(0)
        if node.type == "at-rule" and node.content is not None and _holds(node):
            pending = [*tinycss2.parse_rule_list(node.content, skip_comments=True, skip_whitespace=True), *pending]
        elif node.type == "qualified-rule":
            declarations = _read_declarations(node.content)
            if declarations:
                rules += (_build_rule(selector, declarations) for selector in _split_selectors(node.prelude))
    return tuple(rules)


def _holds(node: tinycss2.ast.AtRule) -> bool:
    if node.lower_at_keyword == "media":
        return _applies_to_screen(tinycss2.serialize(node.prelude))
    condition = tinycss2.serialize(node.prelude).strip().lower()
    return node.lower_at_keyword == "layer" or (node.lower_at_keyword == "supports" and not condition.startswith("not"))


def _applies_to_screen(media: str) -> bool:
    """Return whether a list of media queries includes the screen of this module."""
    queries = media.lower().split(",")
    return not media.strip() or any(_matches_screen(query) for query in queries)


def _matches_screen(query: str) -> bool:
    parts = [part.strip() for part in re.split(r"\band\b", query)]
    is_negated = parts[0].startswith("not ")
    parts[0] = re.sub(r"^(not|only)\s+", "", parts[0])
    holds = all(part in ("", "all", "screen") or _has_feature(part) for part in parts)
    return holds != is_negated


def _has_feature(part: str) -> bool:
    if size := _SIZE_FEATURE.fullmatch(part):
        pixels = float(size[3]) * (_PIXELS_PER_EM if size[4] in ("em", "rem") else 1)
        return _SCREEN[size[2]] >= pixels if size[1] == "min" else _SCREEN[size[2]] <= pixels
    if size := _SIZE_RANGE.fullmatch(part):
        pixels = float(size[3]) * (_PIXELS_PER_EM if size[4] in ("em", "rem") else 1)
        return _SCREEN[size[1]] >= pixels if size[2][0] == ">" else _SCREEN[size[1]] <= pixels
    return _TRUE_FEATURES.fullmatch(part) is not None


def _find_imports(sheet: str) -> list[str]:
    addresses = []
    for node in tinycss2.parse_stylesheet(sheet, skip_comments=True, skip_whitespace=True):
        if node.type != "at-rule" or node.lower_at_keyword != "import":
            continue
        tokens = [token for token in node.prelude if token.type != "whitespace"]
        address, media = (tokens[0], tinycss2.serialize(tokens[1:])) if tokens else (None, "")
        if address is not None and address.type == "function":
            address = next((token for token in address.arguments if token.type == "string"), None)
        if address is not None and address.type in ("string", "url") and _applies_to_screen(media):
            addresses.append(str(address.value))
    return addresses


def _split_selectors(prelude: Sequence[tinycss2.ast.Node]) -> list[str]:
    selectors: list[str] = []
    current: list[tinycss2.ast.Node] = []
    for token in [*prelude, None]:
        if token is None or (token.type == "literal" and token.value == ","):
            selectors.append(tinycss2.serialize(current).strip())
            current = []
        else:
            current.append(token)
    return [selector for selector in selectors if selector]


@lru_cache(maxsize=4096)
def _parse_inline(style: str) -> tuple[tuple[str, str, bool], ...]:
    return _read_declarations(tinycss2.parse_component_value_list(style))


def _read_declarations(content: Sequence[tinycss2.ast.Node]) -> tuple[tuple[str, str, bool], ...]:
    """Return name, value in lower case, and importance of the declarations that matter here, in their order."""
    found = []
    for node in tinycss2.parse_blocks_contents(content, skip_comments=True, skip_whitespace=True):
        if node.type == "declaration" and node.lower_name in _PROPERTIES:
            value = tinycss2.serialize([token for token in node.value if token.type != "comment"]).strip().lower()
            found.append((node.lower_name, value, bool(node.important)))
    return tuple(found)
