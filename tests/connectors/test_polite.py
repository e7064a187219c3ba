"""The polite client against a server that misbehaves: pauses, retries, limits, robots.txt, and what a kill leaves."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from bad_server import (
    Answer,
    BadServer,
    dripping,
    fault,
    gzip_bomb,
    redirect,
    robots,
    slow,
    truncated,
    truncated_gzip,
    wrong_charset,
)
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.connectors.answer_store import FetchedPage
from audit_pipeline.connectors.polite_client import STORE_NAME, FetchError, PoliteClient, Politeness, user_agent
from audit_pipeline.errors import SourceError

AGENT = "corpus-audit-test/1.0 (ann@example.org)"
QUICK = Politeness(AGENT, seconds_between=0, timeout=5)

Client = Callable[..., PoliteClient]


@pytest.fixture
def server() -> Iterator[BadServer]:
    with BadServer() as running:
        yield running


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def client(tmp_path: Path, pauses: list[float]) -> Iterator[Client]:
    """Makes clients of one folder, whose pauses are noted and not slept."""
    made: list[PoliteClient] = []

    def make(**how: object) -> PoliteClient:
        values = {"user_agent": AGENT, "seconds_between": 0, "timeout": 5, **how}
        made.append(PoliteClient(tmp_path / "cache", Politeness(**values), sleep=pauses.append))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_an_answer_is_asked_for_once_and_kept_whatever_the_order_of_parameters(
    server: BadServer, client: Client
) -> None:
    server.serve("/page", Answer(b"hello", "Text/HTML; charset=utf-8"))
    before = datetime.now(UTC)
    first = client().get(f"{server.url}/page", {"b": "2", "a": "1 é"})
    again = client().get(f"{server.url}/page#part", {"a": "1 é", "b": "2"})
    assert server.asked(robots_too=True) == ["/robots.txt", "/page?a=1+%C3%A9&b=2"]
    assert (first.content, first.status, first.media_type, first.charset) == (b"hello", 200, "text/html", "utf-8")
    assert (first.from_cache, again.from_cache) == (False, True)
    assert before <= first.fetched_at == again.fetched_at <= datetime.now(UTC)
    assert server.requests[1].headers["User-Agent"] == AGENT


def test_fresh_and_old_answers_are_asked_for_anew(server: BadServer, client: Client) -> None:
    server.serve("/page", Answer(b"one"), Answer(b"two"), Answer(b"three"), fault(404))
    one = client()
    url = f"{server.url}/page"
    assert one.get(url).content == b"one"
    assert one.get(url, fresh=True).content == b"two"
    assert one.get(url, max_age=timedelta(hours=1)).content == b"two"
    assert one.get(url, max_age=timedelta(0)).content == b"three"
    with pytest.raises(FetchError):
        one.get(url, fresh=True)
    assert one.get(url).content == b"three"


def test_faults_that_pass_are_repeated_with_growing_pauses(
    server: BadServer, client: Client, pauses: list[float]
) -> None:
    server.serve("/page", fault(500), fault(503), fault(502), truncated(b"x" * 1000), Answer(b"fine"))
    page = client(seconds_between=0.01, obey_robots=False).get(f"{server.url}/page")
    assert page.content == b"fine"
    assert len(server.asked()) == 5
    backed_off = [pause for pause in pauses if pause > 0.0101]
    assert backed_off == pytest.approx([0.02, 0.04, 0.08, 0.16])


def test_growing_pauses_stop_at_the_longest(server: BadServer, client: Client, pauses: list[float]) -> None:
    server.serve("/page", fault(500))
    with pytest.raises(FetchError, match=r"/page: the server answered 500 \(after 4 attempts\); try again later") as e:
        client(seconds_between=0.01, attempts=4, most_pause=0.03, obey_robots=False).get(f"{server.url}/page")
    assert e.value.status == 500
    assert [pause for pause in pauses if pause > 0.0101] == pytest.approx([0.02, 0.03, 0.03])
    assert len(server.asked()) == 4


def test_retry_after_in_seconds_is_slept_for_real(server: BadServer, tmp_path: Path) -> None:
    server.serve("/page", fault(429, retry_after=1), Answer(b"fine"))
    with PoliteClient(tmp_path, Politeness(AGENT, seconds_between=0, obey_robots=False)) as one:
        assert one.get(f"{server.url}/page").content == b"fine"
    assert server.gaps()[0] >= 1


def test_retry_after_as_a_date(server: BadServer, client: Client, pauses: list[float]) -> None:
    moment = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    server.serve("/page", fault(503, retry_after=moment), fault(503, retry_after="soon"), Answer(b"fine"))
    assert client(obey_robots=False).get(f"{server.url}/page").content == b"fine"
    assert 25 < pauses[0] <= 30
    assert pauses[1] == 0


def test_a_longer_pause_than_ours_is_not_cut_short(server: BadServer, client: Client, pauses: list[float]) -> None:
    server.serve("/page", fault(429, retry_after=3600), Answer(b"fine"))
    with pytest.raises(FetchError, match="answered 429, and asks to be left alone for 3600 s"):
        client(obey_robots=False).get(f"{server.url}/page")
    assert len(server.asked()) == 1
    assert pauses == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 204])
def test_what_will_not_pass_is_not_repeated_and_not_kept(server: BadServer, client: Client, status: int) -> None:
    server.serve("/page", fault(status), Answer(b"fine"))
    one = client(obey_robots=False)
    with pytest.raises(FetchError, match=f"the server answered {status}") as caught:
        one.get(f"{server.url}/page")
    assert caught.value.status == status
    assert len(server.asked()) == 1
    assert one.get(f"{server.url}/page").content == b"fine"


def test_silence_and_dripping_end(server: BadServer, client: Client) -> None:
    server.serve("/slow", slow(b"x"), Answer(b"fine"))
    server.serve("/drip", dripping(b"x" * 1000, 0.02))
    one = client(timeout=0.1, attempts=2, obey_robots=False)
    assert one.get(f"{server.url}/slow").content == b"fine"
    start = time.monotonic()
    with pytest.raises(FetchError, match="took too long"):
        one.get(f"{server.url}/drip")
    assert time.monotonic() - start < 5  # 2 attempts of 0.5 s each, where the whole would take 20 s


@pytest.mark.parametrize("cut", [truncated(b"x" * 5000), truncated_gzip(b"some words, and more words" * 99)])
def test_an_answer_cut_short_is_never_taken_for_a_whole_one(server: BadServer, client: Client, cut: Answer) -> None:
    server.serve("/page", cut)
    with pytest.raises(FetchError, match="cut short"):
        client(attempts=2, obey_robots=False).get(f"{server.url}/page")
    assert len(server.asked()) == 2


def test_a_server_that_is_not_there(server: BadServer, client: Client, tmp_path: Path) -> None:
    url = f"{server.url}/page"
    server.stop()
    with pytest.raises(FetchError, match="the connection failed"):
        client(attempts=2, obey_robots=False).get(url)
    with pytest.raises(FetchError, match=r"robots\.txt cannot be reached"):
        client(attempts=1).get(url)


def test_long_answers_and_bombs_are_refused_at_once(server: BadServer, client: Client) -> None:
    bomb = gzip_bomb(50_000_000)
    assert len(bomb.body) < 60_000
    server.serve("/bomb", bomb)
    server.serve("/long", Answer(b"x" * 1001))
    server.serve("/unannounced", Answer(b"x" * 1001, headers={"Content-Length": ""}))
    server.serve(
        "/redirected", Answer(bomb.body, status=302, headers={"Location": "/fits", "Content-Encoding": "gzip"})
    )
    server.serve("/fits", Answer(b"x" * 1000))
    one = client(obey_robots=False)
    with pytest.raises(FetchError, match="longer than the 1,000,000 bytes"):
        one.get(f"{server.url}/bomb", limit=1_000_000)
    with pytest.raises(FetchError, match="1001 bytes long, more than the 1000"):
        one.get(f"{server.url}/long", limit=1000)
    with pytest.raises(FetchError, match="longer than the 1,000 bytes"):
        one.get(f"{server.url}/unannounced", limit=1000)
    assert len(one.get(f"{server.url}/redirected", limit=1000).content) == 1000
    assert server.asked() == ["/bomb", "/long", "/unannounced", "/redirected", "/fits"]


def test_an_encoding_that_was_not_asked_for(server: BadServer, client: Client) -> None:
    server.serve("/page", Answer(b"x", headers={"Content-Encoding": "br"}))
    with pytest.raises(FetchError, match="compressed as br"):
        client(obey_robots=False).get(f"{server.url}/page")


def test_redirects_are_followed_but_not_in_circles(server: BadServer, client: Client) -> None:
    server.serve("/old", redirect("/new#part"))
    server.serve("/new", Answer(b"moved"))
    server.serve("/ring", redirect("/gnir"))
    server.serve("/gnir", redirect("/ring"))
    server.serve_by("/far", lambda request: redirect(f"/far?n={int(request.query.get('n', '0')) + 1}"))
    server.serve("/file", redirect("file:///etc/passwd"))
    one = client(obey_robots=False)
    page = one.get(f"{server.url}/old")
    assert (page.url, page.content) == (f"{server.url}/new", b"moved")
    with pytest.raises(FetchError, match="in a circle"):
        one.get(f"{server.url}/ring")
    with pytest.raises(FetchError, match="redirects more than 10 times"):
        one.get(f"{server.url}/far")
    with pytest.raises(FetchError, match="no web address"):
        one.get(f"{server.url}/file")
    assert len(server.asked()) == 2 + 2 + 10 + 1


def test_robots_txt_is_obeyed_also_behind_a_redirect(server: BadServer, client: Client) -> None:
    server.serve("/robots.txt", robots("User-agent: *\nDisallow: /private\n\nUser-agent: other\nDisallow: /"))
    server.serve("/public", Answer(b"fine"))
    server.serve("/door", redirect("/private/room"))
    server.serve("/private/room", Answer(b"secret"))
    one = client()
    assert one.get(f"{server.url}/public").content == b"fine"
    for path in ("/private/room", "/door"):
        with pytest.raises(FetchError, match=r"robots\.txt of http://127\.0\.0\.1:\d+ does not allow"):
            one.get(server.url + path)
    assert client().get(f"{server.url}/public").from_cache
    assert server.asked(robots_too=True) == ["/robots.txt", "/public", "/door"]
    assert client(obey_robots=False).get(f"{server.url}/private/room").content == b"secret"


def test_rules_for_this_program_go_before_those_for_all(server: BadServer, client: Client) -> None:
    server.serve("/robots.txt", robots("User-agent: *\nDisallow: /\n\nUser-agent: corpus-audit-test\nDisallow: /b"))
    server.serve("/a", Answer(b"a"))
    server.serve("/b", Answer(b"b"))
    assert client().get(f"{server.url}/a").content == b"a"
    with pytest.raises(FetchError, match="does not allow"):
        client().get(f"{server.url}/b")


def test_a_crawl_delay_is_kept(server: BadServer, client: Client, pauses: list[float]) -> None:
    server.serve("/robots.txt", robots("User-agent: *\nCrawl-delay: 7"))
    server.serve("/page", Answer(b"fine"))
    client().get(f"{server.url}/page")
    assert pauses == [pytest.approx(7, abs=0.5)]


def test_robots_txt_that_cannot_be_had_forbids_all_and_is_asked_for_once(server: BadServer, client: Client) -> None:
    server.serve("/robots.txt", fault(500))
    server.serve("/page", Answer(b"fine"))
    one = client(attempts=2)
    for _ in range(2):
        with pytest.raises(FetchError, match=r"robots\.txt cannot be reached"):
            one.get(f"{server.url}/page")
    assert server.asked(robots_too=True) == ["/robots.txt", "/robots.txt"]


def test_pauses_between_requests_hold_across_clients_and_cost_cache_hits_nothing(
    server: BadServer, tmp_path: Path
) -> None:
    for path in ("/a", "/b", "/c"):
        server.serve(path, Answer(path.encode()))
    politeness = Politeness(AGENT, seconds_between=0.2)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        time.sleep(seconds)

    with PoliteClient(tmp_path, politeness, sleep=sleep) as one, PoliteClient(tmp_path, politeness, sleep=sleep) as two:
        one.get(f"{server.url}/a")
        two.get(f"{server.url}/b")
        one.get(f"{server.url}/c")
        assert len(slept) == 3  # after robots.txt, /a and /b
        for path in ("/a", "/b", "/c"):
            assert one.get(server.url + path).from_cache
        assert len(slept) == 3
    assert min(server.gaps()) >= 0.19
    assert len(server.gaps()) == 3


def test_an_answer_that_is_none_is_asked_for_again_and_not_kept(server: BadServer, client: Client) -> None:
    server.serve("/api", Answer(b"busy"), Answer(b"busy"), Answer(b"fine"))
    one = client(obey_robots=False, attempts=2)

    def busy(page: FetchedPage) -> str | None:
        return "the server is busy" if page.content == b"busy" else None

    with pytest.raises(FetchError, match="the server is busy"):
        one.get(f"{server.url}/api", find_refusal=busy)
    assert one.get(f"{server.url}/api", find_refusal=busy).content == b"fine"


def test_a_busy_answer_may_say_how_long_to_wait(server: BadServer, client: Client, pauses: list[float]) -> None:
    def busy(page: FetchedPage) -> str | None:
        return "the server is busy" if page.content == b"busy" else None

    server.serve("/api", Answer(b"busy", headers={"Retry-After": "5"}), Answer(b"fine"))
    assert client(obey_robots=False).get(f"{server.url}/api", find_refusal=busy).content == b"fine"
    assert pauses == [5]
    server.serve("/long", Answer(b"busy", headers={"Retry-After": "5000"}))
    with pytest.raises(FetchError, match="the server is busy, and asks to be left alone for 5000 s"):
        client(obey_robots=False).get(f"{server.url}/long", find_refusal=busy)


def test_an_answer_that_never_will_be_one_is_not_repeated(server: BadServer, client: Client) -> None:
    def broken(page: FetchedPage) -> str | None:
        raise FetchError(page.url, "no such category")

    server.serve("/api", Answer(b"error"))
    with pytest.raises(FetchError, match="no such category"):
        client(obey_robots=False).get(f"{server.url}/api", find_refusal=broken)
    assert len(server.asked()) == 1


CRAWL = """
import sys
from pathlib import Path
from audit_pipeline.connectors.polite_client import PoliteClient, Politeness
with PoliteClient(Path(sys.argv[2]), Politeness("corpus-audit-test/1.0", seconds_between=0, timeout=30)) as client:
    for number in range(6):
        print(number, client.get(f"{sys.argv[1]}/page", {"n": str(number)}).text(), flush=True)
