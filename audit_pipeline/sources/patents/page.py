"""Parser of a page of Google Patents.

The page must be the source that the server sends, not the page after a browser has changed it. A page in another
language contains a machine translation and the original (class google-src-text). The original is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date

from lxml import etree, html

from audit_pipeline.errors import DataError
from audit_pipeline.readers.charsets import decode_page
from audit_pipeline.sources.base import UnusableDocumentError
from audit_pipeline.sources.patents import record

NOT_A_PATENT = (
    "the file is not a page of Google Patents as the server sends it. Save the page with wget, not in a browser."
)

_FAMILY_ID = re.compile(r"ID=(\d+)")
_PRIORITY_TO = re.compile(r"Priority to\s+(\S+)")
_BLOCKS = frozenset(
    ("p", "br", "div", "li", "ul", "ol", "tr", "table", "section", "heading", "h1", "h2", "h3", "h4", "abstract")
)
_CELLS = frozenset(("td", "th"))
_NO_TEXT = frozenset(("script", "style", "template", "noscript", "head", "img", "para-num"))


def parse_page(content: bytes, today: date) -> record.Patent:
    """Parse the patent on a page.

    Raises:
        UnusableDocumentError: If the page cannot be decoded, is no patent page, or has no usable dates.
    """
    try:
        text = decode_page(content)
    except DataError as error:
        raise UnusableDocumentError(str(error)) from error
    tree = _parse_html(text)
    number = _find_publication_number(tree)
    if number is None:
        raise UnusableDocumentError(NOT_A_PATENT)
    published, priority = record.require_consistent_dates(*_find_stated_dates(tree, number), today)
    parts: dict[record.Part, str] = {part: _find_section_text(tree, part) for part in record.PARTS}
    links = [str(link.get("href") or "") for link in tree.iterfind(".//link[@rel='canonical']")]
    # A page can name any address. Only an address of the site and of this patent is used.
    url = next(
        (link for link in links if link.startswith(f"{record.SITE}/patent/{number}")), record.build_page_address(number)
    )
    return record.Patent(number, _find_title(tree), parts, published, priority, _list_invention_keys(tree), url)


def _parse_html(text: str) -> etree._Element:
    # Without an explicit encoding libxml2 would use the page's declaration, but the text is already decoded.
    parser = html.HTMLParser(encoding="utf-8", no_network=True, remove_comments=True, remove_pis=True)
    try:
        tree = html.document_fromstring(text.encode("utf-8", errors="replace"), parser=parser)
    except (etree.LxmlError, ValueError) as error:
        raise UnusableDocumentError(NOT_A_PATENT) from error
    return tree


def _find_fields(tree: etree._Element, name: str) -> Iterator[etree._Element]:
    """Yield the elements of a field of this patent. Elements in tables are ignored: they belong to other patents."""
    for element in tree.iterfind(f".//*[@itemprop='{name}']"):
        if next(element.iterancestors("tr"), None) is None:
            yield element


def _find_first_text(tree: etree._Element, name: str) -> str:
    return next((_extract_inline_text(element) for element in _find_fields(tree, name)), "")


def _find_meta_tags(tree: etree._Element, name: str) -> Iterator[tuple[str, str]]:
    for element in tree.iterfind(f".//meta[@name='{name}']"):
        yield str(element.get("content") or "").strip(), str(element.get("scheme") or "")


def _find_publication_number(tree: etree._Element) -> str | None:
    stated = [_find_first_text(tree, "publicationNumber")]
    for name in ("citation_patent_number", "citation_patent_publication_number"):
        stated += [content for content, _ in _find_meta_tags(tree, name)]
    numbers: list[str] = []
    for text in stated:
        number = record.parse_publication_number(text)
        if number is not None and number not in numbers:
            numbers.append(number)
    if len(numbers) > 1:
        raise UnusableDocumentError(f"the page contains different publication numbers: {' and '.join(numbers)}")
    return numbers[0] if numbers else None


def _find_title(tree: etree._Element) -> str:
    """Return the title in the original language, on one line."""
    title = _extract_original_text(next(_find_fields(tree, "title"), None))
    if not title:
        title, _ = next(_find_meta_tags(tree, "DC.title"), ("", ""))
    return " ".join(title.split())


def _find_stated_dates(tree: etree._Element, number: str) -> tuple[list[date], list[date], list[date]]:
    """Return all dates of publication, filing and priority in the header, the meta tags and the timeline of a page.

    The timeline describes the whole application, which may have several publications. Only the date of the publication
    with this ``number`` is used. The timeline's filing date is used if header and meta tags have none. Its priority
    date is used if the header has none or a later one.
    """
    days = {field: _find_days(tree, field) for field in ("publicationDate", "filingDate", "priorityDate")}
    for content, scheme in _find_meta_tags(tree, "DC.date"):
        # The filing date has its own scheme. Publication and grant have the scheme issue or none.
        field = {"dateSubmitted": "filingDate", "issue": "publicationDate", "": "publicationDate"}.get(scheme)
        if field is not None and content:
            days[field].append(record.parse_day(content, "DC.date"))
    events = list(_iterate_events(tree))
    days["publicationDate"] += [day for kind, title, day in events if kind == "publication" and number in title.split()]
    if not days["filingDate"]:
        days["filingDate"] += [day for kind, _, day in events if kind == "filed"][:1]
    claimed = min((day for kind, _, day in events if kind == "priority"), default=None)
    if claimed is not None and (not days["priorityDate"] or claimed < min(days["priorityDate"])):
        days["priorityDate"].append(claimed)
    return days["publicationDate"], days["filingDate"], days["priorityDate"]


def _find_days(tree: etree._Element, field: str) -> list[date]:
    """Return the days in a field of the header. If attribute and text differ, both are returned."""
    days: list[date] = []
    for element in _find_fields(tree, field):
        texts = {str(element.get("datetime") or "").strip(), _extract_inline_text(element)} - {""}
        days += [record.parse_day(text, field) for text in sorted(texts)]
    return days


def _iterate_events(tree: etree._Element) -> Iterator[tuple[str, str, date]]:
    """Yield kind, title and day of each event in the timeline of the application. Events without a day are ignored."""
    for event in _find_fields(tree, "events"):
        values = {name: _find_first_text(event, name) for name in ("type", "title", "date")}
        if values["date"]:
            yield values["type"], values["title"], record.parse_day(values["date"], "the date of an event")


def _list_invention_keys(tree: etree._Element) -> tuple[str, ...]:
    applications = [_find_first_text(tree, "applicationNumber")]
    for event in _find_fields(tree, "events"):
        match = _PRIORITY_TO.search(_find_first_text(event, "title"))
        if match and _find_first_text(event, "type") == "priority":
            applications.append(match.group(1))
    keys = (record.build_family_key(_find_family_id(tree)), *map(record.build_application_key, applications))
    return tuple(dict.fromkeys(key for key in keys if key is not None))


def _find_family_id(tree: etree._Element) -> str:
    for section in tree.iterfind(".//section[@itemprop='family']"):
        for heading in section.iterfind(".//h2"):
            match = _FAMILY_ID.search(_extract_inline_text(heading))
            if match:
                return match.group(1)
    return ""


def _find_section_text(tree: etree._Element, name: str) -> str:
    """Return the text of a section, one paragraph per line, or an empty text if the section is missing."""
    for section in tree.iterfind(f".//section[@itemprop='{name}']"):
        content = section.find(".//*[@itemprop='content']")
        if content is not None:
            return _extract_original_text(content)
    return ""


def _extract_original_text(element: etree._Element | None) -> str:
    """Return the text of an element, with line ends around each block. The original text replaces translations."""
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
            pieces.append(_choose_separator(tag))
            if hidden is None:
                pieces.append(node.text or "")
        else:
            if hidden is node:
                hidden = None
            pieces.append(_choose_separator(tag))
            if hidden is None and node is not element:
                pieces.append(node.tail or "")
    return "".join(pieces).strip()


def _find_original_passages(node: etree._Element) -> list[str]:
    """Return the original passages in a translated element, or an empty list for other elements."""
    if "notranslate" not in str(node.get("class") or "").split():
        return []
    return ["".join(map(str, source.itertext())) for source in node.iterfind(".//*[@class='google-src-text']")]


def _choose_separator(tag: str) -> str:
    if tag in _BLOCKS:
        return "\n"
    return " " if tag in _CELLS else ""


def _extract_inline_text(element: etree._Element) -> str:
    return " ".join("".join(str(text) for text in element.itertext()).split())
