"""XHTML as running text."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bs4 import PageElement, Tag

# Zero-width characters that typesetters put in: they mark an edition, not a text.
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))
_GAP = "\n\n"
SECTION_GAP = "\n\n\n\n"

_UNREAD_TAGS = """
head title script style template noscript svg math audio video canvas object iframe form button select nav rt rp
"""
_BLOCK_TAGS = """
address article aside blockquote body center dd details div dl dt fieldset figcaption figure footer h1 h2 h3 h4 h5 h6
header hgroup hr html li main ol p pre section summary table tbody tfoot thead tr ul
"""
_UNREAD = frozenset(_UNREAD_TAGS.split())
_BLOCKS = frozenset(_BLOCK_TAGS.split())


@dataclass(frozen=True)
class Prose:
    """A chapter as it is read: paragraphs parted by an empty line; ``types`` are those of its body and top section."""

    text: str
    types: frozenset[str]
    heading: str


def extract_prose(markup: str, unwanted_types: Collection[str] = ()) -> Prose:
    """The running text of an XHTML document, without elements of the ``unwanted_types``.

    White space is collapsed, zero-width characters go, a line break stays one. Broken markup is read as a browser
    would. ``types`` and ``heading`` (the text of the first heading, whatever is left out) serve to find what the
    document is.
    """
    from bs4 import BeautifulSoup  # noqa: PLC0415

    soup = BeautifulSoup(markup, "html.parser")
    return extract_element_prose(soup.body or soup, unwanted_types)


def extract_element_prose(body: Tag, unwanted_types: Collection[str] = ()) -> Prose:
    """The same of a part of a document that was parsed."""
    heading = body.find(["h1", "h2", "h3", "h4"])
    words = heading.get_text(" ").translate(_INVISIBLE).split() if heading is not None else ()
    return Prose(_text(body, frozenset(unwanted_types)), _top_types(body), " ".join(words))


def find_element_types(element: Tag) -> frozenset[str]:
    """An element's words of epub:type and role (without doc-), and its classes with a dot before them; lower case."""
    found: list[str] = []
    for attribute, mark in (("epub:type", ""), ("role", ""), ("class", ".")):
        value = element.get(attribute)
        words = value if isinstance(value, list) else (value or "").split()
        found += [mark + word.lower().removeprefix("doc-") for word in words]
    return frozenset(found)


def _text(body: Tag, unwanted_types: frozenset[str]) -> str:
    """The text below ``body``, walked without recursion: a hostile file nests as deep as it likes."""
    from bs4 import NavigableString, Tag  # noqa: PLC0415

    pieces: list[str] = []
    stack: list[PageElement | str] = [body]
    while stack:
        node = stack.pop()
        if isinstance(node, str) and not isinstance(node, NavigableString):
            pieces.append(node)
        elif isinstance(node, Tag):
            if (
                node.name in _UNREAD
                or node.has_attr("hidden")
                or (unwanted_types and find_element_types(node) & unwanted_types)
            ):
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
            # A subclass is a comment, a declaration, a style sheet. Line breaks of the source are mere spaces.
            pieces.append(re.sub(r"\s+", " ", node))
    return _collapse_whitespace("".join(pieces).translate(_INVISIBLE))


def _collapse_whitespace(text: str) -> str:
    paragraphs = []
    for paragraph in re.split(r"\n[ \t]*\n\s*", text):
        lines = [" ".join(line.split()) for line in paragraph.split("\n")]
        paragraphs.append("\n".join(line for line in lines if line))
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
