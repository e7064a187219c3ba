"""The Action API against a local server: categories, first revisions, texts, faults, and coming back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

import pytest
from bad_server import Answer, BadServer, Request, fault, truncated

from audit_pipeline.sources import wikipedia as whole
from audit_pipeline.sources.base import FetchedDocuments, LeftOut, collect
from audit_pipeline.sources.web.polite_client import PoliteClient, Politeness
from audit_pipeline.sources.wikipedia import WikipediaSettings

JSON = "application/json; charset=utf-8"


def answer(value: object, **how: object) -> Answer:
    return Answer(json.dumps(value).encode(), JSON, **how)


@dataclass
class Wiki:
    """A small wiki behind api.php; ``faults`` are answered first, then as the API would."""

    pages: dict[int, dict[str, object]]
    categories: dict[str, list[tuple[int, int, str]]]
    faults: list[Answer] = field(default_factory=list)
    batch: int = 2

    def __call__(self, request: Request) -> Answer:
        if self.faults:
            return self.faults.pop(0)
        query = request.query
        assert (query["action"], query["format"], query["formatversion"], query["maxlag"]) == (
            "query",
            "json",
            "2",
            "5",
        )
        return self._members(query) if query.get("list") == "categorymembers" else self._page(query)

    def _members(self, query: Mapping[str, str]) -> Answer:
        members = self.categories.get(query["cmtitle"], [])
        start = int(query.get("cmcontinue", "0"))
        listed = [
            {"pageid": page_id, "ns": namespace, "title": title}
            for page_id, namespace, title in members[start : start + self.batch]
        ]
        body: dict[str, object] = {"query": {"categorymembers": listed}}
        if start + self.batch < len(members):
            body["continue"] = {"cmcontinue": str(start + self.batch), "continue": "-||"}
        return answer(body)

    def _page(self, query: Mapping[str, str]) -> Answer:
        page_id = int(query["pageids"])
        if page_id not in self.pages:
            return answer({"query": {"pages": [{"pageid": page_id, "missing": True}]}})
        asked_for = {"extracts", "info", "revisions"}
        assert set(query["prop"].split("|")) == asked_for
        assert (query["explaintext"], query["rvdir"], query["rvlimit"]) == ("1", "newer", "1")
        page = dict(self.pages[page_id])
        if "exintro" in query:
            page["extract"] = str(page["extract"]).partition("\n\n\n")[0]
        return answer({"continue": {"rvcontinue": "x"}, "query": {"pages": [{"pageid": page_id, "ns": 0, **page}]}})


def wiki_page(title: str, created: str, extract: str, revision: int = 12, **more: object) -> dict[str, object]:
    return {"title": title, "lastrevid": revision, "extract": extract, "revisions": [{"timestamp": created}], **more}


@pytest.fixture
def wiki(server: BadServer) -> Wiki:
    made = Wiki(
        pages={
            1: wiki_page(
                "2023 Orla floods",
                "2023-02-01T10:00:00Z",
                "The 2023 Orla floods began.\n\n\nCourse\nIt rained.\n\n\nSee also",
            ),
            2: wiki_page("Velm fair", "2015-06-30T23:59:59Z", "The Velm fair of 2017.", 23),
            6: wiki_page("2023 flood", "2023-03-01T00:00:00Z", "", redirect=True),
        },
        categories={
            "Category:2023 events": [
                (1, 0, "2023 Orla floods"),
                (3, 0, "List of floods in 2023"),
                (100, 14, "Category:2023 in Velm"),
                (6, 0, "2023 flood"),
                (9, 0, "Gone"),
            ],
            "Category:2023 in Velm": [
                (2, 0, "Velm fair"),
                (1, 0, "2023 Orla floods"),
                (101, 14, "Category:2023 events"),
            ],
        },
    )
    server.serve_by("/w/api.php", made)
    return made


def fetch_pages(
    server: BadServer, folder: Path, pauses: list[float] | None = None, **settings: object
) -> FetchedDocuments:
    values = {"categories": ("2023 events",), "contact": "ann@example.org", **settings}

    def quick(place: Path, politeness: Politeness, **named: object) -> PoliteClient:
        noted = [] if pauses is None else pauses
        return PoliteClient(place, replace(politeness, seconds_between=0.01, timeout=5), sleep=noted.append, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(whole, "PoliteClient", quick)
        return collect(whole.fetch_documents(WikipediaSettings(**values), folder, f"{server.url}/w/api.php"))


def test_pages_of_a_category_and_its_subcategories(server: BadServer, wiki: Wiki, tmp_path: Path) -> None:
    fetched = fetch_pages(server, tmp_path)
    assert fetched.missing == ()
    assert [(page.name, page.title, page.published, page.text) for page in fetched.documents] == [
        ("1", "2023 Orla floods", date(2023, 2, 1), "The 2023 Orla floods began.\n\n\nCourse\nIt rained."),
        ("2", "Velm fair", date(2015, 6, 30), "The Velm fair of 2017."),
    ]
    assert fetched.documents[0].url == "https://en.wikipedia.org/w/index.php?curid=1&oldid=12"
    assert fetched.documents[0].date_kind == "first revision"
    assert {item.part: item.reason for item in fetched.left_out} == {
        "API: 1 (List of floods in 2023)": "a timeline or list, according to its title",
        "API: 1 (2023 flood)": "a redirect",
        "API: 1 (Gone)": "deleted, or without a visible revision",
    }
    agent = server.requests[0].headers["User-Agent"]
    assert agent.startswith("corpus-audit/")
    assert agent.endswith(" (ann@example.org)")
    # 3 answers of the one category, 2 of the other; the list is not asked for.
    assert len(server.requests) == 3 + 2 + 4


def test_depth_and_most_pages(server: BadServer, wiki: Wiki, tmp_path: Path) -> None:
    assert [one.name for one in fetch_pages(server, tmp_path / "a", depth=0).documents] == ["1"]
    few = fetch_pages(server, tmp_path / "b", most_pages=1)
    assert [one.name for one in few.documents] == ["1"]
    assert ("API: 3", "not fetched: most_pages is 1") in {(item.part, item.reason) for item in few.left_out}


def test_a_second_fetch_asks_for_nothing_while_answers_are_kept(server: BadServer, wiki: Wiki, tmp_path: Path) -> None:
    first = fetch_pages(server, tmp_path)
    server.requests.clear()
    assert fetch_pages(server, tmp_path) == first
    assert server.requests == []
    fetch_pages(server, tmp_path, days_kept=0)
    assert len(server.requests) == 3 + 2 + 4


def test_a_busy_server_is_asked_again_after_the_pause_it_wants(server: BadServer, wiki: Wiki, tmp_path: Path) -> None:
    lag = answer(
        {"error": {"code": "maxlag", "info": "Waiting for a server: 7 seconds lagged"}}, headers={"Retry-After": "5"}
    )
    wiki.faults = [lag, fault(429, retry_after=3), fault(503), truncated(b"x" * 2000), Answer(b"<html>busy</html>")]
    pauses: list[float] = []
    fetched = fetch_pages(server, tmp_path, pauses, most_pages=2, depth=0)
    assert [page.name for page in fetched.documents] == []  # five attempts, and the category is missing
    assert fetched.missing[0].collection == "events"
    assert "not the API's" in fetched.missing[0].reason
    assert [pause for pause in pauses if pause > 1] == [5, 3]
    assert [one.name for one in fetch_pages(server, tmp_path).documents] == ["1", "2"]


def test_a_lasting_error_of_the_api_is_not_repeated(server: BadServer, wiki: Wiki, tmp_path: Path) -> None:
    wiki.faults = [answer({"error": {"code": "invalidcategory", "info": "The category name is not valid."}})]
    fetched = fetch_pages(server, tmp_path)
    assert fetched.documents == ()
    assert "invalidcategory: The category name is not valid." in fetched.missing[0].reason
    assert len(server.requests) == 1


def test_a_category_without_pages_is_named(server: BadServer, wiki: Wiki, tmp_path: Path) -> None:
    fetched = fetch_pages(server, tmp_path, categories=("No such thing",))
    assert [(item.part, item.reason) for item in fetched.left_out] == [
        ("Category:No such thing", "the category is empty or does not exist")
    ]


def test_a_page_that_cannot_be_had_is_missing_by_name(server: BadServer, wiki: Wiki, tmp_path: Path) -> None:
    def no_second_page(request: Request) -> Answer:
        return fault(404) if request.query.get("pageids") == "2" else wiki(request)

    server.serve_by("/w/api.php", no_second_page)
    fetched = fetch_pages(server, tmp_path)
    assert [page.name for page in fetched.documents] == ["1"]
    (missing,) = fetched.missing
    assert (missing.part, missing.collection, missing.name) == ("API: Velm fair", "events", "2")


@pytest.mark.parametrize("strange", [[], {"query": []}, "<html>"])
def test_answers_of_another_form_are_named(server: BadServer, wiki: Wiki, tmp_path: Path, strange: object) -> None:
    def odd(request: Request) -> Answer:
        return answer(strange) if request.query.get("pageids") == "1" else wiki(request)

    server.serve_by("/w/api.php", odd)
    fetched = fetch_pages(server, tmp_path, depth=0)
    assert "the response is not a response of the API" in fetched.missing[0].reason


def test_pages_without_text_are_counted(server: BadServer, wiki: Wiki, tmp_path: Path) -> None:
    wiki.pages[1]["extract"] = "References\nA book"
    assert LeftOut("API: 1 (2023 Orla floods)", "its text is empty") in fetch_pages(server, tmp_path, depth=0).left_out
