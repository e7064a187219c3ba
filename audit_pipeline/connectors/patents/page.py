"""One page of Google Patents, as the server sends it: bytes to a patent.

What belongs here: the charset, the fields by their microdata and meta tags, and a section's markup as text. What does
not: where pages come from (raw_pages.py, raw_pages.py), the check of dates (record.py), and cleaning.

The page must be the source that the server sends, not what a browser made of it. A page in another language holds a
machine translation together with the original (class google-src-text); the original is taken.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from lxml import etree, html

from audit_pipeline.connectors.patents.record import (
    Part,
    Patent,
    StatedDates,
    UnusablePatentError,
    application_key,
    family_key,
    page_address,
    parse_day,
    parse_publication_number,
    require_consistent_dates,
)
from audit_pipeline.fetch.file_bytes import MEBIBYTE

LARGEST_PAGE = 20 * MEBIBYTE
NOT_A_PATENT = "not the source of a patent page"

_SITE = "https://patents.google.com/patent/"
_DECLARED = re.compile(rb"""<meta[^<>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
_DECLARED_WITHIN = 4096
_WIDER = {"gb2312": "gb18030", "gbk": "gb18030", "hz": "hz"}
# The commonest characters of Chinese prose. In another charset's bytes read as GB18030 they are rare.
_COMMON = re.compile("[的一是在和有为中所用上于]")
_HAN = re.compile("[\u4e00-\u9fff]")
_LEAST_COMMON = 0.03
_FAMILY_ID = re.compile(r"ID=(\d+)")
_PRIORITY_TO = re.compile(r"Priority to\s+(\S+)")
_BLOCKS = frozenset(
    ("p", "br", "div", "li", "ul", "ol", "tr", "table", "section", "heading", "h1", "h2", "h3", "h4", "abstract")
)
_CELLS = frozenset(("td", "th"))
_NO_TEXT = frozenset(("script", "style", "template", "noscript", "head", "img", "para-num"))


@dataclass(frozen=True)
class RawPage:
    """A page as it was found: ``name`` says where, ``url`` and ``charset`` as the server gave them, if it did."""

    name: str
    content: bytes
    url: str | None = None
    charset: str | None = None


def parse_page(page: RawPage, today: date) -> Patent:
    """The patent on ``page``; ``today`` is the day after which no date can lie.

    Raises UnusablePatentError where the page cannot be decoded, is none of a patent, or has no usable dates.
    """
    tree = _parse_html(decode_page(page.content, page.charset))
    number = _find_publication_number(tree)
    if number is None:
        raise UnusablePatentError(NOT_A_PATENT)
    published, priority = require_consistent_dates(_stated_dates(tree, number), today)
    parts: dict[Part, str] = {
        "abstract": _find_section_text(tree, "abstract"),
        "description": _find_section_text(tree, "description"),
        "claims": _find_section_text(tree, "claims"),
    }
    return Patent(
        number, _title(tree), parts, published, priority, _list_invention_keys(tree), _url(tree, page, number)
    )


def decode_page(content: bytes, charset: str | None = None) -> str:
    """``content`` as text: by its byte-order mark, as UTF-8, as declared (by ``charset`` or within), or as GB18030.

    UTF-8 goes before what is declared, since nothing else passes for it; GB2312 and GBK are read as GB18030, which
    holds both. Undeclared GB18030 is taken only if the text then reads as Chinese.
    Raises UnusablePatentError where none fits.
    """
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if content.startswith(mark):
            return _try_decode(content, name) or _raise_charset_error([name])
    match = _DECLARED.search(content[:_DECLARED_WITHIN])
    inside = match.group(1).decode("ascii") if match else None
    declared = [_WIDER.get(name.lower(), name.lower()) for name in (charset, inside) if name]
    for name in ("utf-8", *declared):
        text = _try_decode(content, name)
        if text is not None:
            return text
    guess = _try_decode(content, "gb18030")
    if guess is not None and _is_chinese(guess):
        return guess
    return _raise_charset_error(["utf-8", *declared, "gb18030"])


def _raise_charset_error(names: list[str]) -> str:
    raise UnusablePatentError(f"wrong charset: its bytes are not {' nor '.join(dict.fromkeys(names))}")


def _try_decode(content: bytes, charset: str) -> str | None:
    try:
        # A charset of Python's that is none of text (hex, zip) raises LookupError too.
        return content.decode(charset)
    except (UnicodeError, LookupError):
        return None


def _is_chinese(text: str) -> bool:
    han = len(_HAN.findall(text))
    return han > 0 and len(_COMMON.findall(text)) >= _LEAST_COMMON * han


def _parse_html(text: str) -> etree._Element:
    # Without an explicit encoding, libxml2 would believe the page's own declaration, which is of its bytes.
    parser = html.HTMLParser(encoding="utf-8", no_network=True, remove_comments=True, remove_pis=True)
    try:
        tree = html.document_fromstring(text.encode("utf-8", errors="replace"), parser=parser)
    except (etree.LxmlError, ValueError) as error:
        raise UnusablePatentError(NOT_A_PATENT) from error
    return tree


def _find_fields(tree: etree._Element, name: str) -> Iterator[etree._Element]:
    """The elements of the page's own field ``name``: those of cited, similar and related patents are in tables."""
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
        raise UnusablePatentError(f"contradictory publication numbers: {' and '.join(numbers)}")
    return numbers[0] if numbers else None


def _title(tree: etree._Element) -> str:
    """The title in its own language, on one line."""
    title = _extract_original_text(next(_find_fields(tree, "title"), None)) or next(
        (text for text, _ in _find_meta_tags(tree, "DC.title")), ""
    )
    return " ".join(title.split())


def _stated_dates(tree: etree._Element, number: str) -> StatedDates:
    """Dates of the header, of the meta tags and of the timeline.

    The timeline tells of the whole application: of its publications only that of ``number`` counts, and what it says
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
    return StatedDates(*(tuple(days[field]) for field in ("publicationDate", "filingDate", "priorityDate")))


def _find_days(tree: etree._Element, field: str) -> list[date]:
    """The days that the header states in ``field``: an attribute and a text that differ are two."""
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
    keys = (family_key(family), *map(application_key, applications))
    return tuple(dict.fromkeys(key for key in keys if key is not None))


def _url(tree: etree._Element, page: RawPage, number: str) -> str:
    links = [page.url or "", *(str(link.get("href") or "") for link in tree.iterfind(".//link[@rel='canonical']"))]
    # A page can name any address as its own; only one of the site and of this patent is passed on.
    return next((link for link in links if link.startswith(f"{_SITE}{number}")), page_address(number))


def _find_section_text(tree: etree._Element, name: str) -> str:
    """The text of a section's content, one paragraph per line; empty where the page has none."""
    for section in tree.iterfind(f".//section[@itemprop='{name}']"):
        content = section.find(".//*[@itemprop='content']")
        if content is not None:
            return _extract_original_text(content)
    return ""


def _extract_original_text(element: etree._Element | None) -> str:
    """The text of ``element`` with a line end around each block; of translated passages the original alone."""
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
    """The original passages within a translated one; empty where ``node`` is none."""
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
