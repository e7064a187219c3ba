"""Source of Wikipedia's event pages with the day of their creation, from the MediaWiki Action API.

The benchmark wikimia uses the pages to rebuild WikiMIA with current events.

As in Shi et al. 2024 (section 2.2), event pages are dated by the day of their creation. Pages whose title begins with
"Timeline of" or "List of" are skipped, and so are pages with similar titles.

robots.txt is not read, because Wikimedia's robots.txt excludes only search engines from the addresses of the API. The
client follows the rules of the API. It sends a contact and the parameter maxlag, one request at a time, and pauses
longer after each failure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints

from audit_pipeline.config.validation import Language, Text
from audit_pipeline.readers.text_rows import explain_unusable_text
from audit_pipeline.sources import base

if TYPE_CHECKING:
    from audit_pipeline.sources.web.polite_client import FetchedPage, PoliteClient

NAME = "wikipedia"
LICENCE = "CC BY-SA 4.0"

Part = Literal["lead", "article"]

LEFT_OUT_TITLE = r"^(?:Timeline|List|Lists|Outline|Index) of\b|(?:列表|年表)$"


def _require_regular_expression(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"must be a regular expression ({error})") from error
    return value


Expression = Annotated[str, StringConstraints(min_length=1), AfterValidator(_require_regular_expression)]


class WikipediaSettings(base.SourceSection):
    """The settings of the source: event pages in categories of a Wikipedia."""

    categories: tuple[Text, ...] = Field(
        default=(),
        description="categories whose pages are fetched, such as 2023 events; empty: nothing is fetched; categories "
        "require 'contact'",
    )
    depth: Annotated[int, Field(ge=0, le=10)] = Field(
        default=1,
        description="number of levels of subcategories whose pages are fetched, too; 0: only the categories themselves",
    )
    most_pages: Annotated[int, Field(ge=1)] = Field(
        default=1000, description="maximum number of pages; further pages are skipped and counted"
    )
    contact: Text | None = Field(
        default=None,
        description="your e-mail address or web page, so that the site can reach you; it is sent with every request",
    )
    seconds_between: Annotated[float, Field(ge=0.5, le=3600)] = Field(
        default=1.0, description="pause between two requests, in seconds"
    )
    days_kept: Annotated[int, Field(ge=0, le=36_500)] = Field(
        default=7, description="number of days for which a stored response of the API is reused"
    )
    language: Language = Field(default="en", description="language of the Wikipedia (ISO 639-1)")
    part: Part = Field(
        default="article",
        description="part of the page to use; article: the whole page; lead: the text before its first heading",
    )
    left_out_title: Expression | None = Field(
        default=LEFT_OUT_TITLE,
        description="regular expression; pages with a matching title are skipped; None: no title is skipped",
    )
    collection: base.Collection = Field(default="events", description="name of the collection of these pages")

    @property
    def missing_setting(self) -> str | None:
        """Return the instruction for a missing setting, or None if the source is ready."""
        if not self.categories:
            missing = (
                "categories to the categories to fetch, such as [2023 events], and wikipedia.contact to your e-mail "
                "address or web page"
            )
        elif self.contact is None:
            missing = (
                "contact to your e-mail address or web page, so that the site can reach you. It is sent with every "
                "request."
            )
        else:
            return None
        return f"in config/{base.FILE_NAME}, set {NAME}.{missing}"


_MAXLAG = "5"
_TRANSIENT_CODES = frozenset(("maxlag", "ratelimited", "readonly", "timeouterror", "cirrussearch-too-busy-error"))
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


def iterate_api_pages(settings: WikipediaSettings, client: PoliteClient, address: str) -> Iterator[base.FetchedItem]:
    """Fetch and yield the pages in the categories and their subcategories.

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
            left_out.setdefault("the title matches wikipedia.left_out_title", []).append(item[1])
        else:
            titles[item[0]] = item[1]
    for page_id in list(titles)[: settings.most_pages]:
        try:
            yield _fetch_document(settings, ask, page_id, titles[page_id])
        except base.UnusableDocumentError as unusable:
            left_out.setdefault(str(unusable), []).append(titles[page_id])
        except base.FetchError as error:
            yield base.MissingPart(f"{_PART}: {titles[page_id]}", str(error), settings.collection, str(page_id))
    if len(titles) > settings.most_pages:
        more = len(titles) - settings.most_pages
        yield base.LeftOut(
            f"{_PART}: {more} of the pages", f"not fetched, because wikipedia.most_pages is {settings.most_pages}"
        )
    for reason, skipped_titles in left_out.items():
        examples = ", ".join(skipped_titles[:_MAX_EXAMPLES])
        if len(skipped_titles) > _MAX_EXAMPLES:
            examples += ", …"
        yield base.LeftOut(f"{_PART}: {len(skipped_titles)} of the pages ({examples})", reason)


