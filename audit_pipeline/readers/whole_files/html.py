"""Reader of saved web pages, and conversion of HTML and XHTML to running text."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup, NavigableString, PageElement, Tag, XMLParsedAsHTMLWarning

from audit_pipeline.readers.charsets import decode_page_file
from audit_pipeline.readers.whole_files.document import MEBIBYTE, NO_LINES, UNSEEN, WholeDocument, describe_unread
from audit_pipeline.readers.whole_files.legibility import REPAIRS
from audit_pipeline.readers.whole_files.visibility import StyleSheetReader, find_styles

# Typesetters insert zero-width characters. They identify an edition, not a text.
INVISIBLE = REPAIRS | dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))
"""Table for str.translate that removes zero-width characters and replaces ligatures by letters."""

SECTION_GAP = "\n\n\n\n"

_MAX_SHEET_BYTES = 4 * MEBIBYTE
# A <main> with a smaller share of the page's text is a placeholder that a script fills.
_MIN_SHARE = 0.1
_NONCHARACTERS = dict.fromkeys(range(0xFDD0, 0xFDD3), "\ufffd")
_GAP = "\n\n"

# Elements whose content is not part of the running text. "head" is missing, because browsers end it at the first
# element that does not belong there, even without an end tag.
_UNREAD_TAGS = """
title script style audio video object iframe frameset button select datalist nav rp param
"""
_NAMED_TAGS = {
    "rt": "ruby annotations are not read",
    "svg": "drawings and formulas are not read",
    "math": "drawings and formulas are not read",
    "canvas": "drawings and formulas are not read",
}
_BLOCK_TAGS = """
address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption figure footer
form h1 h2 h3 h4 h5 h6 header hgroup hr html legend li listing main menu ol p plaintext pre search section summary table
tbody textarea tfoot thead tr ul xmp
"""
_UNWANTED = "elements of unwanted types"
_UNREAD = frozenset(_UNREAD_TAGS.split())
_BLOCKS = frozenset(_BLOCK_TAGS.split())
# Preserved white space is encoded as noncharacters while other white space is collapsed.
_KEEP_LINES = {ord("\n"): "\ufdd0"}
_KEEP_BLANKS = _KEEP_LINES | {ord(" "): "\ufdd1", ord("\t"): "\ufdd2"}
# XHTML may contain text in CDATA sections, which an HTML parser reads as a comment up to the first ">".
_CHARACTER_DATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_XHTML_START = re.compile(
    r"\s*(?:<\?xml\b|<!DOCTYPE[^>]*XHTML|(?:<!DOCTYPE[^>]*>\s*)?<html[^>]*\sxmlns\s*=)", re.IGNORECASE
)
_KEPT = {0xFDD0: "\n", 0xFDD1: " ", 0xFDD2: "\t"}


def ignore_style_sheet(address: str) -> None:
    """Return None, so that only style sheets within the page are used."""


def read_html(path: Path) -> WholeDocument:
    """Read the running text of a web page.

    Style sheets in the page's folder decide which text is visible. Nothing is fetched.
    """
    page = Page(decode_page_file(path.read_bytes()), lambda address: _read_style_sheet(path, address))
    title = None
    if page.soup.title is not None:
        title = " ".join(page.soup.title.get_text(" ").split()) or None
    prose = _choose_prose(page)
    return WholeDocument(prose.text, title, describe_unread(prose.unread), NO_LINES)


def extract_prose(
    markup: str,
    unwanted_types: Collection[str] = (),
    read_style_sheet: StyleSheetReader = ignore_style_sheet,
) -> Prose:
    """Return the running text of a page or chapter, without elements of the unwanted types.

    White space is collapsed, except in preformatted text. Line breaks (<br>) stay. Zero-width characters are removed.
    Text that no reader sees is skipped and counted.

    Args:
        markup: HTML or XHTML.
        unwanted_types: Types of elements that are skipped (see :func:`find_element_types`).
        read_style_sheet: Returns the text of a linked style sheet, or None if it is missing.
    """
    return Page(markup, read_style_sheet).extract_prose(unwanted_types=unwanted_types)


@dataclass(frozen=True)
class Prose:
    """The running text of a page or chapter.

    Attributes:
        text: Paragraphs, separated by an empty line.
        types: Types of the body, and of each element that contains all of its content (see
            :func:`find_element_types`).
        heading: The text of the first heading, even if the heading is not part of the text.
        unread: Number of skipped characters by reason, without white space.
        unwanted_words: Number of words in elements of unwanted types, which are not part of the text.
    """

    text: str
    types: frozenset[str]
    heading: str
    unread: Mapping[str, int] = field(default_factory=dict)
    unwanted_words: int = 0


class Page:
    """A parsed page of HTML or XHTML, with its styles applied.

    The parser is lxml, because it works as browsers do: it closes elements without an end tag, and keeps text after
    </body>.
    """

    def __init__(self, markup: str, read_style_sheet: StyleSheetReader = ignore_style_sheet) -> None:
        with warnings.catch_warnings():
            # Chapters of an EPUB are XHTML. The HTML parser also reads broken XHTML.
            warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)
            self.soup = BeautifulSoup(_unwrap_character_data(markup).translate(_NONCHARACTERS), "lxml")
        self._styles = find_styles(self.soup, read_style_sheet)

    def extract_prose(self, root: Tag | None = None, unwanted_types: Collection[str] = ()) -> Prose:
        """Return the running text without elements of unwanted types.

        Args:
            root: The element to read. By default the whole page.
            unwanted_types: Types of elements that are skipped (see :func:`find_element_types`).
        """
        body = self.soup.body or self.soup
        outer = root or body
        unread: Counter[str] = Counter()
        text = self._read(root or self.soup, frozenset(unwanted_types), unread)
        unwanted_words = unread.pop(_UNWANTED, 0)
        return Prose(text, _list_top_types(outer), _find_heading(outer), unread, unwanted_words)

    def _read(self, root: Tag, unwanted_types: frozenset[str], unread: Counter[str]) -> str:
        """Return the text below ``root``, and count skipped text in ``unread``.

        The walk is not recursive, because a hostile file can nest its elements deeply.
        """
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
                separator = ""
                if node.name in _BLOCKS:
                    separator = _GAP
                elif node.name in ("td", "th"):
                    separator = "\t"
                # The separator at the end is below the children on the stack. The first child is on top.
                stack.append(separator)
                stack.extend(reversed(node.contents))
                pieces.append(separator)
            elif type(node) is NavigableString:
                # Subclasses of NavigableString are comments, declarations and style sheets.
                if id(node.parent) in self._styles.unseen:
                    unread[UNSEEN] += _count_characters(node)
                else:
                    pieces.append(self._mark_white_space(node))
        return collapse_whitespace("".join(pieces).translate(INVISIBLE)).translate(_KEPT)

    def _mark_white_space(self, text: NavigableString) -> str:
        """Encode the white space that the element preserves. Other white space becomes single blanks."""
        white_space = self._styles.lines.get(id(text.parent))
        if white_space is None:
            return re.sub(r"\s+", " ", text)
        lines = re.sub(r"\r\n?", "\n", text)
        if text.previous_sibling is None and text.parent is not None and text.parent.name in ("pre", "textarea"):
            # In HTML a line break directly after <pre> is not part of the text.
            lines = lines.removeprefix("\n")
        if white_space == "pre":
            return lines.translate(_KEEP_BLANKS)
        return re.sub(r"[ \t]*\n[ \t]*", "\n", lines).translate(_KEEP_LINES)


def _choose_prose(page: Page) -> Prose:
    """Return the text of the page's only <main> element with text, or else the text of the whole page."""
    whole = page.extract_prose()
    filled: list[Prose] = []
    for main in page.soup.find_all("main"):
        if main.find_parent("main") is None:
            prose = page.extract_prose(main)
            if prose.text:
                filled.append(prose)
    if len(filled) == 1 and len(filled[0].text) >= _MIN_SHARE * len(whole.text):
        return filled[0]
    return whole


