"""One page of Google Patents, as the server sends it: bytes to a patent.

The page must be the source that the server sends, not what a browser made of it. A page in another language holds a
machine translation together with the original (class google-src-text); the original is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date

from lxml import etree, html

from audit_pipeline.errors import DataError
from audit_pipeline.readers.charsets import decode_page
from audit_pipeline.sources.base import UnusableDocumentError
from audit_pipeline.sources.patents.record import (
    PARTS,
    SITE,
    Part,
    Patent,
    build_application_key,
    build_family_key,
    build_page_address,
    parse_day,
    parse_publication_number,
    require_consistent_dates,
)

NOT_A_PATENT = "not the source of a patent page"

_FAMILY_ID = re.compile(r"ID=(\d+)")
_PRIORITY_TO = re.compile(r"Priority to\s+(\S+)")
_BLOCKS = frozenset(
    ("p", "br", "div", "li", "ul", "ol", "tr", "table", "section", "heading", "h1", "h2", "h3", "h4", "abstract")
)
_CELLS = frozenset(("td", "th"))
_NO_TEXT = frozenset(("script", "style", "template", "noscript", "head", "img", "para-num"))


def parse_page(content: bytes, today: date) -> Patent:
    """Return the patent on the page; ``today`` is the day after which no date can lie.

    Raises UnusableDocumentError where the page cannot be decoded, is none of a patent, or has no usable dates.
    """
    try:
        text = decode_page(content)
    except DataError as error:
        raise UnusableDocumentError(str(error)) from error
    tree = _parse_html(text)
    number = _find_publication_number(tree)
    if number is None:
        raise UnusableDocumentError(NOT_A_PATENT)
    published, priority = require_consistent_dates(*_stated_dates(tree, number), today)
    parts: dict[Part, str] = {part: _find_section_text(tree, part) for part in PARTS}
    links = [str(link.get("href") or "") for link in tree.iterfind(".//link[@rel='canonical']")]
    # A page can name any address as its own; only one of the site and of this patent is passed on.
    url = next((link for link in links if link.startswith(f"{SITE}/patent/{number}")), build_page_address(number))
    return Patent(number, _title(tree), parts, published, priority, _list_invention_keys(tree), url)


def _parse_html(text: str) -> etree._Element:
    # Without an explicit encoding, libxml2 would believe the page's own declaration, which is of its bytes.
    parser = html.HTMLParser(encoding="utf-8", no_network=True, remove_comments=True, remove_pis=True)
    try:
        tree = html.document_fromstring(text.encode("utf-8", errors="replace"), parser=parser)
    except (etree.LxmlError, ValueError) as error:
        raise UnusableDocumentError(NOT_A_PATENT) from error
    return tree


def _find_fields(tree: etree._Element, name: str) -> Iterator[etree._Element]:
    """Yield the elements of the page's own field ``name``: those of cited and similar patents are in tables."""
    for element in tree.iterfind(f".//*[@itemprop='{name}']"):
        if next(element.iterancestors("tr"), None) is None:
            yield element


def _first_text(tree: etree._Element, name: str) -> str:
    return next((_extract_inline_text(element) for element in _find_fields(tree, name)), "")


def _find_meta_tags(tree: etree._Element, name: str) -> Iterator[tuple[str, str]]:
    for element in tree.iterfind(f".//meta[@name='{name}']"):
        yield str(element.get("content") or "").strip(), str(element.get("scheme") or "")


def _find_publication_number(tree: etree._Element) -> str | None:
    stated = [
        _first_text(tree, "publicationNumber"),
        *(
            content
            for name in ("citation_patent_number", "citation_patent_publication_number")
            for content, _ in _find_meta_tags(tree, name)
        ),
    ]
    numbers = list(dict.fromkeys(number for text in stated if (number := parse_publication_number(text)) is not None))
    if len(numbers) > 1:
        raise UnusableDocumentError(f"contradictory publication numbers: {' and '.join(numbers)}")
    return numbers[0] if numbers else None


def _title(tree: etree._Element) -> str:
    """Return the title in its own language, on one line."""
    title = _extract_original_text(next(_find_fields(tree, "title"), None)) or next(
        (text for text, _ in _find_meta_tags(tree, "DC.title")), ""
    )
    return " ".join(title.split())