"""


def test_a_killed_crawl_goes_on_where_it_was(server: BadServer, tmp_path: Path) -> None:
    waiting = iter([slow(b"never", 30)])

    def page(request: object) -> Answer:
        number = request.query["n"]  # type: ignore[attr-defined]
        plain = Answer(f"page {number}".encode())
        return next(waiting, plain) if number == "3" else plain

    server.serve_by("/page", page)
    command = [sys.executable, "-c", CRAWL, server.url, str(tmp_path)]
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    until = time.monotonic() + 30
    while "/page?n=3" not in server.asked() and time.monotonic() < until:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    assert first.communicate()[0] == "0 page 0\n1 page 1\n2 page 2\n"
    assert server.asked() == [f"/page?n={n}" for n in range(4)]
    server.requests.clear()
    second = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=True)
    assert second.stdout == "".join(f"{n} page {n}\n" for n in range(6))
    assert server.asked(robots_too=True) == ["/page?n=3", "/page?n=4", "/page?n=5"]


def test_a_damaged_store_is_named(tmp_path: Path) -> None:
    (tmp_path / STORE_NAME).write_bytes(b"this is no database, though it is long enough to be one" * 20)
    with pytest.raises(SourceError, match=rf"{STORE_NAME}: the store of answers is damaged .*; delete the file"):
        PoliteClient(tmp_path, QUICK)


def test_a_damaged_answer_in_the_store_is_named(server: BadServer, client: Client, tmp_path: Path) -> None:
    server.serve("/page", Answer(b"fine"))
    one = client(obey_robots=False)
    one.get(f"{server.url}/page")
    with sqlite3.connect(tmp_path / "cache" / STORE_NAME) as store:
        store.execute("UPDATE pages SET content = x'00'")
    store.close()
    with pytest.raises(SourceError, match="damaged"):
        one.get(f"{server.url}/page")


def _page(content: bytes, charset: str | None = None, media_type: str = "text/html") -> FetchedPage:
    return FetchedPage(
        "http://example.org/x", 200, content, media_type, datetime.now(UTC), from_cache=False, charset=charset
    )


CHINESE = "这是一段中文文字,说明书摘要。" * 3


@pytest.mark.parametrize(
    ("content", "charset", "expected"),
    [
        ("é".encode(), "utf-8", "é"),
        ("é".encode(), "ISO-8859-1", "é"),  # declared without looking
        ("é".encode("latin-1"), "ISO-8859-1", "é"),
        (b"\x93quoted\x94", "latin-1", "“quoted”"),
        (b"\xef\xbb\xbfmarked", None, "marked"),
        ("marked é".encode("utf-16"), "utf-8", "marked é"),
        (CHINESE.encode("gb18030"), "gb2312", CHINESE),
        (CHINESE.encode("gb18030"), "no-such-charset", CHINESE),
        (CHINESE.encode("gb18030"), "hex", CHINESE),
        (b"<meta charset='gbk'>" + CHINESE.encode("gb18030"), "utf-8", f"<meta charset='gbk'>{CHINESE}"),
        (b"", None, ""),
    ],
)
def test_text_in_the_charset_that_is_declared_or_fits(content: bytes, charset: str | None, expected: str) -> None:
    assert _page(content, charset).text() == expected


def test_text_in_another_charset_than_declared_is_refused(server: BadServer, client: Client) -> None:
    server.serve("/page", wrong_charset(CHINESE))
    page = client(obey_robots=False).get(f"{server.url}/page")
    with pytest.raises(SourceError, match=r"/page: cannot be decoded as utf-8"):
        page.text()
    with pytest.raises(SourceError, match="cannot be decoded"):
        _page(bytes(range(256)) * 4, "utf-8").text()


@given(st.text(max_size=50), st.sampled_from([None, "utf-8", "gb18030"]))
def test_utf8_and_declared_text_comes_back(text: str, charset: str | None) -> None:
    given_text = "x" + text  # so that no byte-order mark stands in front
    assert _page(given_text.encode(charset or "utf-8"), charset, "text/plain").text() == given_text


def test_politeness_must_make_sense() -> None:
    with pytest.raises(SourceError, match="user agent"):
        Politeness("  ")
    with pytest.raises(SourceError, match="attempts"):
        Politeness(AGENT, attempts=0)


def test_passwords_stay_out_of_messages(server: BadServer, client: Client) -> None:
    with pytest.raises(FetchError) as caught:
        client(obey_robots=False).get(server.url.replace("//", "//ann:secret@") + "/page")
    assert "secret" not in str(caught.value)
    with pytest.raises(FetchError, match="no web address"):
        client(obey_robots=False).get("ftp://example.org/page")


def test_who_asks_is_said_with_a_contact() -> None:
    assert re.fullmatch(r"corpus-audit/\S+ \(ann@example\.org\)", user_agent("ann@example.org"))
