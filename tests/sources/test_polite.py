"""The polite client against a server that misbehaves: pauses, retries, limits, robots.txt, and a killed crawl."""

from __future__ import annotations

import gzip
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from bad_server import Answer, BadServer, Request, fault, redirect, robots, slow, truncated

from audit_pipeline.errors import SourceError
from audit_pipeline.sources.base import FetchError
from audit_pipeline.sources.web import polite_client
from audit_pipeline.sources.web.polite_client import CACHE_NAME, FetchedPage, PoliteClient, Politeness

Client = Callable[..., PoliteClient]


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def client(tmp_path: Path, pauses: list[float]) -> Iterator[Client]:
    """Yield a function that opens a client of one folder. Pauses are added to ``pauses``."""
    open_clients: list[PoliteClient] = []

    def make(find_retry_reason: Callable[[FetchedPage], str | None] = lambda page: None, **how: object) -> PoliteClient:
        for client in open_clients:
            client.close()
        values = {"contact": "ann@example.org", "seconds_between": 0, "timeout": 5, **how}
        open_clients.append(
            PoliteClient(
                tmp_path / "cache", Politeness(**values), find_retry_reason=find_retry_reason, sleep=pauses.append
            )
        )
        return open_clients[-1]

    yield make
    for client in open_clients:
        client.close()


def test_a_page_is_requested_once_regardless_of_the_order_of_parameters(server: BadServer, client: Client) -> None:
    server.serve("/page", Answer(b"hello", "Text/HTML; charset=utf-8", headers={"Vary": "Cookie, *"}))
    first = client().get(f"{server.url}/page", {"b": "2", "a": "1 é"})
    assert client().get(f"{server.url}/page", {"a": "1 é", "b": "2"}).content == b"hello"
    assert server.asked() == ["/page?b=2&a=1+%C3%A9"]
    assert (first.content, first.charset, first.text()) == (b"hello", "utf-8", "hello")
    agent = server.requests[1].headers["User-Agent"]
    assert re.fullmatch(r"corpus-audit/\S+ \(ann@example\.org\)", agent)


def test_old_pages_are_fetched_again(server: BadServer, client: Client) -> None:
    server.serve("/page", Answer(b"one"), Answer(b"two"), fault(404))
    polite = client()
    url = f"{server.url}/page"
    assert polite.get(url).content == b"one"
    assert polite.get(url, max_age=timedelta(hours=1)).content == b"one"
    assert polite.get(url, max_age=timedelta(0)).content == b"two"
    with pytest.raises(FetchError):
        polite.get(url, max_age=timedelta(0))
    assert polite.get(url).content == b"two"


def test_retries_have_growing_pauses(server: BadServer, client: Client, pauses: list[float]) -> None:
    server.serve("/page", fault(500), fault(503), fault(502), truncated(b"x" * 1000), Answer(b"fine"))
    page = client(seconds_between=0.01, obey_robots=False).get(f"{server.url}/page")
    assert page.content == b"fine"
    assert len(server.asked()) == 5
    assert [pause for pause in pauses if pause > 0.0101] == pytest.approx([0.02, 0.04, 0.08, 0.16])


def test_retry_after_as_a_date(server: BadServer, client: Client, pauses: list[float]) -> None:
    moment = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    server.serve("/page", fault(503, retry_after=moment), fault(503, retry_after="soon"), Answer(b"fine"))
    assert client(obey_robots=False).get(f"{server.url}/page").content == b"fine"
    assert 25 < pauses[0] <= 30
    assert pauses[1] == 0


def test_a_longer_requested_pause_is_an_error(server: BadServer, client: Client, pauses: list[float]) -> None:
    server.serve("/page", fault(429, retry_after=3600), Answer(b"fine"))
    with pytest.raises(FetchError, match="responded with status 429, and requests a pause of 3600 s"):
        client(obey_robots=False).get(f"{server.url}/page")
    assert len(server.asked()) == 1
    assert pauses == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 204])
def test_lasting_errors_are_neither_repeated_nor_cached(server: BadServer, client: Client, status: int) -> None:
    server.serve("/page", fault(status), Answer(b"fine"))
    polite = client(obey_robots=False)
    with pytest.raises(FetchError, match=f"the server responded with status {status}") as caught:
        polite.get(f"{server.url}/page")
    assert caught.value.status == status
    assert len(server.asked()) == 1
    assert polite.get(f"{server.url}/page").content == b"fine"


