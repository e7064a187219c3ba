"""Patents of every input as documents.

A document's text is the abstract, the description and the claims, in this order, or those of them that are set. Its
date is the day of publication; the priority date, before which the text cannot have existed, is kept as the earliest.
Publications of one family, or of one application, form one group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

from audit_pipeline.sources.base import Document, HarvestItem, LeftOut, MissingPart, UnusableDocumentError
from audit_pipeline.sources.patents.cleaning import NestedMarkupError, clean, find_broken_rule
from audit_pipeline.sources.patents.exports import Found, read_exported_patents
from audit_pipeline.sources.patents.page import parse_page
from audit_pipeline.sources.patents.record import Patent, group_patents
from audit_pipeline.sources.patents.saved_pages import read_saved_pages
from audit_pipeline.sources.patents.source import LICENCE, NAME, PatentsSettings

DATE_KIND = "publication of the patent (its priority date is kept as the earliest)"


def harvest(settings: PatentsSettings, downloads: Path, today: date | None = None) -> Iterator[HarvestItem]:
    """Yield the patents of every input that is set; ``downloads`` is not used, since nothing is fetched.

    Pages and rows that make no document are left out, each with its reason as 'reason: detail'. No date can lie after
    ``today``.
    """
    patents: list[tuple[Patent, str]] = []
    for found in _read_inputs(settings, today or datetime.now(UTC).date()):
        if isinstance(found, Patent):
            try:
                patents.append((found, clean_patent_text(found, settings)))
            except UnusableDocumentError as problem:
                yield LeftOut(found.number, str(problem))
        elif isinstance(found, MissingPart) and found.collection is None:
            # It may have held any document: earlier ones of all collections are kept.
            yield from (replace(found, collection=country) for country in settings.countries)
        else:
            yield found
    groups = group_patents([patent for patent, _ in patents])
    yield from (_document(patent, text, group) for (patent, text), group in zip(patents, groups, strict=True))


def clean_patent_text(patent: Patent, settings: PatentsSettings) -> str:
    """Return the patent's parts, cleaned and joined; raises UnusableDocumentError where they make no document.

    The description is the body whose repetitions count; without it, the whole text is.
    """
    if patent.country not in settings.countries:
        raise UnusableDocumentError(f"not of {', '.join(settings.countries)}: {patent.country}")
    rules = settings.cleaning
    try:
        body = clean(patent.parts.get("description", ""), rules) if "description" in settings.parts else ""
        text = clean("\n".join(patent.parts.get(part, "") for part in settings.parts), rules)
    except NestedMarkupError as error:
        raise UnusableDocumentError(str(error)) from error
    problem = find_broken_rule(text, rules, body or None) if text else "no Chinese text"
    if problem is not None:
        raise UnusableDocumentError(problem)
    return text


def _read_inputs(settings: PatentsSettings, today: date) -> Iterator[Found]:
    for page in () if settings.pages is None else read_saved_pages(settings.pages):
        if not isinstance(page, tuple):
            yield page
            continue
        name, content = page
        try:
            yield parse_page(content, today)
        except UnusableDocumentError as problem:
            yield LeftOut(name, str(problem))
    if settings.export is not None:
        yield from read_exported_patents(settings.export, settings.countries, settings.parts, today)


def _document(patent: Patent, text: str, group: str) -> Document:
    return Document(
        collection=patent.country,
        name=patent.number,
        title=patent.title or patent.number,
        text=text,
        published=patent.published,
        language="zh",
        licence=LICENCE,
        url=patent.url,
        group=f"{NAME}:{group}",
        date_kind=DATE_KIND,
        earliest=patent.priority,
    )
