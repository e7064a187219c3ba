"""The crawl of a list of numbers, against a server on the loopback interface that misbehaves."""

from __future__ import annotations

import gzip
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from made_patents import page

from audit_pipeline.connectors.patents.crawl import crawl_pages, find_refusal, read_numbers
from audit_pipeline.connectors.patents.harvest import harvest
from audit_pipeline.connectors.patents.page import RawPage
from audit_pipeline.connectors.patents.source import PatentsSettings
from audit_pipeline.connectors.polite_client import PoliteClient, Politeness
from audit_pipeline.errors import SourceError
from audit_pipeline.sources.base import MissingPart

NUMBERS = [f"CN10000000{place}A" for place in range(8)]


class Site:
    """Answers by number: a status, then what follows; a number without any is served its page."""

    def __init__(self) -> None:
        self.faults: dict[str, list[int | bytes]] = {}
        self.robots = b""
        self.asked: Counter[str] = Counter()
        self.agents: set[str] = set()
        self.address = ""


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.agents.add(self.headers["User-Agent"])
            if self.path == "/robots.txt":
                self.answer(200, made.robots, "text/plain")
                return
            number = self.path.split("/")[2]
            made.asked[number] += 1
            fault = made.faults[number].pop(0) if made.faults.get(number) else page(number).encode()
            if isinstance(fault, int):
                self.answer(fault, b"", "text/html")
            else:
                self.answer(200, fault, "text/html")

        def answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            if body.startswith(b"\x1f\x8b"):
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    made.address = f"http://127.0.0.1:{server.server_address[1]}"
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


def client(folder: Path) -> PoliteClient:
    polite = Politeness("ann@example.org", seconds_between=0, attempts=3, timeout=5)
    return PoliteClient(folder, polite, find_refusal=find_refusal, sleep=lambda _: None)


def crawl(site: Site, folder: Path, numbers: list[str]) -> tuple[list[str], dict[str, str]]:
    with client(folder) as polite:
        found = list(crawl_pages(numbers, polite, site.address))
    missing = [item for item in found if isinstance(item, MissingPart)]
    assert all((item.collection, item.name) == ("CN", item.part) for item in missing)
    return [item.name for item in found if isinstance(item, RawPage)], {item.part: item.reason for item in missing}


def test_pages_come_once_and_again_from_the_store(site: Site, tmp_path: Path) -> None:
    assert crawl(site, tmp_path, NUMBERS[:3]) == (NUMBERS[:3], {})
    assert crawl(site, tmp_path, NUMBERS[:4]) == (NUMBERS[:4], {})
    assert site.asked == dict.fromkeys(NUMBERS[:4], 1)
    assert all(agent.endswith("(ann@example.org)") for agent in site.agents)


def test_faults_of_one_page_cost_that_page_and_passing_ones_none(site: Site, tmp_path: Path) -> None:
    site.faults = {
        NUMBERS[0]: [429, 503],
        NUMBERS[1]: [404],
        NUMBERS[2]: [410],
        NUMBERS[3]: [404],
        NUMBERS[4]: [b"<html>We are busy, please wait.</html>"],
        NUMBERS[5]: [gzip.compress(bytes(130 * 1024 * 1024))],
        NUMBERS[6]: [500, 500, 500],
    }
    pages, missing = crawl(site, tmp_path, NUMBERS)
    assert pages == [NUMBERS[0], NUMBERS[4], NUMBERS[7]]
    assert missing.keys() == {NUMBERS[1], NUMBERS[2], NUMBERS[3], NUMBERS[5], NUMBERS[6]}
    # The notice that the site was busy was not taken for the page.
    with client(tmp_path) as polite:
        assert [
            item.content for item in crawl_pages([NUMBERS[4]], polite, site.address) if isinstance(item, RawPage)
        ] == [page(NUMBERS[4]).encode()]
    # What failed is asked for again the next time, the rest is not.
    before = site.asked.copy()
    assert crawl(site, tmp_path, NUMBERS) == (NUMBERS, {})
    assert site.asked - before == dict.fromkeys(missing, 1)