def _stated_dates(tree: etree._Element, number: str) -> tuple[list[date], list[date], list[date]]:
    """Return days of publication, of filing and of priority: those of the header, of the meta tags and of the timeline.

    The timeline is of the whole application: of its publications only that of ``number`` counts, and what it says
    of filing and priority only where the header says nothing. A priority that is older than the header's counts too.
    """
    days = {field: _find_days(tree, field) for field in ("publicationDate", "filingDate", "priorityDate")}
    for content, scheme in _find_meta_tags(tree, "DC.date"):
        # The page's meta tags give the filing date with a scheme, and publication or grant as issue or with none.
        field = {"dateSubmitted": "filingDate", "issue": "publicationDate", "": "publicationDate"}.get(scheme)
        if field is not None and content:
            days[field].append(parse_day(content, "DC.date"))
    events = list(_events(tree))
    days["publicationDate"] += [day for kind, title, day in events if kind == "publication" and number in title.split()]
    if not days["filingDate"]:
        days["filingDate"] += [day for kind, _, day in events if kind == "filed"][:1]
    claimed = min((day for kind, _, day in events if kind == "priority"), default=None)
    if claimed is not None and (not days["priorityDate"] or claimed < min(days["priorityDate"])):
        days["priorityDate"].append(claimed)
    return days["publicationDate"], days["filingDate"], days["priorityDate"]


def _find_days(tree: etree._Element, field: str) -> list[date]:
    """Return the days that the header states in ``field``: an attribute and a text that differ are two."""
    found: list[date] = []
    for element in _find_fields(tree, field):
        texts = {str(element.get("datetime") or "").strip(), _extract_inline_text(element)} - {""}
        found += [parse_day(text, field) for text in sorted(texts)]
    return found


def _events(tree: etree._Element) -> Iterator[tuple[str, str, date]]:
    """Kind, title and day of the events of the application's timeline; those without a day are none."""
    for event in _find_fields(tree, "events"):
        values = {name: _first_text(event, name) for name in ("type", "title", "date")}
        if values["date"]:
            yield values["type"], values["title"], parse_day(values["date"], "an event's date")


def _list_invention_keys(tree: etree._Element) -> tuple[str, ...]:
    family = next(
        (
            match.group(1)
            for section in tree.iterfind(".//section[@itemprop='family']")
            for heading in section.iterfind(".//h2")
            if (match := _FAMILY_ID.search(_extract_inline_text(heading)))
        ),
        "",
    )
    applications = [_first_text(tree, "applicationNumber")]
    applications += [
        match.group(1)
        for event in _find_fields(tree, "events")
        if _first_text(event, "type") == "priority" and (match := _PRIORITY_TO.search(_first_text(event, "title")))
    ]
    keys = (build_family_key(family), *map(build_application_key, applications))
    return tuple(dict.fromkeys(key for key in keys if key is not None))


def _find_section_text(tree: etree._Element, name: str) -> str:
    """Return the text of a section's content, one paragraph per line; empty where the page has none."""
    for section in tree.iterfind(f".//section[@itemprop='{name}']"):
        content = section.find(".//*[@itemprop='content']")
        if content is not None:
            return _extract_original_text(content)
    return ""


def _extract_original_text(element: etree._Element | None) -> str:
    """Return the text of ``element`` with a line end around each block; of translated passages the original alone."""
    if element is None:
        return ""
    pieces: list[str] = []
    walk = etree.iterwalk(element, events=("start", "end"))
    hidden: etree._Element | None = None
    for event, node in walk:
        tag = str(node.tag)
        if event == "start":
            translated = [] if hidden is not None else _find_original_passages(node)
            if hidden is None and (tag in _NO_TEXT or translated):
                pieces += translated
                hidden = node
            pieces.append(_separator_for_tag(tag))
            pieces.append((node.text or "") if hidden is None else "")
        else:
            if hidden is node:
                hidden = None
            pieces.append(_separator_for_tag(tag))
            pieces.append((node.tail or "") if hidden is None and node is not element else "")
    return "".join(pieces).strip()


def _find_original_passages(node: etree._Element) -> list[str]:
    """Return the original passages within a translated one; empty where ``node`` is none."""
    if "notranslate" not in str(node.get("class") or "").split():
        return []
    return [
        "".join(str(text) for text in source.itertext()) for source in node.iterfind(".//*[@class='google-src-text']")
    ]


def _separator_for_tag(tag: str) -> str:
    if tag in _BLOCKS:
        return "\n"
    return " " if tag in _CELLS else ""


def _extract_inline_text(element: etree._Element) -> str:
    return " ".join("".join(str(text) for text in element.itertext()).split())
