"""Parsing of CSS style sheets: rules that apply to a screen, and the elements that a rule matches.

The screen has 1280 by 800 pixels. soupsieve matches selectors and tinycss2 parses style sheets.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import soupsieve
import tinycss2
from bs4 import BeautifulSoup, Tag

_PROPERTY_NAMES = """
display visibility content-visibility opacity font font-size
overflow overflow-x overflow-y width height max-width max-height min-width min-height
padding padding-top padding-right padding-bottom padding-left flex flex-grow
color background background-color background-image background-clip -webkit-background-clip
position left right top bottom text-indent clip clip-path white-space transition animation animation-name
"""
_PROPERTIES = frozenset(_PROPERTY_NAMES.split())
_SCREEN = {"width": 1280.0, "height": 800.0}
PIXELS_PER_EM = 16
_TRUE_FEATURES = re.compile(
    r"\(\s*(orientation\s*:\s*landscape|prefers-color-scheme\s*:\s*light|scripting(\s*:\s*enabled)?|color"
    r"|(any-)?hover(\s*:\s*hover)?|(any-)?pointer(\s*:\s*fine)?|prefers-reduced-motion\s*:\s*no-preference)\s*\)"
)
_SIZE_FEATURE = re.compile(r"\(\s*(min|max)-(?:device-)?(width|height)\s*:\s*([\d.]+)\s*(px|em|rem)?\s*\)")
_SIZE_RANGE = re.compile(r"\(\s*(width|height)\s*([<>]=?)\s*([\d.]+)\s*(px|em|rem)?\s*\)")
_SIMPLE_SELECTOR = re.compile(r"([#.]?)((?:[\w-]|[^\x00-\x7f])+|\*)")
_ARGUMENTS = re.compile(r"\([^()]*\)")


@dataclass(frozen=True)
class Rule:
    """A selector without commas, with its declarations of the properties in ``_PROPERTIES``.

    Attributes:
        selector: The selector.
        names: Types, ids (with #) and classes (with a dot) that the selector requires. If the page lacks one of them,
            the selector matches nothing.
        key: One of ``names`` that every matched element itself has, or "*" if none is known.
        has_siblings: True if some names may belong to siblings of the matched element or of its ancestors.
        specificity: Numbers of ids, classes and types.
        declarations: Property, value, and True if the declaration is !important.
    """

    selector: str
    names: tuple[str, ...]
    key: str
    has_siblings: bool
    specificity: tuple[int, int, int]
    declarations: tuple[tuple[str, str, bool], ...]


@lru_cache(maxsize=64)
def parse_sheet(sheet: str) -> tuple[Rule, ...]:
    """Return the rules of a style sheet that apply to a screen and set a property in ``_PROPERTIES``."""
    rules: list[Rule] = []
    pending = list(tinycss2.parse_stylesheet(sheet, skip_comments=True, skip_whitespace=True))
    while pending:
        node = pending.pop(0)
        if node.type == "at-rule" and node.content is not None and _applies_at_rule(node):
            pending = [*tinycss2.parse_rule_list(node.content, skip_comments=True, skip_whitespace=True), *pending]
        elif node.type == "qualified-rule":
            declarations = _read_declarations(node.content)
            if declarations:
                for selector in _split_selectors(node.prelude):
                    rules.append(_build_rule(selector, declarations))
    return tuple(rules)


@lru_cache(maxsize=4096)
def parse_style_attribute(style: str) -> tuple[tuple[str, str, bool], ...]:
    """Return the declarations of a style attribute as in :class:`Rule`."""
    return _read_declarations(tinycss2.parse_component_value_list(style))


def find_imports(sheet: str) -> list[str]:
    """Return the addresses of the style sheets that a style sheet imports for a screen."""
    addresses = []
    for node in tinycss2.parse_stylesheet(sheet, skip_comments=True, skip_whitespace=True):
        if node.type != "at-rule" or node.lower_at_keyword != "import":
            continue
        tokens = [token for token in node.prelude if token.type != "whitespace"]
        if not tokens or not applies_to_screen(tinycss2.serialize(tokens[1:])):
            continue
        address = tokens[0]
        if address.type == "function":
            address = next((token for token in address.arguments if token.type == "string"), None)
        if address is not None and address.type in ("string", "url"):
            addresses.append(str(address.value))
    return addresses


def applies_to_screen(media: str) -> bool:
    """Return True if a list of media queries applies to the screen of 1280 by 800 pixels."""
    queries = media.lower().split(",")
    return not media.strip() or any(map(_matches_screen, queries))


class ElementIndex:
    """An index of a page's elements by name, so that each rule is compared with few elements."""

    def __init__(self, page: BeautifulSoup | Tag) -> None:
        # Elements are numbered in document order. The lists contain the numbers of the elements with a name.
        self._elements: dict[str, list[int]] = {}
        self._tags: list[Tag] = page.find_all(True)
        self._numbers = {id(element): number for number, element in enumerate(self._tags)}
        # For each element the number after its last descendant.
        self._ends = list(range(1, len(self._tags) + 1))
        for number, element in reversed(list(enumerate(self._tags))):
            parent = self._numbers.get(id(element.parent))
            if parent is not None:
                self._ends[parent] = max(self._ends[parent], self._ends[number])
            names = ["*", element.name, f"#{element.get('id')}"]
            names += map(".{}".format, filter(None, element.get_attribute_list("class")))
            for name in dict.fromkeys(names):
                self._elements.setdefault(name, []).append(number)
        for numbers in self._elements.values():
            numbers.reverse()

    def select(self, rule: Rule) -> list[Tag]:
        """Return the elements that a rule matches. Unknown selectors match nothing, as in browsers."""
        if not self._elements.keys() >= set(rule.names):
            return []
        try:
            selector = soupsieve.compile(rule.selector)
        except (soupsieve.SelectorSyntaxError, NotImplementedError, ValueError):
            return []
        return list(filter(selector.match, self._list_candidates(rule)))

    def _list_candidates(self, rule: Rule) -> Iterator[Tag]:
        """Yield the elements that a rule may match: those with its key, within the scopes of its rarest name."""
        candidates = self._elements.get(rule.key, [])
        rarest = min((self._elements[name] for name in rule.names), key=len, default=candidates)
        begin = 0
        for scope in sorted({self._find_scope(number, rule) for number in rarest}):
            end = len(self._tags)
            if scope >= 0:
                end = self._ends[scope]
            begin = max(begin, bisect_left(candidates, scope))
            last = bisect_left(candidates, end)
            for candidate in candidates[begin:last]:
                yield self._tags[candidate]
            begin = max(begin, last)

    def _find_scope(self, number: int, rule: Rule) -> int:
        """Return the scope of an element with a name of the rule: an element that contains all matches.

        The scope is the element itself or, if the rule has siblings, its parent.

        Returns:
            The number of the scope, or -1 for the whole page.
        """
        if not rule.has_siblings:
            return number
        return self._numbers.get(id(self._tags[number].parent), -1)


def _applies_at_rule(node: tinycss2.ast.AtRule) -> bool:
    if node.lower_at_keyword == "media":
        return applies_to_screen(tinycss2.serialize(node.prelude))
    condition = tinycss2.serialize(node.prelude).strip().lower()
    return node.lower_at_keyword == "layer" or (node.lower_at_keyword == "supports" and not condition.startswith("not"))


def _matches_screen(query: str) -> bool:
    parts = list(map(str.strip, re.split(r"\band\b", query)))
    is_negated = parts[0].startswith("not ")
    parts[0] = re.sub(r"^(not|only)\s+", "", parts[0])
    holds = all(part in ("", "all", "screen") or _has_feature(part) for part in parts)
    return holds != is_negated


def _has_feature(part: str) -> bool:
    size = _SIZE_FEATURE.fullmatch(part)
    if size:
        return _compare_screen(size[2], size[3], size[4], is_minimum=size[1] == "min")
    size = _SIZE_RANGE.fullmatch(part)
    if size:
        return _compare_screen(size[1], size[3], size[4], is_minimum=size[2][0] == ">")
    return _TRUE_FEATURES.fullmatch(part) is not None


def _compare_screen(dimension: str, number: str, unit: str | None, *, is_minimum: bool) -> bool:
    """Return True if the screen's width or height is at least the minimum, or at most the maximum."""
    pixels = float(number)
    if unit in ("em", "rem"):
        pixels *= PIXELS_PER_EM
    if is_minimum:
        return _SCREEN[dimension] >= pixels
    return _SCREEN[dimension] <= pixels


def _split_selectors(prelude: Sequence[tinycss2.ast.Node]) -> list[str]:
    selectors: list[str] = []
    current: list[tinycss2.ast.Node] = []
    for token in [*prelude, None]:
        if token is None or (token.type == "literal" and token.value == ","):
            selectors.append(tinycss2.serialize(current).strip())
            current = []
        else:
            current.append(token)
    return list(filter(None, selectors))


def _read_declarations(content: Sequence[tinycss2.ast.Node]) -> tuple[tuple[str, str, bool], ...]:
    """Return name, value in lower case, and importance of the declarations of ``_PROPERTIES``, in their order."""
    declarations = []
    for node in tinycss2.parse_blocks_contents(content, skip_comments=True, skip_whitespace=True):
        if node.type == "declaration" and node.lower_name in _PROPERTIES:
            value = tinycss2.serialize([token for token in node.value if token.type != "comment"]).strip().lower()
            declarations.append((node.lower_name, value, bool(node.important)))
    return tuple(declarations)


def _build_rule(selector: str, declarations: tuple[tuple[str, str, bool], ...]) -> Rule:
    """Build a rule: find the required names and the specificity of a selector.

    Arguments of pseudo-classes are ignored. For a selector with escapes no names are required.
    """
    plain = selector
    while (shorter := _ARGUMENTS.sub("", plain)) != plain:
        plain = shorter
    plain, n_attributes = re.subn(r"\[[^\]]*\]", "", plain)
    plain, n_pseudo_classes = re.subn(r"(?<!:):[\w-]+", "", plain)
    names: list[str] = []
    key = "*"
    if "\\" not in plain:
        names = _list_names(plain)
        last_names = _list_names(re.split(r"[\s>+~]+", plain.strip())[-1])
        # Ids and classes are rarer than types, so they are preferred as the key.
        last_names.sort(key=lambda name: name[0] not in "#.")
        if last_names:
            key = last_names[0]
    marks = Counter(name[0] for name in names)
    n_types = len(names) - marks["#"] - marks["."]
    specificity = marks["#"], marks["."] + n_attributes + n_pseudo_classes, n_types
    has_siblings = re.search(r"[+~]", plain) is not None
    return Rule(selector, tuple(names), key, has_siblings, specificity, declarations)


def _list_names(selector: str) -> list[str]:
    """Return the types (in lower case), ids and classes of a selector in their order, without ``*``."""
    names: list[str] = []
    for mark, name in _SIMPLE_SELECTOR.findall(selector):
        if mark:
            names.append(mark + name)
        elif name != "*":
            names.append(name.lower())
    return names
