"""The MediaWiki Action API: the pages of categories, when each was created, and its text as of now.

robots.txt is not read: on Wikimedia's sites it shuts /w/ to search engines, and the API's own etiquette holds for
programs instead (a user agent with a contact, one request at a time, maxlag, back-off).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from audit_pipeline.connectors.polite_client import FetchedPage, FetchError, PoliteClient, Politeness
from audit_pipeline.connectors.wikipedia.pages import (
    LEFT_OUT_TITLE,
    LeftOutPages,
    build_page_document,
    remove_tail_sections,
)
from audit_pipeline.connectors.wikipedia.source import NAME, WikipediaSettings
from audit_pipeline.fetch.rows import text_problem
from audit_pipeline.sources.base import Document, Harvest, LeftOut, MissingPart

_MAXLAG = "5"
_PASSING_CODES = frozenset(("maxlag", "ratelimited", "readonly", "timeouterror", "cirrussearch-too-busy-error"))
_ARTICLES, _CATEGORIES = 0, 14


def harvest_api(
    settings: WikipediaSettings,
    downloads: Path,
    api: str | None = None,
    open_client: Callable[..., PoliteClient] = PoliteClient,
) -> Harvest:
    """Return the pages in ``settings.categories`` and their subcategories; nothing where none are set.

    Answers are kept below ``downloads`` for ``days_kept`` days: a killed harvest goes on where it was. ``api`` is the
    address of api.php, that of the language's Wikipedia by default.
    """
    if not settings.categories:
        return Harvest(())
    politeness = Politeness(settings.contact or "", settings.seconds_between, obey_robots=False)
    address = api or f"https://{settings.language}.wikipedia.org/w/api.php"
    with open_client(downloads / NAME, politeness, find_refusal=_find_refusal) as client:
        return _ApiHarvest(settings, client, address).harvest()


class _ApiHarvest:
    """One harvest of the API."""

    def __init__(self, settings: WikipediaSettings, client: PoliteClient, address: str) -> None:
        self._settings = settings
        self._client = client
        self._address = address
        self._missing: list[MissingPart] = []
        self._left_out: list[LeftOut] = []

    def harvest(self) -> Harvest:
        settings = self._settings
        unwanted = re.compile(settings.left_out_title, re.IGNORECASE) if settings.left_out_title else None
        not_taken = LeftOutPages("API")
        titles: dict[int, str] = {}
        for page_id, title in self._walk_categories().items():
            if unwanted is not None and unwanted.search(title):
                not_taken.add(LEFT_OUT_TITLE, title)
            else:
                titles[page_id] = title
        documents: list[Document] = []
        for page_id in list(titles)[: settings.most_pages]:
            try:
                document = self._fetch_document(page_id, titles[page_id])
            except FetchError as error:
                part = MissingPart(f"API: {titles[page_id]}", str(error), settings.collection, str(page_id))
                self._missing.append(part)
                continue
            if isinstance(document, str):
                not_taken.add(document, titles[page_id])
            else:
                documents.append(document)
        if len(titles) > settings.most_pages:
            more = len(titles) - settings.most_pages
            self._left_out.append(LeftOut(f"API: {more}", f"not fetched: most_pages is {settings.most_pages}"))
        return Harvest(tuple(documents), tuple(self._missing), (*self._left_out, *not_taken.entries()))

    def _walk_categories(self) -> dict[int, str]:
        """The articles of the categories by page id, breadth first, each category once."""
        found: dict[int, str] = {}
        level = [name if ":" in name else f"Category:{name}" for name in self._settings.categories]
        visited = set(level)
        for _ in range(self._settings.depth + 1):
            subcategories: list[str] = []
            for category in level:
                members: list[dict[str, Any]] = []
                try:
                    members.extend(self._iterate_members(category))
                except FetchError as error:
                    self._missing.append(MissingPart(category, str(error), self._settings.collection))
                else:
                    if not members:
                        self._left_out.append(LeftOut(category, "empty, or there is no such category"))
                for member in members:
                    if member["ns"] == _ARTICLES:
                        found.setdefault(member["pageid"], member["title"])
                    elif member["ns"] == _CATEGORIES and member["title"] not in visited:
                        visited.add(member["title"])
                        subcategories.append(member["title"])
            level = subcategories
        return found

    def _iterate_members(self, category: str) -> Iterator[dict[str, Any]]:
        """The pages and subcategories of a category, however many answers they come in."""
        query = {"list": "categorymembers", "cmtitle": category, "cmtype": "page|subcat", "cmlimit": "500"}
        next_part: dict[str, str] | None = {}
        while next_part is not None:
            answer = self._ask({**query, **next_part})
            yield from answer["query"]["categorymembers"]
            next_part = answer.get("continue")

    def _fetch_document(self, page_id: int, title: str) -> Document | str:
        """The page's document, or why it has none. One request brings first revision and text."""
        query = {
            **{"prop": "extracts|info|revisions", "pageids": str(page_id), "explaintext": "1"},
            **{"exsectionformat": "plain", "rvdir": "newer", "rvlimit": "1", "rvprop": "timestamp"},
            **({"exintro": "1"} if self._settings.part == "lead" else {}),
        }
        page = self._ask(query)["query"]["pages"][0]
        if "revisions" not in page:
            return "deleted, or has no revision that can be seen"
        if page.get("redirect"):
            return "a redirect"
        text = remove_tail_sections(page["extract"], "article")
        problem = text_problem(text)
        if problem is not None:
            return f"its text {problem}"
        created = datetime.fromisoformat(page["revisions"][0]["timestamp"]).astimezone(UTC).date()
        address = (
            f"https://{self._settings.language}.wikipedia.org/w/index.php?curid={page_id}&oldid={page['lastrevid']}"
        )
        return build_page_document(self._settings, page_id, title, text, created, address)

    def _ask(self, query: Mapping[str, str]) -> dict[str, Any]:
        params = {"action": "query", "format": "json", "formatversion": "2", "maxlag": _MAXLAG, **query}
        page = self._client.get(self._address, params, max_age=timedelta(days=self._settings.days_kept))
        answer: dict[str, Any] = json.loads(page.content)
        return answer


def _find_refusal(page: FetchedPage) -> str | None:
    """Why an answer must not be kept; raises FetchError where asking again is no use."""
    try:
        answer = json.loads(page.content)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or not ("error" in answer or isinstance(answer.get("query"), dict)):
        return "its answer is not the API's"
    if "error" not in answer:
        return None
    code = str(answer["error"].get("code"))
    problem = f"the API says: {code}: {str(answer['error'].get('info'))[:200]}"
    if code in _PASSING_CODES or code.startswith("internal_api_error"):
        return problem
    raise FetchError(page.url, problem)