def test_a_site_that_is_out_of_reach_is_left_alone(site: Site, tmp_path: Path) -> None:
    site.faults = {number: [500] * 3 for number in NUMBERS}
    pages, missing = crawl(site, tmp_path, NUMBERS)
    assert pages == []
    assert set(missing) == set(NUMBERS)
    assert site.asked == dict.fromkeys(NUMBERS[:3], 3)
    assert "not fetched after 3 failures in a row; the last: " in missing[NUMBERS[3]]


def test_only_failures_in_a_row_end_the_crawl(site: Site, tmp_path: Path) -> None:
    good = NUMBERS[2::3]
    site.faults = {number: [500] * 3 for number in NUMBERS if number not in good}
    pages, missing = crawl(site, tmp_path, NUMBERS)
    assert pages == good
    assert set(site.asked) == set(NUMBERS)
    assert len(missing) == 6


def test_robots_txt_is_obeyed(site: Site, tmp_path: Path) -> None:
    site.robots = b"User-agent: *\nDisallow: /patent/\n"
    pages, missing = crawl(site, tmp_path, NUMBERS[:2])
    assert pages == []
    assert "robots.txt" in missing[NUMBERS[0]]
    assert site.asked == {}


def test_a_killed_crawl_goes_on(site: Site, tmp_path: Path) -> None:
    with client(tmp_path) as polite:
        pages = crawl_pages(NUMBERS, polite, site.address)
        assert [next(pages) for _ in range(3)]
    assert crawl(site, tmp_path, NUMBERS) == (NUMBERS, {})
    assert site.asked == dict.fromkeys(NUMBERS, 1)


def test_the_source_crawls_and_parses(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "numbers.txt"
    path.write_text(f"{NUMBERS[0]}\n{NUMBERS[1]}\nfoo\n")
    settings = PatentsSettings(crawl=path, contact="ann@example.org", seconds_between=1, limit=1)
    found = harvest(settings, tmp_path / "downloads", date(2024, 12, 31), site.address)
    assert [document.name for document in found.documents] == [NUMBERS[0]]
    assert [document.url for document in found.documents] == [f"https://patents.google.com/patent/{NUMBERS[0]}/zh"]
    assert [item.reason for item in found.left_out] == [
        "no publication number: 'foo'",
        "numbers over the limit of 1: 1",
    ]
    assert (tmp_path / "downloads" / "patents").is_dir()
    assert all(agent.endswith("(ann@example.org)") for agent in site.agents)


def test_the_list(tmp_path: Path) -> None:
    path = tmp_path / "numbers.txt"
    path.write_bytes(
        (
            "\ufeff# 样本\r\nCN-100000001-A\r\n\nCN100000002A # 灯\nUS2020000001A1\nnot one\n"
            "CN100000001A\nCN100000003B\n"
        ).encode()
    )
    numbers, left_out = read_numbers(path, ("CN",))
    assert numbers == ("CN100000001A", "CN100000002A", "CN100000003B")
    assert {item.part: item.reason for item in left_out} == {
        "numbers.txt:5": "not of CN: US2020000001A1",
        "numbers.txt:6": "no publication number: 'not one'",
    }
    numbers, left_out = read_numbers(path, ("CN", "US"), limit=2)
    assert numbers == ("CN100000001A", "CN100000002A")
    assert left_out[-1].reason == "numbers over the limit of 2: 2"


def test_lists_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "gb.txt").write_bytes("灯".encode("gb18030"))
    with pytest.raises(SourceError, match="save it as UTF-8"):
        read_numbers(tmp_path / "gb.txt", ("CN",))
    with pytest.raises(SourceError, match="cannot be read"):
        read_numbers(tmp_path / "nowhere.txt", ("CN",))