def _walk_categories(
    settings: WikipediaSettings, ask: _Ask
) -> Iterator[tuple[int, str] | base.MissingPart | base.LeftOut]:
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
            except base.FetchError as error:
                yield base.MissingPart(category, str(error), settings.collection)
            else:
                if not members:
                    yield base.LeftOut(
                        category, "the category is empty or does not exist. Check its name in wikipedia.categories."
                    )
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


def _fetch_document(settings: WikipediaSettings, ask: _Ask, page_id: int, title: str) -> base.Document:
    """Fetch the text of a page and the date of its first revision with one request, and return the document.

    Raises:
        base.UnusableDocumentError: If the page has no usable text.
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
        raise base.UnusableDocumentError("the page is deleted or has no visible revision")
    if page.get("redirect"):
        raise base.UnusableDocumentError("the page is a redirect")
    text = remove_tail_sections(page["extract"])
    problem = explain_unusable_text(text)
    if problem is not None:
        raise base.UnusableDocumentError(f"the text {problem}")
    created = datetime.fromisoformat(page["revisions"][0]["timestamp"]).astimezone(UTC).date()
    address = f"https://{settings.language}.wikipedia.org/w/index.php?curid={page_id}&oldid={page['lastrevid']}"
    return base.Document(
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


def find_retry_reason(page: FetchedPage) -> str | None:
    """Return the reason for repeating a request after an invalid response, or None if the response is valid.

    Raises:
        base.FetchError: If a repeated request would fail, too.
    """
    try:
        answer = json.loads(page.content)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or not ("error" in answer or isinstance(answer.get("query"), dict)):
        return "the response is not a result of the MediaWiki API"
    if "error" not in answer:
        return None
    code = str(answer["error"].get("code"))
    problem = f"the API reports the error {code}: {str(answer['error'].get('info'))[:200]}"
    if code in _TRANSIENT_CODES or code.startswith("internal_api_error"):
        return problem
    raise base.FetchError(page.url, problem)


def fetch_documents(settings: WikipediaSettings, downloads: Path, api: str | None = None) -> Iterator[base.FetchedItem]:
    """Return an iterator that fetches the event pages. It also yields the numbers of skipped pages by reason.

    Responses of the API are stored for ``days_kept`` days, so that an interrupted fetch does not request them again.

    Args:
        settings: The settings.
        downloads: The folder of stored responses.
        api: The address of api.php. By default the address for the Wikipedia in the language of the settings.
    """
    # The client imports a cache of responses and a parser of robots.txt, which is slow.
    from audit_pipeline.sources.web.polite_client import PoliteClient, Politeness  # noqa: PLC0415

    politeness = Politeness(settings.contact or "", settings.seconds_between, obey_robots=False)
    address = api or f"https://{settings.language}.wikipedia.org/w/api.php"

    def iterate_documents() -> Iterator[base.FetchedItem]:
        with PoliteClient(downloads / NAME, politeness, find_retry_reason=find_retry_reason) as client:
            yield from iterate_api_pages(settings, client, address)

    return iterate_documents()


SOURCE = base.Source(
    NAME,
    "Event pages of Wikipedia by the day of their creation, from its API.",
    LICENCE,
    WikipediaSettings,
    fetch_documents,
    on_request=True,
)