def test_an_unreachable_server_is_an_error(server: BadServer, client: Client, tmp_path: Path) -> None:
    url = f"{server.url}/page"
    server.stop()
    with pytest.raises(FetchError, match="the server cannot be reached"):
        client(attempts=2, obey_robots=False).get(url)
    with pytest.raises(FetchError, match=r"robots\.txt cannot be read"):
        client(attempts=1).get(url)


def test_a_decompression_bomb_is_refused(server: BadServer, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polite_client, "_MAX_BYTES", 1_000_000)
    server.serve("/bomb", Answer(gzip.compress(bytes(2_000_000)), headers={"Content-Encoding": "gzip"}))
    with pytest.raises(FetchError, match="longer than the limit of 1,000,000 bytes"):
        client(obey_robots=False).get(f"{server.url}/bomb")
    assert server.asked() == ["/bomb"]


def test_redirects_are_followed_but_not_in_circles_or_off_the_web(server: BadServer, client: Client) -> None:
    server.serve("/old", redirect("/new"))
    server.serve("/new", Answer(b"moved"))
    server.serve("/ring", redirect("/gnir"))
    server.serve("/gnir", redirect("/ring"))
    server.serve("/file", redirect("file:///etc/passwd"))
    polite = client(obey_robots=False)
    for _ in range(2):
        page = polite.get(f"{server.url}/old")
        assert (page.url, page.content) == (f"{server.url}/new", b"moved")
    assert server.asked() == ["/old", "/new"]
    for path in ("/ring", "/file"):
        with pytest.raises(FetchError, match="cannot be requested"):
            polite.get(server.url + path)


def test_robots_txt_is_obeyed_also_behind_a_redirect(server: BadServer, client: Client) -> None:
    server.serve("/robots.txt", robots("User-agent: *\nDisallow: /\n\nUser-agent: corpus-audit\nDisallow: /private"))
    server.serve("/public", Answer(b"fine"))
    server.serve("/door", redirect("/private/room"))
    server.serve("/private/room", Answer(b"secret"))
    polite = client()
    assert polite.get(f"{server.url}/public").content == b"fine"
    for path in ("/private/room", "/door"):
        with pytest.raises(FetchError, match=r"robots\.txt of http://127\.0\.0\.1:\d+ does not allow"):
            polite.get(server.url + path)
    assert client().get(f"{server.url}/public").content == b"fine"
    assert server.asked(robots_too=True) == ["/robots.txt", "/public", "/door"]
    assert client(obey_robots=False).get(f"{server.url}/private/room").content == b"secret"


def test_a_crawl_delay_is_kept(server: BadServer, client: Client, pauses: list[float]) -> None:
    server.serve("/robots.txt", robots("User-agent: *\nCrawl-delay: 7"))
    server.serve("/page", Answer(b"fine"))
    client().get(f"{server.url}/page")
    assert pauses == [pytest.approx(7, abs=0.5)]


def test_an_unreachable_robots_txt_forbids_all_pages(server: BadServer, client: Client) -> None:
    server.serve("/robots.txt", fault(500))
    server.serve("/page", Answer(b"fine"))
    polite = client(attempts=2)
    for _ in range(2):
        with pytest.raises(FetchError, match=r"robots\.txt cannot be read"):
            polite.get(f"{server.url}/page")
    assert server.asked(robots_too=True) == ["/robots.txt", "/robots.txt"]


def test_pauses_hold_across_clients_and_cached_pages_need_none(server: BadServer, tmp_path: Path) -> None:
    for path in ("/a", "/b", "/c"):
        server.serve(path, Answer(path.encode()))
    for paths in (("/a",), ("/b", "/c"), ("/a", "/b", "/c")):
        with PoliteClient(tmp_path, Politeness("ann@example.org", seconds_between=0.2, obey_robots=False)) as polite:
            assert [polite.get(server.url + path).content.decode() for path in paths] == list(paths)
    assert len(server.gaps()) == 2
    assert min(server.gaps()) >= 0.19


