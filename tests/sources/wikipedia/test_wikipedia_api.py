"""Pages of Wikipedia from a local server that answers as the Action API."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from bad_server import Answer, BadServer, Request, fault, json_answer, truncated

from audit_pipeline.sources.base import FetchedDocuments, LeftOut, collect
from audit_pipeline.sources.web import polite_client
from audit_pipeline.sources.web.polite_client import FetchedPage, PoliteClient, Politeness
from audit_pipeline.sources.wikipedia import WikipediaSettings, fetch_documents, find_retry_reason, remove_tail_sections

# The members of the categories: page id, namespace (14 is a category) and title.
CATEGORIES = {
    "Category:2023 events": [
        *((1, 0, "2023 Orla floods"), (3, 0, "List of floods in 2023"), (100, 14, "Category:2023 in Velm")),
        *((6, 0, "2023 flood"), (9, 0, "Gone")),
    ],
    "Category:2023 in Velm": [(2, 0, "Velm fair"), (1, 0, "2023 Orla floods"), (101, 14, "Category:2023 events")],
}
FLOODS = "The 2023 Orla floods began.\n\n\nCourse\nIt rained.\n\n\nSee also"
# The pages: creation, last revision and text. The page 9 is deleted.
PAGES: dict[str, dict[str, object]] = {
    "1": {"revisions": [{"timestamp": "2023-02-01T10:00:00Z"}], "lastrevid": 12, "extract": FLOODS},
    "2": {"revisions": [{"timestamp": "2015-06-30T23:59:59Z"}], "lastrevid": 23, "extract": "The Velm fair of 2017."},
    "6": {"revisions": [{"timestamp": "2023-03-01T00:00:00Z"}], "lastrevid": 1, "extract": "", "redirect": True},
    "9": {"missing": True},
}
BATCH = 2


def answer_query(request: Request) -> Answer:
    """Answer a request as the API does. Members of a category come in batches."""
    query = request.query
    assert query.items() >= {"action": "query", "format": "json", "formatversion": "2", "maxlag": "5"}.items()
    if "pageids" in query:
        assert set(query["prop"].split("|")) == {"extracts", "info", "revisions"}
        assert (query["explaintext"], query["rvdir"], query["rvlimit"]) == ("1", "newer", "1")
        return json_answer({"continue": {"rvcontinue": "x"}, "query": {"pages": [PAGES[query["pageids"]]]}})
    members = CATEGORIES.get(query["cmtitle"], [])
    start = int(query.get("cmcontinue", "0"))
    listed = [dict(zip(("pageid", "ns", "title"), member, strict=True)) for member in members[start : start + BATCH]]
    body: dict[str, object] = {"query": {"categorymembers": listed}}
    if start + BATCH < len(members):
        body["continue"] = {"cmcontinue": str(start + BATCH), "continue": "-||"}
    return json_answer(body)


@pytest.fixture
def wiki(server: BadServer) -> BadServer:
    server.serve_by("/w/api.php", answer_query)
    return server


def fetch_pages(
    wiki: BadServer, folder: Path, pauses: list[float] | None = None, **settings: object
) -> FetchedDocuments:
    """Fetch the pages with short pauses. Pauses before retries are added to a list."""
    values = {"categories": ("2023 events",), "contact": "ann@example.org", **settings}
    noted = [] if pauses is None else pauses

    def open_client(place: Path, politeness: Politeness, **named: object) -> PoliteClient:
        return PoliteClient(place, replace(politeness, seconds_between=0, timeout=5), sleep=noted.append, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(polite_client, "PoliteClient", open_client)
        return collect(fetch_documents(WikipediaSettings(**values), folder, f"{wiki.url}/w/api.php"))


def test_pages_of_a_category_and_its_subcategories(wiki: BadServer, tmp_path: Path) -> None:
    fetched = fetch_pages(wiki, tmp_path)
    assert fetched.missing == ()
    assert [(page.name, page.title, page.published, page.text) for page in fetched.documents] == [
        ("1", "2023 Orla floods", date(2023, 2, 1), "The 2023 Orla floods began.\n\n\nCourse\nIt rained."),
        ("2", "Velm fair", date(2015, 6, 30), "The Velm fair of 2017."),
    ]
    assert fetched.documents[0].url == "https://en.wikipedia.org/w/index.php?curid=1&oldid=12"
    assert fetched.documents[0].date_kind == "first revision"
    assert {item.part: item.reason for item in fetched.left_out} == {
        "API: 1 of the pages (List of floods in 2023)": "the title matches wikipedia.left_out_title",
        "API: 1 of the pages (2023 flood)": "the page is a redirect",
        "API: 1 of the pages (Gone)": "the page is deleted or has no visible revision",
    }
    agent = wiki.requests[0].headers["User-Agent"]
    assert agent.startswith("corpus-audit/")
    assert agent.endswith(" (ann@example.org)")
    # The categories have 3 and 2 batches. The list is not requested.
    assert len(wiki.requests) == 3 + 2 + 4


def test_depth_and_most_pages(wiki: BadServer, tmp_path: Path) -> None:
    assert [one.name for one in fetch_pages(wiki, tmp_path / "a", depth=0).documents] == ["1"]
    few = fetch_pages(wiki, tmp_path / "b", most_pages=1)
    assert [one.name for one in few.documents] == ["1"]
    assert ("API: 3 of the pages", "not fetched, because wikipedia.most_pages is 1") in {
        (item.part, item.reason) for item in few.left_out
    }


def test_a_second_fetch_reuses_the_responses_for_days_kept(wiki: BadServer, tmp_path: Path) -> None:
    first = fetch_pages(wiki, tmp_path)
    wiki.requests.clear()
    assert fetch_pages(wiki, tmp_path) == first
    assert wiki.requests == []
    fetch_pages(wiki, tmp_path, days_kept=0)
    assert len(wiki.requests) == 3 + 2 + 4


def test_requests_to_a_busy_server_are_repeated_after_the_requested_pause(wiki: BadServer, tmp_path: Path) -> None:
    lag = json_answer(
        {"error": {"code": "maxlag", "info": "Waiting for a server: 7 seconds lagged"}}, headers={"Retry-After": "5"}
    )
    faults = iter([lag, fault(429, retry_after=3), fault(503), truncated(b"x" * 2000), Answer(b"<html>busy</html>")])
    wiki.serve_by("/w/api.php", lambda request: next(faults, None) or answer_query(request))
    pauses: list[float] = []
    fetched = fetch_pages(wiki, tmp_path, pauses, most_pages=2, depth=0)
    assert [page.name for page in fetched.documents] == []  # five attempts, and the category is missing
    assert fetched.missing[0].collection == "events"
    assert "not a result of the MediaWiki API" in fetched.missing[0].reason
    assert [pause for pause in pauses if pause > 1] == [5, 3]
    assert [one.name for one in fetch_pages(wiki, tmp_path).documents] == ["1", "2"]


def test_a_lasting_error_of_the_api_is_not_repeated(wiki: BadServer, tmp_path: Path) -> None:
    error = {"code": "invalidcategory", "info": "The category name is not valid."}
    wiki.serve("/w/api.php", json_answer({"error": error}))
    fetched = fetch_pages(wiki, tmp_path)
    assert fetched.documents == ()
    assert "invalidcategory: The category name is not valid." in fetched.missing[0].reason
    assert len(wiki.requests) == 1


def test_an_empty_category_is_reported(wiki: BadServer, tmp_path: Path) -> None:
    fetched = fetch_pages(wiki, tmp_path, categories=("No such thing",))
    assert [(item.part, item.reason) for item in fetched.left_out] == [
        ("Category:No such thing", "the category is empty or does not exist. Check its name in wikipedia.categories.")
    ]


def test_an_unavailable_page_is_a_missing_part(wiki: BadServer, tmp_path: Path) -> None:
    def no_second_page(request: Request) -> Answer:
        return fault(404) if request.query.get("pageids") == "2" else answer_query(request)

    wiki.serve_by("/w/api.php", no_second_page)
    fetched = fetch_pages(wiki, tmp_path)
    assert [page.name for page in fetched.documents] == ["1"]
    (missing,) = fetched.missing
    assert (missing.part, missing.collection, missing.name) == ("API: Velm fair", "events", "2")


@pytest.mark.parametrize("strange", [[], {"query": []}, "<html>"])
def test_responses_of_another_form_are_refused(strange: object) -> None:
    page = FetchedPage("http://wiki/w/api.php", json.dumps(strange).encode())
    assert find_retry_reason(page) == "the response is not a result of the MediaWiki API"


def test_pages_without_text_are_counted(wiki: BadServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PAGES["1"], "extract", "References\nA book")
    assert (
        LeftOut("API: 1 of the pages (2023 Orla floods)", "the text is empty")
        in fetch_pages(wiki, tmp_path, depth=0).left_out
    )


def test_a_text_ends_at_its_references() -> None:
    english = "The floods began.\n\nThey rose. \n\nCourse \n\nIt rained.\n\nReferences\n\nExternal links\nCategory:X"
    assert remove_tail_sections(english) == "The floods began.\n\nThey rose.\n\nCourse\n\nIt rained."
    assert remove_tail_sections("只有一段。\n\n历史\n\n很久。\n\n参考文献\n\n书") == "只有一段。\n\n历史\n\n很久。"


@pytest.mark.parametrize(
    ("settings", "instruction"),
    [
        ({}, "in config/sources.yaml, set wikipedia.categories"),
        ({"categories": ("2023 events",)}, "in config/sources.yaml, set wikipedia.contact to your e-mail address"),
        ({"categories": ("2023 events",), "contact": "ann@example.org"}, ""),
    ],
)
def test_missing_settings_are_reported(settings: dict[str, object], instruction: str) -> None:
    assert (WikipediaSettings.model_validate(settings).missing_setting or "").startswith(instruction)
