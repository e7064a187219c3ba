"""Patents in Chinese, for PatentMIA (Zhang et al. 2024): one document per publication, one collection per country.

What belongs here: which inputs are read, and how a patent becomes a document. What does not: what may be set
(settings.py), each kind of input (raw_pages.py, exports.py, raw_pages.py), pages (page.py) and cleaning (cleaning.py).

A document's text is the abstract, the description and the claims, in this order, or those of them that are set. Its
date is the day of publication; the priority date, before which the text cannot have existed, is kept as the earliest.
Publications of one family, or of one application, form one group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

from audit_pipeline.connectors.patents.cleaning import NestedMarkupError, clean, find_broken_rule
from audit_pipeline.connectors.patents.exports import read_exported_patents
from audit_pipeline.connectors.patents.page import RawPage, parse_page
from audit_pipeline.connectors.patents.raw_pages import SITE, crawl_pages, read_numbers, read_saved_pages
from audit_pipeline.connectors.patents.record import Patent, UnusablePatentError, group_patents
from audit_pipeline.connectors.patents.settings import LICENCE, NAME, PatentsSettings
from audit_pipeline.connectors.polite_client import PoliteClient, Politeness, user_agent
from audit_pipeline.errors import SourceError
from audit_pipeline.sources.base import Document, Harvest, LeftOut, MissingPart

LANGUAGE = "zh"
DATE_KIND = "publication of the patent (its priority date is kept as the earliest)"

Found = Patent | LeftOut | MissingPart


def harvest(settings: PatentsSettings, downloads: Path) -> Harvest:
    """The patents of every input that is set; the crawl keeps its answers below ``downloads``.

    Pages, records, rows and numbers that make no document are left out, each with its reason as 'reason: detail'.
    Raises SourceError where no input is set.
    """
    problem = settings.to_be_set
    if problem is not None:
        raise SourceError(f"{NAME} has nothing to read: {problem}")
    return harvest_inputs(settings, downloads, datetime.now(UTC).date())


def harvest_inputs(settings: PatentsSettings, downloads: Path, today: date, site: str = SITE) -> Harvest:
    """As ``harvest``, with ``today`` as the day after which no date can lie, and the crawl's ``site``."""
    patents: list[tuple[Patent, str]] = []
    missing: list[MissingPart] = []
    left_out: list[LeftOut] = []
    for found in _read_inputs(settings, downloads, today, site):
        if isinstance(found, MissingPart):
            missing += _expand_to_countries(found, settings)
        elif isinstance(found, LeftOut):
            left_out.append(found)
        else:
            try:
                patents.append((found, clean_patent_text(found, settings)))
            except UnusablePatentError as problem:
                left_out.append(LeftOut(found.number, str(problem)))
    groups = group_patents([patent for patent, _ in patents])
    documents = [_document(patent, text, group) for (patent, text), group in zip(patents, groups, strict=True)]
    return Harvest(tuple(documents), tuple(missing), tuple(left_out))


def clean_patent_text(patent: Patent, settings: PatentsSettings) -> str:
    """The patent's parts, cleaned and joined; raises UnusablePatentError where they make no document.

    The description is the body whose repetitions count; without it, the whole text is.
    """
    if patent.country not in settings.countries:
        raise UnusablePatentError(f"not of {', '.join(settings.countries)}: {patent.country}")
    rules = settings.cleaning
    try:
        body = clean(patent.parts.get("description", ""), rules) if "description" in settings.parts else ""
        text = clean("\n".join(patent.parts.get(part, "") for part in settings.parts), rules)
    except NestedMarkupError as error:
        raise UnusablePatentError(str(error)) from error
    if not text:
        raise UnusablePatentError("no Chinese text")
    problem = find_broken_rule(text, rules, body or None)
    if problem is not None:
        raise UnusablePatentError(problem)
    return text


def _read_inputs(settings: PatentsSettings, downloads: Path, today: date, site: str) -> Iterator[Found]:
    if settings.pages is not None:
        yield from _parse_pages(read_saved_pages(settings.pages), today)
    if settings.crawl is not None and settings.contact is not None:
        yield from _crawl_patents(settings, settings.crawl, settings.contact, downloads, today, site)
    if settings.export is not None:
        yield from read_exported_patents(settings.export, settings.countries, settings.parts, today)


def _crawl_patents(
    settings: PatentsSettings, path: Path, contact: str, downloads: Path, today: date, site: str
) -> Iterator[Found]:
    try:
        listed = read_numbers(path, settings.countries, settings.limit)
    except SourceError as error:
        yield MissingPart(path.name, str(error))
        return
    yield from listed.left_out
    politeness = Politeness(user_agent(contact), settings.seconds_between)
    with PoliteClient(downloads / NAME, politeness) as client:
        yield from _parse_pages(crawl_pages(listed.numbers, client, site), today)


def _parse_pages(pages: Iterable[RawPage | LeftOut | MissingPart], today: date) -> Iterator[Found]:
    for page in pages:
        if not isinstance(page, RawPage):
            yield page
            continue
        try:
            yield parse_page(page, today)
        except UnusablePatentError as problem:
            yield LeftOut(page.name, str(problem))


def _expand_to_countries(item: MissingPart, settings: PatentsSettings) -> list[MissingPart]:
    """A part that may have held any document, as missing from every collection, so that earlier ones are kept."""
    if item.collection is not None:
        return [item]
    return [replace(item, collection=country) for country in settings.countries]


def _document(patent: Patent, text: str, group: str) -> Document:
    return Document(
        collection=patent.country,
        name=patent.number,
        title=patent.title or patent.number,
        text=text,
        published=patent.published,
        language=LANGUAGE,
        licence=LICENCE,
        url=patent.url,
        group=f"{NAME}:{group}",
        date_kind=DATE_KIND,
        earliest=patent.priority,
    )
