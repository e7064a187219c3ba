"""The crawl of a list of numbers, against a server on the loopback interface that misbehaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from bad_server import Answer, BadServer, fault, robots
from made_patents import page

from audit_pipeline.errors import SourceError
from audit_pipeline.sources.base import MissingPart, collect
from audit_pipeline.sources.patents.crawl import crawl_pages, find_refusal, read_numbers
from audit_pipeline.sources.patents.harvest import harvest
from audit_pipeline.sources.patents.page import RawPage
from audit_pipeline.sources.patents.source import PatentsSettings
from audit_pipeline.sources.web.polite_client import PoliteClient, Politeness

NUMBERS = [f"CN10000000{place}A" for place in range(8)]


@pytest.fixture
def site() -> Iterator[BadServer]:
    """Every number has its page."""
    with BadServer(lambda request: found(number_of(request.path))) as running:
        running.serve("/robots.txt", robots(""))
        yield running


def found(number: str) -> Answer:
    return Answer(page(number).encode(), "text/html")


def number_of(path: str) -> str:
    return path.split("/")[2]


def asked(site: BadServer) -> Counter[str]:
    return Counter(map(number_of, site.asked()))


def client(folder: Path) -> PoliteClient:
    polite = Politeness("ann@example.org", seconds_between=0, attempts=3, timeout=5)
    return PoliteClient(folder, polite, find_refusal=find_refusal, sleep=lambda _: None)


def crawl(site: BadServer, folder: Path, numbers: list[str]) -> tuple[list[str], dict[str, str]]:
    with client(folder) as polite:
        found = list(crawl_pages(numbers, polite, site.url))
    missing = [item for item in found if isinstance(item, MissingPart)]
    assert all((item.collection, item.name) == ("CN", item.part) for item in missing)
    return [item.name for item in found if isinstance(item, RawPage)], {item.part: item.reason for item in missing}


def test_faults_of_one_page_cost_that_page_and_passing_ones_none(site: BadServer, tmp_path: Path) -> None:
    for number, faults in {
        NUMBERS[0]: [fault(429), fault(503)],
        NUMBERS[1]: [fault(404)],
        NUMBERS[2]: [fault(410)],
        NUMBERS[4]: [Answer(b"<html>We are busy, please wait.</html>", "text/html")],
        NUMBERS[6]: [fault(500)] * 3,
    }.items():
        site.serve(f"/patent/{number}/zh", *faults, found(number))
    pages, missing = crawl(site, tmp_path, NUMBERS)
    assert pages == [NUMBERS[place] for place in (0, 3, 4, 5, 7)]
    assert missing.keys() == {NUMBERS[1], NUMBERS[2], NUMBERS[6]}
    # The notice that the site was busy was not taken for the page.
    with client(tmp_path) as polite:
        assert [item.content for item in crawl_pages([NUMBERS[4]], polite, site.url) if isinstance(item, RawPage)] == [
            page(NUMBERS[4]).encode()
        ]
    # What failed is asked for again the next time, the rest is not.
    before = asked(site)
    assert crawl(site, tmp_path, NUMBERS) == (NUMBERS, {})
    assert asked(site) - before == dict.fromkeys(missing, 1)


def test_the_source_crawls_and_parses(site: BadServer, tmp_path: Path) -> None:
    path = tmp_path / "numbers.txt"
    path.write_text(f"{NUMBERS[0]}\n{NUMBERS[1]}\nfoo\n")
    settings = PatentsSettings(crawl=path, contact="ann@example.org", seconds_between=1, limit=1)
    found = collect(harvest(settings, tmp_path / "downloads", date(2024, 12, 31), site.url))
    assert [document.name for document in found.documents] == [NUMBERS[0]]
    assert [document.url for document in found.documents] == [f"https://patents.google.com/patent/{NUMBERS[0]}/zh"]
    assert [item.reason for item in found.left_out] == [
        "no publication number: 'foo'",
        "numbers over the limit of 1: 1",
    ]
    assert (tmp_path / "downloads" / "patents").is_dir()
    assert all(request.headers["User-Agent"].endswith("(ann@example.org)") for request in site.requests)


def test_the_list(tmp_path: Path) -> None:
    path = tmp_path / "numbers.txt"
    path.write_bytes(
        (
            "\ufeff# 样本\r\nCN-100000001-A\r\n\nCN100000002A # 灯\nUS2020000001A1\nnot one\n"
            "CN100000001A\nCN100000003B\n"
        ).encode()
    )
    numbers, left_out = read_numbers(path, ("CN",))
    assert numbers == ["CN100000001A", "CN100000002A", "CN100000003B"]
    assert {item.part: item.reason for item in left_out} == {
        "numbers.txt:5": "not of CN: US2020000001A1",
        "numbers.txt:6": "no publication number: 'not one'",
    }
    numbers, left_out = read_numbers(path, ("CN", "US"), limit=2)
    assert numbers == ["CN100000001A", "CN100000002A"]
    assert left_out[-1].reason == "numbers over the limit of 2: 2"


def test_lists_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "gb.txt").write_bytes("灯".encode("gb18030"))
    with pytest.raises(SourceError, match="save it as UTF-8"):
        read_numbers(tmp_path / "gb.txt", ("CN",))
    with pytest.raises(SourceError, match="cannot be read"):
        read_numbers(tmp_path / "nowhere.txt", ("CN",))