def test_refused_responses_are_repeated_and_not_cached(server: BadServer, client: Client, pauses: list[float]) -> None:
    def find_retry_reason(page: FetchedPage) -> str | None:
        if page.content == b"error":
            raise FetchError(page.url, "no such category")
        return "the server is busy" if page.content == b"busy" else None

    server.serve("/api", Answer(b"busy"), Answer(b"busy", headers={"Retry-After": "5"}), Answer(b"fine"))
    polite = client(find_retry_reason, obey_robots=False, attempts=2)
    with pytest.raises(FetchError, match=r"the server is busy \(after 2 attempts\)"):
        polite.get(f"{server.url}/api")
    assert polite.get(f"{server.url}/api").content == b"fine"
    server.serve("/soon", Answer(b"busy", headers={"Retry-After": "5"}), Answer(b"fine"))
    assert polite.get(f"{server.url}/soon").content == b"fine"
    assert pauses[-1] == 5
    server.serve("/long", Answer(b"busy", headers={"Retry-After": "5000"}))
    with pytest.raises(FetchError, match="the server is busy, and requests a pause of 5000 s"):
        polite.get(f"{server.url}/long")
    server.serve("/error", Answer(b"error"))
    with pytest.raises(FetchError, match="no such category"):
        polite.get(f"{server.url}/error")
    assert server.asked().count("/error") == server.asked().count("/long") == 1


def test_after_three_failures_in_a_row_no_request_is_sent(server: BadServer, client: Client) -> None:
    server.serve("/good", Answer(b"fine"))
    server.serve("/gone", fault(404))
    server.serve("/bad", fault(403))
    polite = client(obey_robots=False)

    def fails(path: str) -> str:
        with pytest.raises(FetchError) as caught:
            polite.get(server.url + path)
        return str(caught.value)

    for path in ("/bad", "/bad", "/gone", "/gone", "/gone"):
        fails(path)
    assert polite.get(f"{server.url}/good").content == b"fine"
    for path in ("/bad", "/bad", "/bad"):
        fails(path)
    asked = len(server.asked())
    assert "not requested, because 3 requests in a row failed. Try again later. The last failure: http" in fails(
        "/other"
    )
    assert polite.get(f"{server.url}/good").content == b"fine"
    assert len(server.asked()) == asked


def test_a_killed_crawl_resumes_from_its_last_page(server: BadServer, tmp_path: Path) -> None:

    def crawl(url: str, folder: Path, report: Callable[[str], object]) -> None:
        with PoliteClient(folder, Politeness("ann@example.org", seconds_between=0, timeout=30)) as client:
            for number in range(6):
                report(f"{number} {client.get(f'{url}/page', {'n': str(number)}).text()}\n")

    waiting = iter([slow(b"never", 30)])

    def page(request: Request) -> Answer:
        number = request.query["n"]
        plain = Answer(f"page {number}".encode())
        return next(waiting, plain) if number == "3" else plain

    server.serve_by("/page", page)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            crawl(server.url, tmp_path, lambda line: os.write(writer, line.encode()))
        finally:
            os._exit(1)
    until = time.monotonic() + 30
    while "/page?n=3" not in server.asked() and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(writer)
    assert os.read(reader, 1000) == b"0 page 0\n1 page 1\n2 page 2\n"
    os.close(reader)
    assert server.asked() == [f"/page?n={n}" for n in range(4)]
    server.requests.clear()
    lines: list[str] = []
    crawl(server.url, tmp_path, lines.append)
    assert lines == [f"{n} page {n}\n" for n in range(6)]
    assert server.asked() == ["/page?n=3", "/page?n=4", "/page?n=5"]


def test_a_damaged_cache_is_an_error(tmp_path: Path) -> None:
    (tmp_path / CACHE_NAME).write_bytes(b"this is no database, though it is long enough to be one" * 20)
    with pytest.raises(
        SourceError, match=rf"{CACHE_NAME}: the stored responses cannot be used .*. If the file is damaged, delete"
    ):
        PoliteClient(tmp_path, Politeness("ann@example.org"))


def test_messages_contain_no_passwords(server: BadServer, client: Client) -> None:
    with pytest.raises(FetchError) as caught:
        client(obey_robots=False).get(server.url.replace("//", "//ann:secret@") + "/page")
    assert "secret" not in str(caught.value)
    with pytest.raises(FetchError, match="cannot be requested"):
        client(obey_robots=False).get("ftp://example.org/page")
