"""XHTML as running text."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from audit_pipeline.readers.whole_files.document import UNSEEN
from audit_pipeline.readers.whole_files.legible import REPAIRS

if TYPE_CHECKING:
    from bs4 import NavigableString, PageElement, Tag

    from audit_pipeline.readers.whole_files.visibility import StyleSheetReader

# Zero-width characters that typesetters put in: they mark an edition, not a text.
INVISIBLE = REPAIRS | dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))
"""For str.translate: zero-width characters go, ligatures become letters."""

_NONCHARACTERS = dict.fromkeys(range(0xFDD0, 0xFDD3), "\ufffd")
_GAP = "\n\n"
SECTION_GAP = "\n\n\n\n"

# What stands around a text, or is no text. "head" is not among them: browsers end it at the first element that does
# not belong there, whether its end is marked or not.
_UNREAD_TAGS = """
title script style audio video object iframe frameset button select datalist nav rp param
"""
_NAMED_TAGS = {
    "rt": "ruby annotations",
    "svg": "drawings and formulas, which are not read",
    "math": "drawings and formulas, which are not read",
    "canvas": "drawings and formulas, which are not read",
}
_BLOCK_TAGS = """
address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption figure footer
form h1 h2 h3 h4 h5 h6 header hgroup hr html legend li listing main menu ol p plaintext pre search section summary table
tbody textarea tfoot thead tr ul xmp
"""
_UNWANTED = "elements of unwanted types"
_UNREAD = frozenset(_UNREAD_TAGS.split())
_BLOCKS = frozenset(_BLOCK_TAGS.split())
# White space that is kept is written with noncharacters while the rest is collapsed.
_KEEP_LINES = {ord("\n"): "\ufdd0"}
_KEEP_BLANKS = _KEEP_LINES | {ord(" "): "\ufdd1", ord("\t"): "\ufdd2"}
# XHTML may write text as a section of characters, which HTML takes for a comment up to the first ">".
_CHARACTER_DATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_XHTML_START = re.compile(
    r"\s*(?:<\?xml\b|<!DOCTYPE[^>]*XHTML|(?:<!DOCTYPE[^>]*>\s*)?<html[^>]*\sxmlns\s*=)", re.IGNORECASE
)
_KEPT = {0xFDD0: "\n", 0xFDD1: " ", 0xFDD2: "\t"}


def find_no_style_sheet(address: str) -> None:
    """Return None: only the style sheets within the page are at hand."""


@dataclass(frozen=True)
class Prose:
    """A page or chapter as it is read.

    Attributes:
        text: Paragraphs parted by an empty line.
        types: Types of its body and of the element that holds all of it.
        heading: The text of the first heading, whether it is read or not.
        unread: Characters left out by reason, white space excluded.
        unwanted_words: Words in elements of unwanted types.
    """

    text: str
    types: frozenset[str]
    heading: str
    unread: Mapping[str, int] = field(default_factory=dict)
    unwanted_words: int = 0


class Page:
    """A parsed page of HTML or XHTML, with its styles applied.

    lxml parses as browsers do: it ends elements whose end is left out, and keeps text after </body>.
    """

    def __init__(self, markup: str, read_style_sheet: StyleSheetReader = find_no_style_sheet) -> None:
        from bs4 import BeautifulSoup, XMLParsedAsHTMLWarning  # noqa: PLC0415

        from audit_pipeline.readers.whole_files.visibility import find_styles  # noqa: PLC0415

        with warnings.catch_warnings():
            # Chapters of an EPUB are XHTML, and broken ones are read too.
            warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)
            self.soup = BeautifulSoup(_unwrap_character_data(markup).translate(_NONCHARACTERS), "lxml")
        self._styles = find_styles(self.soup, read_style_sheet)

    def extract_prose(self, root: Tag | None = None, unwanted_types: Collection[str] = ()) -> Prose:
        """Return the running text below ``root`` (default: of the whole page) without the ``unwanted_types``."""
        body = self.soup.body or self.soup
        outer = root or body
        heading = outer.find(["h1", "h2", "h3", "h4"])
        words = heading.get_text(" ").translate(INVISIBLE).split() if heading is not None else ()
        unread: Counter[str] = Counter()
        text = self._read(root or self.soup, frozenset(unwanted_types), unread)
        unwanted_words = unread.pop(_UNWANTED, 0)
        return Prose(text, _top_types(outer), " ".join(words), unread, unwanted_words)

    def _read(self, root: Tag, unwanted_types: frozenset[str], unread: Counter[str]) -> str:
        """Return the text below ``root``, walked without recursion: a hostile file nests as deep as it likes."""
        from bs4 import NavigableString, Tag  # noqa: PLC0415

        pieces: list[str] = []
        stack: list[PageElement | str] = [root]
        while stack:
            node = stack.pop()
            if isinstance(node, str) and not isinstance(node, NavigableString):
                pieces.append(node)
            elif isinstance(node, Tag):
                if node.name in _UNREAD:
                    continue
                if unwanted_types and find_element_types(node) & unwanted_types:
                    unread[_UNWANTED] += len(node.get_text(" ").split())
                    continue
                if node.name in _NAMED_TAGS:
                    unread[_NAMED_TAGS[node.name]] += _count_characters(node.get_text())
                    continue
                if node.name == "br":
                    pieces.append("\n")
                    continue
                mark = _GAP if node.name in _BLOCKS else "\t" if node.name in ("td", "th") else ""
                # On the stack the end lies below the children, which are pushed in reverse.
                stack.append(mark)
                stack.extend(reversed(node.contents))
                pieces.append(mark)
            elif type(node) is NavigableString:
                # A subclass is a comment, a declaration, a style sheet.
                if id(node.parent) in self._styles.unseen:
                    unread[UNSEEN] += _count_characters(node)
                else:
                    pieces.append(self._mark_white_space(node))
        return collapse_whitespace("".join(pieces).translate(INVISIBLE)).translate(_KEPT)

    def _mark_white_space(self, text: NavigableString) -> str:
        """Return a text with the white space marked that its element keeps; the rest are mere spaces."""
        kept = self._styles.lines.get(id(text.parent))
        if kept is None:
            return re.sub(r"\s+", " ", text)
        lines = re.sub(r"\r\n?", "\n", text)
        if text.previous_sibling is None and text.parent is not None and text.parent.name in ("pre", "textarea"):
            # HTML: a line break right after <pre> is not part of the text.
            lines = lines.removeprefix("\n")
        if kept == "pre":
            return lines.translate(_KEEP_BLANKS)
        return re.sub(r"[ \t]*\n[ \t]*", "\n", lines).translate(_KEEP_LINES)


def extract_prose(
    markup: str,
    unwanted_types: Collection[str] = (),
    read_style_sheet: StyleSheetReader = find_no_style_sheet,
) -> Prose:
    """Return the running text of a page or chapter, without elements of the ``unwanted_types``.

    White space is collapsed except in preformatted text. Zero-width characters go. A line break stays one. Text that
    nobody sees is left out and counted. ``types`` and ``heading`` serve to find what a chapter is.
    """
    return Page(markup, read_style_sheet).extract_prose(unwanted_types=unwanted_types)


def _unwrap_character_data(markup: str) -> str:
    """Return XHTML with the text of its CDATA sections in place of the sections; HTML has none."""
    if "<![CDATA[" not in markup or _XHTML_START.match(markup) is None:
        return markup
    return _CHARACTER_DATA.sub(lambda section: section[1].replace("&", "&amp;").replace("<", "&lt;"), markup)


def _count_characters(text: str) -> int:
    return len("".join(text.split()))


def find_element_types(element: Tag) -> frozenset[str]:
    """An element's words of epub:type and role (without doc-), and its classes with a dot before them; lower case."""
    found: list[str] = []
    for attribute, mark in (("epub:type", ""), ("role", ""), ("class", ".")):
        value = element.get(attribute)
        words = value if isinstance(value, list) else (value or "").split()
        found += [mark + word.lower().removeprefix("doc-") for word in words]
    return frozenset(found)


def collapse_whitespace(text: str) -> str:
    """Return paragraphs parted by one empty line, their lines stripped, blanks within lines collapsed."""
    paragraphs = []
    for paragraph in re.split(r"\n[ \t]*\n\s*", text):
        lines = [" ".join(line.split()) for line in paragraph.split("\n")]
        paragraphs.append("\n".join(line for line in lines if line).strip("\ufdd0"))
    return _GAP.join(paragraph for paragraph in paragraphs if paragraph)


def _top_types(body: Tag) -> frozenset[str]:
    """Types of the body, and of the one element that holds all of it, and of the one in that, …"""
    from bs4 import Tag  # noqa: PLC0415

    found = find_element_types(body)
    only = body
    while True:
        children = [child for child in only.contents if isinstance(child, Tag) or str(child).strip()]
        if len(children) != 1 or not isinstance(children[0], Tag):
            return found
        only = children[0]
        found |= find_element_types(only)