def _read_style_sheet(page: Path, address: str) -> str | None:
    """Return a style sheet in the page's folder or below it, or None. Browsers save style sheets there."""
    try:
        parts = urlsplit(address.strip())
    except ValueError:
        return None
    if parts.scheme or parts.netloc or not parts.path:
        return None
    folder = page.parent.resolve()
    sheet = (folder / unquote(parts.path)).resolve()
    if not sheet.is_relative_to(folder) or not sheet.is_file() or sheet.stat().st_size > _MAX_SHEET_BYTES:
        return None
    return sheet.read_text("utf-8", errors="replace")


def _unwrap_character_data(markup: str) -> str:
    """Replace the CDATA sections of XHTML by their text. HTML has no CDATA sections."""
    if "<![CDATA[" not in markup or _XHTML_START.match(markup) is None:
        return markup
    return _CHARACTER_DATA.sub(lambda section: section[1].replace("&", "&amp;").replace("<", "&lt;"), markup)


def _count_characters(text: str) -> int:
    return len("".join(text.split()))


def find_element_types(element: Tag) -> frozenset[str]:
    """Return the types of an element: words of epub:type and role, and classes with a leading dot, in lower case.

    The prefix "doc-" of roles is removed.
    """
    types: list[str] = []
    for attribute, prefix in (("epub:type", ""), ("role", ""), ("class", ".")):
        value = element.get(attribute)
        names = value if isinstance(value, list) else (value or "").split()
        types += [prefix + name.lower().removeprefix("doc-") for name in names]
    return frozenset(types)


def collapse_whitespace(text: str) -> str:
    """Return paragraphs separated by one empty line, with stripped lines and single blanks."""
    paragraphs = []
    for paragraph in re.split(r"\n[ \t]*\n\s*", text):
        lines = [" ".join(line.split()) for line in paragraph.split("\n")]
        paragraphs.append("\n".join(filter(None, lines)).strip("\ufdd0"))
    return _GAP.join(filter(None, paragraphs))


def _find_heading(element: Tag) -> str:
    """Return the text of the first heading in an element, or an empty string."""
    heading = element.find(["h1", "h2", "h3", "h4"])
    if heading is None:
        return ""
    return " ".join(heading.get_text(" ").translate(INVISIBLE).split())


def _list_top_types(body: Tag) -> frozenset[str]:
    """Return the types of the body, and of its descendants that contain all of its content."""
    types = find_element_types(body)
    container = body
    while True:
        children = [child for child in container.contents if isinstance(child, Tag) or str(child).strip()]
        if len(children) != 1 or not isinstance(children[0], Tag):
            return types
        container = children[0]
        types |= find_element_types(container)
