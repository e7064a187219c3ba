"""Responses of servers: their decompressed length is limited, and the keys of the request are redacted."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
import requests
from bad_server import Answer, BadServer, fault, redirect, slow, truncated
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.errors import DataError, UnansweredError
from audit_pipeline.extras.corpora.corpus_stream import list_hub_files
from audit_pipeline.extras.evidence_packs.timestamps import AuthorityError, request_timestamp
from audit_pipeline.extras.servers.client import OversizedError, ServerRequest
from audit_pipeline.extras.servers.dialects import EndpointClient
from audit_pipeline.http.client import HttpClient
from audit_pipeline.http.faults import (
    DamagedResponseError,
    HttpError,
    OversizedResponseError,
    RetryableError,
    RetryPolicy,
    StatusError,
)
from audit_pipeline.http.requests_adapter import ClientAdapter
from audit_pipeline.http.response_guard import Unpacker, list_secrets, redact
from audit_pipeline.models.server_settings import Endpoint
from audit_pipeline.models.usage_budget import Budget

KEY = 'sk/made+0123"4567\\89abcdef'
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.compress,
    "x-gzip": lambda body: gzip.compress(body[: len(body) // 2]) + gzip.compress(body[len(body) // 2 :]),
    "deflate": zlib.compress,
    "Deflate ": zlib.compress,
}
BOMB = gzip.compress(bytes(64 << 20), 1)


@given(st.binary(min_size=1, max_size=3000), st.sampled_from(sorted(PACKED)), st.integers(1, 500))
def test_compressed_bodies_in_chunks_of_any_size_are_decompressed(body: bytes, encoding: str, step: int) -> None:

    def unpack(encoding: str, sent: bytes, limit: int, step: int = 7) -> bytes:
        unpacker = Unpacker(encoding, limit)
        for start in range(0, len(sent), step):
            unpacker.feed(sent[start : start + step])
        return unpacker.finish()

    sent = PACKED[encoding](body)
    room = max(len(body), len(sent))
    assert unpack(encoding, sent, room, step) == body
    with pytest.raises(OversizedResponseError, match=f"longer than the limit of {len(body) - 1:,} bytes"):
        unpack(encoding, sent, len(body) - 1, step)
    if encoding.strip():
        with pytest.raises(DamagedResponseError, match="truncated or corrupt"):
            unpack(encoding, sent[:-1], room, step)


def test_a_compressed_bomb_is_never_decompressed_beyond_the_limit() -> None:
    unpacker = Unpacker("gzip", 1000)
    with pytest.raises(OversizedResponseError):
        unpacker.feed(BOMB)
    assert len(unpacker.body) == 1001
    unpacker = Unpacker("gzip", 1000)
    with pytest.raises(OversizedResponseError):
        # Empty members.
        unpacker.feed(gzip.compress(b"") * 100)


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "compress"])
def test_encodings_that_the_request_did_not_accept_are_refused(encoding: str) -> None:
    with pytest.raises(DamagedResponseError, match=f"compressed as {encoding}, which the request did not accept"):
        Unpacker(encoding, 1000)


IN_JSON = json.dumps({"a": KEY})


@pytest.mark.parametrize(
    "form", [KEY, f"Bearer {KEY}", quote(KEY, safe=""), quote_plus(KEY), IN_JSON, IN_JSON.replace("/", "\\/")]
)
def test_a_key_is_redacted_in_every_form(form: str) -> None:
    found = redact(f"before {form} after", [KEY])
    assert (found[:7], found[-6:], "***" in found) == ("before ", " after", True)
    assert KEY[5:12] not in found
    assert redact("an answer without it", [KEY]) == "an answer without it"


def test_keys_are_collected_from_the_address_and_headers() -> None:
    basic = base64.b64encode(b"user:pass-0123456789").decode()
    assert list_secrets("https://h/x?key=query-0123456789&a=b", {}) == ["query-0123456789"]
    assert list_secrets("https://h/x", {"authorization": f"Bearer {KEY}"}) == [KEY]
    assert list_secrets("https://h/x", {"Authorization": f"Basic {basic}"}) == [basic, "pass-0123456789"]
    assert list_secrets("https://h/x", {"authorization": "Bearer no-key"}) == [], "in texts by chance"


def packed(body: bytes, encoding: str = "gzip") -> Answer:
    return Answer(body, "application/json", headers={"Content-Encoding": encoding})


@pytest.mark.parametrize("status", [200, 400])
def test_the_client_of_model_servers_limits_responses(server: BadServer, status: int) -> None:
    endpoint = Endpoint(url=f"{server.url}/v1", model="tiny", dialect="vllm")
    client = EndpointClient("tiny", endpoint, Budget(), patience=RetryPolicy(attempts=2, first_pause=0.01))
    server.serve("/v1/x", Answer(BOMB, status=status, headers={"Content-Encoding": "gzip"}))
    with pytest.raises(OversizedError, match="the response is longer than the limit of 1,048,576 bytes") as error:
        client.send_request(ServerRequest(f"{endpoint.url}/x", {}, max_bytes=1 << 20))
    assert "\n" not in str(error.value)
    server.serve("/v1/y", packed(b"no gzip"), packed(gzip.compress(b"fine")))
    assert client.send_request(ServerRequest(f"{endpoint.url}/y", {})) == b"fine"
    server.serve("/v1/z", packed(b"x", "br"))
    with pytest.raises(UnansweredError, match="compressed as br, which the request did not accept"):
        client.send_request(ServerRequest(f"{endpoint.url}/z", {}))


def test_the_client_of_single_requests_limits_redacts_and_classifies(server: BadServer) -> None:
    echo = json.dumps({"said": KEY}).encode()
    server.serve("/bomb", packed(BOMB))
    server.serve("/echo", Answer(gzip.compress(echo), headers={"Content-Encoding": "gzip", "X-Said": f"{KEY} is"}))
    server.serve("/cut", truncated(echo))
    server.serve("/slow", slow(echo))
    server.serve("/busy", fault(503, retry_after=7))
    server.serve("/elsewhere", redirect("/echo"))
    headers = {"Authorization": f"Bearer {KEY}"}
    with HttpClient(timeout_seconds=0.5, max_bytes=1 << 20) as client:
        with pytest.raises(OversizedResponseError):
            client.request("GET", f"{server.url}/bomb")
        response = client.request("GET", f"{server.url}/echo", headers=headers)
        assert (response.json(), response.headers["X-Said"]) == ({"said": "***"}, "*** is")
        for path, message in (
            ("cut", "the connection failed"),
            ("slow", "the server did not respond in time"),
            ("busy", "responded with status 503"),
        ):
            with pytest.raises(RetryableError, match=message) as error:
                client.request("GET", f"{server.url}/{path}")
        assert (error.value.status, error.value.pause_seconds) == (503, 7)
        with pytest.raises(StatusError, match="the server responded with status 302"):
            client.request("GET", f"{server.url}/elsewhere")
        with pytest.raises(HttpError, match="no usable response"):
            client.request("GET", "ftp://127.0.0.1/")
        server.stop()
        with pytest.raises(RetryableError, match="the server cannot be reached"):
            client.request("GET", f"{server.url}/echo")


def test_requests_are_repeated_without_cookies(server: BadServer) -> None:
    server.serve("/x", fault(500), truncated(b"fine"), Answer(b"fine", headers={"Set-Cookie": "a=b"}))
    with HttpClient(timeout_seconds=5) as client:
        for _ in range(2):
            policy = RetryPolicy(attempts=3, first_pause=0.001)
            assert client.request("GET", f"{server.url}/x", policy=policy).content == b"fine"
    assert len(server.requests) == 4
    assert server.requests[-1].header("Cookie") is None


def test_downloads_have_no_limit_but_redirects_have(server: BadServer, tmp_path: Path) -> None:
    server.serve("/file", Answer(bytes(3 << 20)))
    server.serve("/old", Answer(BOMB, status=302, headers={"Location": "/file", "Content-Encoding": "gzip"}))
    with HttpClient(timeout_seconds=5, max_bytes=1 << 20, follow_redirects=True) as client:
        client.download(f"{server.url}/file", tmp_path / "file")
        assert (tmp_path / "file").stat().st_size == 3 << 20
        with pytest.raises(OversizedResponseError):
            client.download(f"{server.url}/old", tmp_path / "file")


def test_sessions_of_requests_are_limited_and_redacted(server: BadServer) -> None:
    session = requests.Session()
    session.mount("http://", ClientAdapter(HttpClient(timeout_seconds=5, max_bytes=1 << 20)))
    session.headers["Authorization"] = f"Bearer {KEY}"
    server.serve("/bomb", packed(BOMB))
    server.serve("/echo", Answer(json.dumps({"said": KEY}).encode(), headers={"X-Said": f"{KEY} is"}))
    with pytest.raises(OversizedResponseError):
        session.get(f"{server.url}/bomb")
    response = session.get(f"{server.url}/echo")
    assert (response.json(), response.headers["X-Said"]) == ({"said": "***"}, "*** is")


def test_listings_of_the_hub_are_limited(server: BadServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.url)
    monkeypatch.setattr("huggingface_hub.hf_api.ENDPOINT", server.url, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setattr("audit_pipeline.readers.hub_faults._MAX_LISTING_BYTES", 1 << 20)
    for answer, line in (
        (Answer(b"[" * 500_000, "application/json"), "the response is unexpected"),
        (Answer(b"{}", "application/json"), "the response is unexpected"),
        (packed(BOMB), "the response is longer than the limit of 1,048,576 bytes"),
    ):
        server.serve("/api/datasets/a/b", answer)
        with pytest.raises(DataError, match=f"the data set a/b .*{line}") as error:
            list_hub_files("a/b", ["*"], None)
        assert "\n" not in str(error.value)


def test_responses_of_timestamp_authorities_are_limited(server: BadServer) -> None:
    server.serve("/", packed(BOMB))
    with pytest.raises(AuthorityError, match="the response is longer than the limit of 1,048,576 bytes"):
        request_timestamp(f"{server.url}/", b"content")
