"""Wikipedia's pages in categories, from the MediaWiki Action API: the day of creation and the current text.

As in Shi et al. 2024 (section 2.2), event pages are dated by the day of their creation. Pages whose title begins with
"Timeline of" or "List of" are left out.

robots.txt is not read, because on Wikimedia's sites it closes /w/ only to search engines. For programs the API's
etiquette applies: a user agent with a contact, one request at a time, maxlag, and back-off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from audit_pipeline.readers.text_rows import explain_unusable_text
from audit_pipeline.sources.base import Document, FetchedItem, LeftOut, MissingPart, UnusableDocumentError
from audit_pipeline.sources.web.polite_client import FetchedPage, FetchError, PoliteClient, Politeness
from audit_pipeline.sources.wikipedia.source import LICENCE, NAME, WikipediaSettings

_MAXLAG = "5"
_PASSING_CODES = frozenset(("maxlag", "ratelimited", "readonly", "timeouterror", "cirrussearch-too-busy-error"))
_ARTICLES = 0
_CATEGORIES = 14
_PART = "API"
_MAX_EXAMPLES = 3

DATE_KIND = "first revision"
_TAIL_SECTIONS = frozenset(
    name.casefold()
    for name in (
        # English
        *("References", "See also", "External links", "Notes", "Further reading", "Bibliography", "Sources"),
        *("Footnotes", "Citations", "Notes and references", "References and notes", "Explanatory notes", "Gallery"),
        *("General references", "Works cited", "Notes and citations"),
        # Chinese, in both scripts
        *("参考文献", "參考文獻", "参考资料", "參考資料", "参考来源", "參考來源", "参考", "參考", "外部链接"),
        *("外部連結", "外部鏈接", "外部连结", "参见", "參見", "参看", "參看", "注释", "註釋", "注釋", "注解"),
        *("註解", "延伸阅读", "延伸閱讀", "相关条目", "相關條目", "脚注", "腳註", "备注", "備註"),
        # German, French, Spanish
        *("Einzelnachweise", "Weblinks", "Siehe auch", "Literatur", "Anmerkungen", "Références", "Voir aussi"),
        *("Liens externes", "Notes et références", "Bibliographie", "Annexes", "Referencias", "Véase también"),
        *("Enlaces externos", "Bibliografía", "Notas"),
    )
)

_Ask = Callable[[Mapping[str, str]], dict[str, Any]]


def iterate_api_pages(settings: WikipediaSettings, client: PoliteClient, address: str) -> Iterator[FetchedItem]:
    """Yield the pages in the categories and their subcategories.

    Skipped pages are summarised by reason: their number, and the titles of the first three.

    Args:
        settings: The settings.
        client: The client.
        address: The address of api.php.
    """

    def ask(query: Mapping[str, str]) -> dict[str, Any]:
        params = {"action": "query", "format": "json", "formatversion": "2", "maxlag": _MAXLAG, **query}
        page = client.get(address, params, max_age=timedelta(days=settings.days_kept))
        answer: dict[str, Any] = json.loads(page.content)
        return answer

    unwanted = re.compile(settings.left_out_title, re.IGNORECASE) if settings.left_out_title else None
    left_out: dict[str, list[str]] = {}
    titles: dict[int, str] = {}
    for item in _walk_categories(settings, ask):
        if not isinstance(item, tuple):
            yield item
        elif unwanted is not None and unwanted.search(item[1]):
            left_out.setdefault("a timeline or list by its title", []).append(item[1])
        else:
            titles[item[0]] = item[1]
    for page_id in list(titles)[: settings.most_pages]:
        try:
            yield _fetch_document(settings, ask, page_id, titles[page_id])
        except UnusableDocumentError as unusable:
            left_out.setdefault(str(unusable), []).append(titles[page_id])
        except FetchError as error:
            yield MissingPart(f"{_PART}: {titles[page_id]}", str(error), settings.collection, str(page_id))
    if len(titles) > settings.most_pages:
        more = len(titles) - settings.most_pages
        yield LeftOut(f"{_PART}: {more}", f"not fetched: most_pages is {settings.most_pages}")
    for reason, skipped_titles in left_out.items():
        examples = ", ".join(skipped_titles[:_MAX_EXAMPLES])
        if len(skipped_titles) > _MAX_EXAMPLES:
            examples += ", …"
        yield LeftOut(f"{_PART}: {len(skipped_titles)} ({examples})", reason)


def _walk_categories(settings: WikipediaSettings, ask: _Ask) -> Iterator[tuple[int, str] | MissingPart | LeftOut]:
    """Yield id and title of each article in the categories and subcategories, breadth first, without duplicates."""
    level: list[str] = []
    for name in settings.categories:
        level.append(name if ":" in name else f"Category:{name}")
    visited: set[int | str] = {*level}
    for _ in range(settings.depth + 1):
        subcategories: list[str] = []
        for category in level:
            members: list[dict[str, Any]] = []
            try:
                members.extend(_iterate_members(category, ask))
            except FetchError as error:
                yield MissingPart(category, str(error), settings.collection)
            else:
                if not members:
                    yield LeftOut(category, "empty, or there is no such category")
            for member in members:
                if member["ns"] == _ARTICLES and member["pageid"] not in visited:
                    visited.add(member["pageid"])
                    yield member["pageid"], member["title"]
                elif member["ns"] == _CATEGORIES and member["title"] not in visited:
                    visited.add(member["title"])
                    subcategories.append(member["title"])
        level = subcategories


def _iterate_members(category: str, ask: _Ask) -> Iterator[dict[str, Any]]:
    """Yield the pages and subcategories of a category. The API returns them in several responses."""
    query = {"list": "categorymembers", "cmtitle": category, "cmtype": "page|subcat", "cmlimit": "500"}
    next_part: dict[str, str] | None = {}
    while next_part is not None:
        answer = ask({**query, **next_part})
        yield from answer["query"]["categorymembers"]
        next_part = answer.get("continue")


def _fetch_document(settings: WikipediaSettings, ask: _Ask, page_id: int, title: str) -> Document:
    """Fetch first revision and text of a page with one request, and return its document.

    Raises:
        UnusableDocumentError: If the page has no usable text.
    """
    query = {
        "prop": "extracts|info|revisions",
        "pageids": str(page_id),
        "explaintext": "1",
        "exsectionformat": "plain",
        "rvdir": "newer",
        "rvlimit": "1",
        "rvprop": "timestamp",
    }
    if settings.part == "lead":
        query["exintro"] = "1"
    page = ask(query)["query"]["pages"][0]
    if "revisions" not in page:
        raise UnusableDocumentError("deleted, or has no revision that can be seen")
    if page.get("redirect"):
        raise UnusableDocumentError("a redirect")
    text = remove_tail_sections(page["extract"])
    problem = explain_unusable_text(text)
    if problem is not None:
        raise UnusableDocumentError(f"its text {problem}")
    created = datetime.fromisoformat(page["revisions"][0]["timestamp"]).astimezone(UTC).date()
    address = f"https://{settings.language}.wikipedia.org/w/index.php?curid={page_id}&oldid={page['lastrevid']}"
    return Document(
        collection=settings.collection,
        # The page id does not change if the page gets another title.
        name=str(page_id),
        title=title,
        text=text,
        published=created,
        date_kind=DATE_KIND,
        language=settings.language,
        licence=LICENCE,
        url=address,
    )


def remove_tail_sections(text: str) -> str:
    """Return the text before sections such as "References" and "See also". Headings are lines without markup."""
    lines: list[str] = []
    for line in map(str.strip, text.split("\n")):
        if line.rstrip(":： ").casefold() in _TAIL_SECTIONS:
            break
        lines.append(line)
    return "\n".join(lines).strip()


def find_refusal(page: FetchedPage) -> str | None:
    """Return the reason why a response must not be cached and the request must be repeated, or None if it is valid.

    Raises:
        FetchError: If a repeated request would have the same error.
    """
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


def fetch_documents(settings: WikipediaSettings, downloads: Path, api: str | None = None) -> Iterator[FetchedItem]:
    """Yield the event pages, and the numbers of skipped pages by reason.

    Responses of the API are stored for ``days_kept`` days, so that an interrupted fetch does not request them again.

    Args:
        settings: The settings.
        downloads: The folder of stored responses.
        api: The address of api.php. By default that of the language's Wikipedia.
    """
    politeness = Politeness(settings.contact or "", settings.seconds_between, obey_robots=False)
    address = api or f"https://{settings.language}.wikipedia.org/w/api.php"
    with PoliteClient(downloads / NAME, politeness, find_refusal=find_refusal) as client:
        yield from iterate_api_pages(settings, client, address)
