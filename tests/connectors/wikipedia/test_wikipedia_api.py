"""The Action API against a local server: categories, first revisions, texts of a day, faults, and coming back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

import pytest
from bad_server import Answer, BadServer, Request, fault, truncated
from made_wikipedia import FAIR, FAIR_BY_2016, FAIR_LATER, FLOOD, FLOOD_LATER, Rev

from audit_pipeline.connectors.polite_client import PoliteClient, Politeness
from audit_pipeline.connectors.wikipedia.api import harvest_api
from audit_pipeline.connectors.wikipedia.settings import WikipediaSettings
from audit_pipeline.errors import SourceError
from audit_pipeline.sources.base import Harvest

JSON = "application/json; charset=utf-8"


def answer(value: object, **how: object) -> Answer:
    return Answer(json.dumps(value).encode(), JSON, **how)


@dataclass
class Wiki:
    """A small wiki behind api.php; ``faults`` are answered first, then as the API would."""

    pages: dict[int, tuple[str, list[Rev]]]
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
        return self._members(query) if query.get("list") == "categorymembers" else self._revision(query)

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

    def _revision(self, query: Mapping[str, str]) -> Answer:
        page_id = int(query["pageids"])
        if page_id not in self.pages:
            return answer({"query": {"pages": [{"pageid": page_id, "missing": True}]}})
        title, revisions = self.pages[page_id]
        ordered = sorted(revisions, key=lambda one: one.timestamp, reverse=query["rvdir"] == "older")
        start = query.get("rvstart")
        chosen = next(one for one in ordered if start is None or one.timestamp <= start)
        shown: dict[str, object] = {
            "revid": chosen.revision_id,
            "parentid": chosen.parent,
            "timestamp": chosen.timestamp,
        }
        if "content" in query["rvprop"]:
            shown["slots"] = {"main": {"contentmodel": "wikitext", "content": chosen.text}}
        page = {"pageid": page_id, "ns": 0, "title": title, "revisions": [shown]}
        return answer({"continue": {"rvcontinue": "x"}, "query": {"pages": [page]}})


@pytest.fixture
def server() -> Iterator[BadServer]:
    with BadServer() as running:
        yield running


@pytest.fixture
def wiki(server: BadServer) -> Wiki:
    made = Wiki(
        pages={
            1: ("2023 Orla floods", [FLOOD, FLOOD_LATER]),
            2: ("Velm fair", [FAIR, FAIR_BY_2016, FAIR_LATER]),
            6: ("2023 flood", [Rev(61, 0, "2023-03-01T00:00:00Z", "#REDIRECT [[2023 Orla floods]]")]),
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


def harvested(server: BadServer, folder: Path, pauses: list[float] | None = None, **settings: object) -> Harvest:
    values = {"categories": ("2023 events",), "contact": "ann@example.org", **settings}

    def quick(place: Path, politeness: Politeness) -> PoliteClient:
        noted = [] if pauses is None else pauses
        return PoliteClient(place, replace(politeness, seconds_between=0.01, timeout=5), sleep=noted.append)

    return harvest_api(WikipediaSettings(**values), folder, f"{server.url}/w/api.php", quick)


def test_pages_of_a_category_and_its_subcategories(server: BadServer, wiki: Wiki, tmp_path: Path) -> None:
    harvest = harvested(server, tmp_path)
    assert harvest.missing == ()
    assert [(one.name, one.title, one.published, one.text) for one in harvest.documents] == [
        ("1", "2023 Orla floods", date(2023, 2, 1), "The 2023 Orla floods began and ended."),
        ("2", "Velm fair", date(2015, 6, 30), "The Velm fair of 2017."),
    ]
    assert harvest.documents[0].url == "https://en.wikipedia.org/w/index.php?curid=1&oldid=12"
    assert harvest.documents[0].date_kind == "first revision"
    assert {item.part: item.reason for item in harvest.left_out} == {
        "API: 1 page (List of floods in 2023)": "a timeline or list by its title",
        "API: 1 page (2023 flood)": "a redirect",
        "API: Gone": "deleted, or has no revision that can be seen",
    }
    agent = server.requests[0].headers["User-Agent"]
    assert agent.startswith("corpus-audit/")
    assert agent.endswith(" (ann@example.org)")
    # 3 answers of the one category, 2 of the other; the list is not asked for; the deleted page only once.
    assert len(server.requests) == 3 + 2 + 2 + 2 + 2 + 1


def test_depth_and_most_pages(server: BadServer, wiki: Wiki, tmp_path: Path) -> None:
    assert [one.name for one in harvested(server, tmp_path / "a", depth=0).documents] == ["1"]
    few = harvested(server, tmp_path / "b", most_pages=1)
    assert [one.name for one in few.documents] == ["1"]
    assert ("API: 3 pages", "not fetched: most_pages is 1") in {(item.part, item.reason) for item in few.left_out}


def test_text_as_of_a_day(server: BadServer, wiki: Wiki, tmp_path: Path) -> None:
    harvest = harvested(server, tmp_path, as_of=date(2016, 12, 31))
    assert [(one.text, one.url.rpartition("=")[2]) for one in harvest.documents] == [
        ("The 2023 Orla floods began and ended.", "12"),
        ("The Velm fair of 2016.", "22"),
    ]
    starts = [request.query.get("rvstart") for request in server.requests if request.query.get("pageids") == "2"]
    assert starts == [None, "2016-12-31T23:59:59Z"]


def test_only_the_lead(server: BadServer, wiki: Wiki, tmp_path: Path) -> None:
    wiki.pages[1] = ("2023 Orla floods", [replace(FLOOD, text="The lead.\n== Course ==\nThe rest.")])
    assert harvested(server, tmp_path, part="lead", depth=0).documents[0].text == "The lead."


def test_a_second_harvest_asks_for_nothing_while_answers_are_kept(
    server: BadServer, wiki: Wiki, tmp_path: Path
) -> None:
    first = harvested(server, tmp_path)
    server.requests.clear()
    assert harvested(server, tmp_path) == first
    assert server.requests == []
    # Without keeping, the first revisions still stand: they never change.
    harvested(server, tmp_path, days_kept=0)
    assert {request.query.get("rvdir") for request in server.requests} == {None, "older"}


def test_a_busy_server_is_asked_again_after_the_pause_it_wants(server: BadServer, wiki: Wiki, tmp_path: Path) -> None:
    lag = answer(
        {"error": {"code": "maxlag", "info": "Waiting for a server: 7 seconds lagged"}}, headers={"Retry-After": "5"}
    )
    wiki.faults = [lag, fault(429, retry_after=3), fault(503), truncated(b"x" * 2000), Answer(b"<html>busy</html>")]
    pauses: list[float] = []
    harvest = harvested(server, tmp_path, pauses, most_pages=2, depth=0)
    assert [one.name for one in harvest.documents] == []  # five attempts, and the category is missing
    assert harvest.missing[0].collection == "events"
    assert "not the API's" in harvest.missing[0].reason
    assert [pause for pause in pauses if pause > 1] == [5, 3]
    assert [one.name for one in harvested(server, tmp_path).documents] == ["1", "2"]


def test_faults_in_mid_harvest_lose_nothing(server: BadServer, wiki: Wiki, tmp_path: Path) -> None:
    turn = iter(range(10_000))

    def flaky(request: Request) -> Answer:
        return (fault(500), fault(429), wiki(request), wiki(request))[next(turn) % 4]

    server.serve_by("/w/api.php", flaky)
    assert [one.name for one in harvested(server, tmp_path).documents] == ["1", "2"]


def test_a_lasting_error_of_the_api_is_not_repeated(server: BadServer, wiki: Wiki, tmp_path: Path) -> None:
    wiki.faults = [answer({"error": {"code": "invalidcategory", "info": "The category name is not valid."}})]
    harvest = harvested(server, tmp_path)
    assert harvest.documents == ()
    assert "invalidcategory: The category name is not valid." in harvest.missing[0].reason
    assert len(server.requests) == 1


def test_a_category_without_pages_is_named(server: BadServer, wiki: Wiki, tmp_path: Path) -> None:
    harvest = harvested(server, tmp_path, categories=("No such thing",))
    assert [(item.part, item.reason) for item in harvest.left_out] == [
        ("Category:No such thing", "empty, or there is no such category")
    ]


def test_a_page_that_cannot_be_had_is_missing_by_name(server: BadServer, wiki: Wiki, tmp_path: Path) -> None:
    def no_second_page(request: Request) -> Answer:
        return fault(404) if request.query.get("pageids") == "2" else wiki(request)

    server.serve_by("/w/api.php", no_second_page)
    harvest = harvested(server, tmp_path)
    assert [one.name for one in harvest.documents] == ["1"]
    (missing,) = harvest.missing
    assert (missing.part, missing.collection, missing.name) == ("API: Velm fair", "events", "2")


def test_a_site_that_is_gone_is_left_alone(server: BadServer, wiki: Wiki, tmp_path: Path) -> None:
    wiki.categories["Category:2023 events"] = [(n, 0, f"2023 event {n}") for n in range(1, 21)]

    def gone(request: Request) -> Answer:
        return fault(403) if "pageids" in request.query else wiki(request)

    server.serve_by("/w/api.php", gone)
    harvest = harvested(server, tmp_path)
    assert len(harvest.missing) == 6
    assert harvest.missing[-1].part == "API: 15 pages"
    assert harvest.missing[-1].name is None
    assert len([one for one in server.requests if "pageids" in one.query]) == 5


@pytest.mark.parametrize(
    "strange",
    [{"query": {"pages": [{"revisions": [{"revid": "x"}]}]}}, {"query": []}, {"query": {"pages": [{"title": 1}]}}],
)
def test_answers_of_another_form_are_named(server: BadServer, wiki: Wiki, tmp_path: Path, strange: object) -> None:
    def odd(request: Request) -> Answer:
        return answer(strange) if request.query.get("pageids") == "1" else wiki(request)

    server.serve_by("/w/api.php", odd)
    harvest = harvested(server, tmp_path, depth=0)
    assert "its answer is not the API's" in harvest.missing[0].reason


def test_hidden_text_is_left_out(server: BadServer, wiki: Wiki, tmp_path: Path) -> None:
    hidden = {"revid": 1, "timestamp": "2023-01-01T00:00:00Z", "slots": {"main": {"texthidden": True}}}

    def hide(request: Request) -> Answer:
        if request.query.get("pageids") == "1":
            return answer({"query": {"pages": [{"title": "2023 Orla floods", "revisions": [hidden]}]}})
        return wiki(request)

    server.serve_by("/w/api.php", hide)
    harvest = harvested(server, tmp_path, depth=0)
    assert ("API: 2023 Orla floods", "its text is hidden or deleted") in {(i.part, i.reason) for i in harvest.left_out}


def test_a_contact_must_be_set(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"set wikipedia\.contact"):
        harvest_api(WikipediaSettings(categories=("2023 events",)), tmp_path)
    assert harvest_api(WikipediaSettings(), tmp_path) == Harvest(())
