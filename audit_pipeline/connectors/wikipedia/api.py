"""The MediaWiki Action API: the pages of categories, when each was created, and its text as it was or is.

What belongs here: the questions to the API and what its answers mean. What does not: politeness (polite_client.py),
which pages are taken (pages.py), and turning wikitext into prose (wikitext.py).

robots.txt is not read: on Wikimedia's sites it shuts /w/ to search engines, and the API's own etiquette holds for
programs instead (a user agent with a contact, one request at a time, maxlag, back-off).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from audit_pipeline.connectors.answer_store import FetchedPage
from audit_pipeline.connectors.polite_client import FetchError, PoliteClient, Politeness, user_agent
from audit_pipeline.connectors.wikipedia.pages import (
    LeftOutPages,
    PageText,
    build_page_document,
    choice_of,
    format_page_count,
)
from audit_pipeline.connectors.wikipedia.settings import WikipediaSettings
from audit_pipeline.errors import SourceError
from audit_pipeline.sources.base import Document, Harvest, LeftOut, MissingPart

FOLDER = "wikipedia"
_MAXLAG = "5"
_PASSING_CODES = frozenset(("maxlag", "ratelimited", "readonly", "timeouterror", "cirrussearch-too-busy-error"))
# After so many failures in a row the site is down, or has had enough of us.
_MOST_FAILURES = 5
_ARTICLES, _CATEGORIES = 0, 14

Json = TypeVar("Json", bound=BaseModel)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Member(_Answer):
    pageid: Annotated[int, Field(ge=0)]
    ns: int
    title: str


class _Members(_Answer):
    categorymembers: tuple[_Member, ...] = ()


class _MembersAnswer(_Answer):
    query: _Members = _Members()
    go_on: Mapping[str, str] = Field(default_factory=dict, alias="continue")


class _Slot(_Answer):
    content: str | None = None


class _Revision(_Answer):
    revid: int
    timestamp: datetime
    slots: Mapping[str, _Slot] = Field(default_factory=dict)


class _Page(_Answer):
    title: str = ""
    missing: bool = False
    revisions: tuple[_Revision, ...] = ()


class _Pages(_Answer):
    pages: tuple[_Page, ...] = ()


class _PagesAnswer(_Answer):
    query: _Pages = _Pages()


class _ErrorInfo(_Answer):
    code: str
    info: str = ""


class _ErrorAnswer(_Answer):
    error: _ErrorInfo | None = None


@dataclass
class _CategoryPages:
    """What a walk through categories found: pages by id, in the order they were met."""

    pages: dict[int, str] = field(default_factory=dict)
    missing: list[MissingPart] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


def harvest_api(
    settings: WikipediaSettings,
    downloads: Path,
    api: str | None = None,
    open_client: Callable[[Path, Politeness], PoliteClient] = PoliteClient,
) -> Harvest:
    """The pages in ``settings.categories`` and their subcategories; nothing where none are set.

    Answers are kept below ``downloads``: a killed harvest goes on where it was, for ``days_kept`` days; what never
    changes (a page's first revision, its text as of a day) is not asked for again. ``api`` is the address of api.php,
    that of the language's Wikipedia by default. Raises SourceError where no contact is set.
    """
    if not settings.categories:
        return Harvest(())
    if settings.contact is None:
        raise SourceError(settings.to_be_set or "set wikipedia.contact in config/sources.yaml")
    politeness = Politeness(user_agent(settings.contact), settings.seconds_between, obey_robots=False)
    address = api or f"https://{settings.language}.wikipedia.org/w/api.php"
    with open_client(downloads / FOLDER, politeness) as client:
        asking = _Api(client, address, timedelta(days=settings.days_kept))
        found = _walk_categories(asking, settings)
        return _harvest_pages(asking, found, settings)


class _Api:
    """Questions to one api.php; raises SourceError for an answer that is none."""

    def __init__(self, client: PoliteClient, address: str, days_kept: timedelta) -> None:
        self._client = client
        self._address = address
        self._days_kept = days_kept

    def members(self, category: str) -> Iterator[_Member]:
        """The pages and subcategories of a category, however many answers they come in."""
        question = {
            "list": "categorymembers",
            "cmtitle": category,
            "cmtype": "page|subcat",
            "cmnamespace": f"{_ARTICLES}|{_CATEGORIES}",
            "cmlimit": "500",
        }
        go_on: Mapping[str, str] = {}
        seen: set[tuple[tuple[str, str], ...]] = set()
        while True:
            answer = self._ask(_MembersAnswer, {**question, **go_on}, self._days_kept)
            yield from answer.query.categorymembers
            go_on = answer.go_on
            mark = tuple(sorted(go_on.items()))
            if not go_on or mark in seen:
                return
            seen.add(mark)

    def fetch_first_revision(self, page_id: int) -> _Page:
        """The page with its first revision, which never changes."""
        return self._page(page_id, {"rvdir": "newer", "rvprop": "ids|timestamp"}, None)

    def text(self, page_id: int, moment: datetime | None) -> _Page:
        """The page with the text of its newest revision, or of its newest until a moment."""
        question = {"rvdir": "older", "rvprop": "ids|timestamp|content", "rvslots": "main"}
        if moment is None:
            return self._page(page_id, question, self._days_kept)
        return self._page(page_id, {**question, "rvstart": moment.strftime("%Y-%m-%dT%H:%M:%SZ")}, None)

    def _page(self, page_id: int, question: Mapping[str, str], max_age: timedelta | None) -> _Page:
        query = {"prop": "revisions", "pageids": str(page_id), "rvlimit": "1", **question}
        pages = self._ask(_PagesAnswer, query, max_age).query.pages
        return pages[0] if pages else _Page(missing=True)

    def _ask(self, kind: type[Json], question: Mapping[str, str], max_age: timedelta | None) -> Json:
        params = {"action": "query", "format": "json", "formatversion": "2", "maxlag": _MAXLAG, **question}
        page = self._client.get(self._address, params, max_age=max_age, find_refusal=_find_refusal)
        try:
            return kind.model_validate_json(page.content)
        except ValidationError as error:
            raise FetchError(page.url, f"its answer is not the API's ({error.errors()[0]['msg']})") from error


def _find_refusal(page: FetchedPage) -> str | None:
    """Why an answer is none that should be kept; raises FetchError where asking again is no use."""
    try:
        error = _ErrorAnswer.model_validate_json(page.content).error
    except ValidationError:
        return "its answer is not the API's"
    if error is None:
        return None
    problem = f"the API says: {error.code}: {error.info[:200]}"
    if error.code in _PASSING_CODES or error.code.startswith("internal_api_error"):
        return problem
    raise FetchError(page.url, problem)


def _walk_categories(api: _Api, settings: WikipediaSettings) -> _CategoryPages:
    """The articles of the categories, breadth first, each category once."""
    found = _CategoryPages()
    level = list(dict.fromkeys(name if ":" in name else f"Category:{name}" for name in settings.categories))
    visited = set(level)
    failures = 0
    for _ in range(settings.depth + 1):
        below: list[str] = []
        for category in level:
            any_member = False
            if failures == _MOST_FAILURES:
                found.missing.append(
                    MissingPart(category, "not fetched: the site cannot be reached", settings.collection)
                )
                continue
            try:
                for member in api.members(category):
                    any_member = True
                    if member.ns == _ARTICLES:
                        found.pages.setdefault(member.pageid, member.title)
                    elif member.ns == _CATEGORIES and member.title not in visited:
                        visited.add(member.title)
                        below.append(member.title)
            except FetchError as error:
                failures += 1
                found.missing.append(MissingPart(category, str(error), settings.collection))
            else:
                failures = 0
                if not any_member:
                    found.left_out.append(LeftOut(category, "empty, or there is no such category"))
        level = below
    return found


def _harvest_pages(api: _Api, category_pages: _CategoryPages, settings: WikipediaSettings) -> Harvest:
    documents: list[Document] = []
    missing = list(category_pages.missing)
    not_taken = LeftOutPages("API")
    choice = choice_of(settings)
    failures = 0
    # Titles alone decide on these: no need to ask for their texts.
    sought = {}
    for page_id, title in category_pages.pages.items():
        if choice.is_left_out(title):
            not_taken.count("a timeline or list by its title", title)
        else:
            sought[page_id] = title
    asked_for = list(sought)[: settings.most_pages]
    for done, page_id in enumerate(asked_for):
        if failures == _MOST_FAILURES:
            reason = f"not fetched: {failures} pages in a row failed; refresh again to go on from here"
            missing.append(MissingPart(f"API: {format_page_count(len(asked_for) - done)}", reason, settings.collection))
            break
        try:
            page = _fetch_page_text(api, page_id, sought[page_id], settings)
        except FetchError as error:
            failures += 1
            missing.append(MissingPart(f"API: {sought[page_id]}", str(error), settings.collection, str(page_id)))
            continue
        failures = 0
        if isinstance(page, str):
            not_taken.name(sought[page_id], page)
            continue
        document = build_page_document(page, settings, choice, not_taken, is_chosen=True)
        if document is not None:
            documents.append(document)
    left_out = [*category_pages.left_out, *not_taken.entries()]
    if len(sought) > len(asked_for):
        more = format_page_count(len(sought) - len(asked_for))
        left_out.append(LeftOut(f"API: {more}", f"not fetched: most_pages is {settings.most_pages}"))
    return Harvest(tuple(documents), tuple(missing), tuple(left_out))


def _fetch_page_text(api: _Api, page_id: int, title: str, settings: WikipediaSettings) -> PageText | str:
    """The page with its date and text, or in words why it has none."""
    first = api.fetch_first_revision(page_id)
    if first.missing or not first.revisions:
        return "deleted, or has no revision that can be seen"
    created = first.revisions[0].timestamp.astimezone(UTC).date()
    until = None
    if settings.as_of is not None and created <= settings.as_of:
        until = datetime(settings.as_of.year, settings.as_of.month, settings.as_of.day, 23, 59, 59, tzinfo=UTC)
    page = api.text(page_id, until)
    content = page.revisions[0].slots.get("main", _Slot()).content if page.revisions else None
    if content is None:
        return "its text is hidden or deleted"
    revision = page.revisions[0]
    written = revision.timestamp.astimezone(UTC).date()
    return PageText(page_id, page.title or title, revision.revid, content, created, written)
