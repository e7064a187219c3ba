"""The watcher of the hub, against a server on the loopback interface that speaks the hub's language."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import huggingface_hub.constants
import pytest
import yaml
from huggingface_hub import HfApi, get_session

from audit_pipeline.errors import ConfigError, ModelError, TransientError
from audit_pipeline.models import watch
from audit_pipeline.models.config import FILE, ModelEntry, load_models
from audit_pipeline.models.watch import (
    Candidate,
    list_candidates,
    load_watched,
    proposals_path,
    proposals_text,
    propose,
    write_proposals,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"
COLLECTION = "maker/new-ones-64f9a55bb3115b4f513ec026"


def on_hub(name: str, files: tuple[str, ...] = ("config.json", "model.safetensors"), **changes: Any) -> dict[str, Any]:
    """A model as the hub describes it."""
    return {
        "_id": "x",
        "id": name,
        "sha": COMMIT,
        "createdAt": "2026-10-01T08:00:00.000Z",
        "lastModified": "2026-11-02T09:30:00.000Z",
        "gated": False,
        "cardData": {"license": "apache-2.0"},
        "safetensors": {"parameters": {"F32": 1234567}, "total": 1234567},
        "siblings": [{"rfilename": file} for file in files],
        **changes,
    }


@dataclass
class FakeHub:
    """What the server holds, the statuses it answers with first, and the requests that it got."""

    models: list[dict[str, Any]] = field(default_factory=list)
    collection: list[dict[str, Any]] = field(default_factory=list)
    faults: dict[str, list[int]] = field(default_factory=dict)
    page: int = 100
    asked: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    body: bytes | None = None
    api: HfApi = field(default_factory=HfApi)

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, object, str | None]:
        """Status, content and the query of the next page."""
        faults = self.faults.get(path, [])
        if faults:
            return faults.pop(0), {"error": "no"}, None
        if path == "/api/models":
            owner = query.get("author", [""])[0]
            fit = [model for model in self.models if model["id"].startswith(f"{owner}/")]
            start = int(query.get("cursor", ["0"])[0])
            more = f"author={owner}&cursor={start + self.page}" if start + self.page < len(fit) else None
            return 200, fit[start : start + self.page], more
        if path == f"/api/collections/{COLLECTION}":
            fixed = {"title": "t", "owner": "maker", "position": 1, "private": False, "theme": "x", "upvotes": 0}
            made = {"slug": COLLECTION, "lastUpdated": "2026-11-02T09:30:00.000Z", "items": self.collection}
            return 200, {**fixed, **made}, None
        found = [model for model in self.models if path == f"/api/models/{model['id']}"]
        return (200, found[0], None) if found else (404, {"error": "Repository not found"}, None)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    fake = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            fake.asked.append((parts.path, query))
            fake.tokens.append(self.headers.get("Authorization"))
            status, content, more = fake.answer(parts.path, query)
            data = json.dumps(content).encode() if fake.body is None else fake.body
            self.send_response(status)
            if status == 404:
                self.send_header("X-Error-Code", "RepoNotFound")
            if more is not None:
                self.send_header("Link", f'<{fake.api.endpoint}{parts.path}?{more}>; rel="next"')
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            return

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    fake.api = HfApi(endpoint=f"http://127.0.0.1:{server.server_address[1]}", token=False)
    yield fake
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_owners_models_are_described_as_the_hub_describes_them(hub: FakeHub) -> None:
    hub.models = [
        on_hub("maker/small"),
        on_hub("maker/closed", gated="manual", cardData={"license": "other", "license_name": "maker-1"}),
        on_hub("maker/plain", safetensors=None, cardData=None, createdAt="2022-03-02T23:29:04.000Z"),
        on_hub("else/small"),
    ]
    small, closed, plain = list_candidates("maker", hub.api)
    assert small == Candidate(
        "maker/small", COMMIT, date(2026, 10, 1), date(2026, 11, 2), "apache-2.0", False, 1234567, None
    )
    assert (closed.gated, closed.licence) == (True, "maker-1")
    assert (plain.licence, plain.parameters, plain.created) == (None, None, date(2022, 3, 2))
    path, query = hub.asked[-1]
    assert path == "/api/models"
    assert (query["author"], query["pipeline_tag"], query["sort"]) == (["maker"], ["text-generation"], ["createdAt"])
    assert "siblings" in query["expand"]


def test_all_pages_are_read_up_to_the_limit(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.models = [on_hub(f"maker/m{number}") for number in range(7)]
    hub.page = 3
    assert [one.hub for one in list_candidates("maker", hub.api)] == [f"maker/m{number}" for number in range(7)]
    monkeypatch.setattr(watch, "NEWEST", 4)
    assert [one.hub for one in list_candidates("maker", hub.api)] == [f"maker/m{number}" for number in range(4)]


def test_a_collections_models_are_asked_for_one_by_one(hub: FakeHub) -> None:
    hub.models = [on_hub("a/one"), on_hub("b/two")]
    items = [("a/one", "model"), ("c/rows", "dataset"), ("d/gone", "model"), ("b/two", "model"), ("a/one", "model")]
    hub.collection = [
        {"_id": str(place), "id": name, "type": kind, "position": place} for place, (name, kind) in enumerate(items)
    ]
    found = list_candidates(COLLECTION, hub.api)
    assert [(one.hub, one.obstacle) for one in found] == [
        ("a/one", None),
        ("d/gone", "not on the hub any more, or private"),
        ("b/two", None),
    ]


@pytest.mark.parametrize(
    ("files", "changes", "obstacle"),
    [
        (("config.json", "model-00001-of-00002.safetensors"), {}, None),
        (("config.json", "model.safetensors", "pytorch_model.bin"), {}, None),
        (("config.json", "pytorch_model.bin"), {}, "weights as pickle only"),
        (("config.json", "model.pth"), {}, "weights as pickle only"),
        (("README.md", "model.Q4.gguf"), {}, "weights as GGUF only; fetch the file and give its path"),
        (("config.json", "onnx/model.safetensors"), {}, "no weights as safetensors"),
        (("adapter_config.json", "adapter_model.safetensors"), {}, "no weights as safetensors"),
        (("model.safetensors",), {}, "no config.json beside its weights"),
        ((), {}, "no weights as safetensors"),
        (("config.json", "model.safetensors"), {"sha": None}, "the hub names no commit"),
    ],
)
def test_what_cannot_be_audited_says_why(
    hub: FakeHub, files: tuple[str, ...], changes: dict[str, Any], obstacle: str | None
) -> None:
    hub.models = [on_hub("maker/m", files, **changes)]
    assert [one.obstacle for one in list_candidates("maker", hub.api)] == [obstacle]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_hub_is_a_passing_fault(hub: FakeHub, status: int) -> None:
    for name, path in (("maker", "/api/models"), (COLLECTION, f"/api/collections/{COLLECTION}")):
        hub.faults = {path: [status]}
        with pytest.raises(TransientError, match=rf"the hub is busy \(status {status}\)"):
            list_candidates(name, hub.api)
    hub.models = [on_hub("maker/m")]
    assert len(list_candidates("maker", hub.api)) == 1


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusing_hub_is_not(hub: FakeHub, status: int) -> None:
    hub.faults = {f"/api/collections/{COLLECTION}": [status]}
    with pytest.raises(
        ModelError, match=rf"does not list {COLLECTION} \(status {status}\).*watch.yaml, or set HF_TOKEN"
    ):
        list_candidates(COLLECTION, hub.api)


def test_a_hub_that_is_not_there_is_a_passing_fault_and_soon_told() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        port = server.server_address[1]
    for name in ("maker", COLLECTION):
        with pytest.raises(TransientError, match=r"the hub cannot be reached \(.+\): .* asked for again next time"):
            list_candidates(name, HfApi(endpoint=f"http://127.0.0.1:{port}", token=False))


def test_a_silent_hub_is_a_passing_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_TIMEOUT", 0.2)
    before, begun = get_session().timeout, time.monotonic()
    # It listens and never answers, and goes away in the end, so that the test ends whatever the code does.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        end = threading.Timer(20, silent.close)
        end.start()
        api = HfApi(endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}", token=False)
        for name in ("maker", COLLECTION):
            with pytest.raises(TransientError, match="the hub cannot be reached"):
                list_candidates(name, api)
        end.cancel()
    assert time.monotonic() - begun < 10
    assert get_session().timeout == before


@pytest.mark.parametrize("body", [b"<html>sign in</html>", b"[5]", b'[{"sha": "x"}]', b'{"slug": 5}'])
def test_an_answer_in_another_language_is_named(hub: FakeHub, body: bytes) -> None:
    hub.body = body
    for name in ("maker", COLLECTION):
        with pytest.raises(ModelError, match="does not speak its language") as error:
            list_candidates(name, hub.api)
        assert "\n" not in str(error.value)


def test_offline_mode_is_named(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="maker cannot be watched while HF_HUB_OFFLINE is set"):
        list_candidates("maker", hub.api)
    assert hub.asked == []


def test_the_token_is_sent_where_one_is_given_and_stands_in_no_file(hub: FakeHub, tmp_path: Path) -> None:
    hub.models = [on_hub("maker/m")]
    api = HfApi(endpoint=hub.api.endpoint, token="hf_secret")
    proposals = propose(list_candidates("maker", api), {})
    assert hub.tokens[-1] == "Bearer hf_secret"
    assert "hf_secret" not in proposals_text(proposals)


def made(hub: str, **changes: Any) -> Candidate:
    fields: dict[str, Any] = {"commit": COMMIT, "created": date(2026, 10, 1), "licence": "mit", **changes}
    return Candidate(hub, **fields)


def test_what_the_configuration_names_already_is_not_proposed() -> None:
    known = {
        "one": ModelEntry(name="one", hub="Maker/One", revision="another"),
        "here": ModelEntry(name="here", path=Path("/x")),
    }
    proposals = propose([made("maker/one"), made("maker/two"), made("MAKER/TWO")], known)
    assert [entry.hub for entry in proposals.entries.values()] == ["MAKER/TWO"]
    assert proposals.refused == {}


def test_an_entry_is_pinned_and_trusts_nothing() -> None:
    entries = propose([made("maker/Big-1B", gated=True, parameters=1_100_000_000)], {}).entries
    assert list(entries) == ["big-1b"]
    assert entries["big-1b"] == ModelEntry(
        name="big-1b",
        hub="maker/Big-1B",
        revision=COMMIT,
        release_date=date(2026, 10, 1),
        licence="mit",
        notes="1,100,000,000 parameters; gated: accept its terms on the hub and set HF_TOKEN",
    )
    assert entries["big-1b"].trust_remote_code is False


def test_the_day_that_the_hub_gives_to_everything_older_is_no_release_date() -> None:
    entries = propose([made("m/old", created=date(2022, 3, 2)), made("m/new", created=date(2022, 3, 3))], {}).entries
    assert (entries["old"].release_date, entries["new"].release_date) == (None, date(2022, 3, 3))


def test_names_that_are_taken_get_their_owner_in_front() -> None:
    known = {name: ModelEntry(name=name, path=Path("/x")) for name in ("small", "c/base", "base")}
    proposals = propose([made("a/tiny"), made("B/Tiny"), made("a/Small"), made("c/base"), made("d/only")], known)
    assert {name: entry.hub for name, entry in proposals.entries.items()} == {
        "a/small": "a/Small",
        "a/tiny": "a/tiny",
        "b/tiny": "B/Tiny",
        "only": "d/only",
    }
    assert proposals.refused == {"c/base": "another entry has the name c/base"}


def test_the_order_of_the_listing_changes_nothing() -> None:
    candidates = [made("b/y"), made("a/x"), made("c/z", obstacle="weights as pickle only"), made("A/w")]
    assert proposals_text(propose(candidates, {})) == proposals_text(propose(candidates[::-1], {}))


def test_the_file_has_the_form_of_models_yaml(tmp_path: Path) -> None:
    hostile = "mit\nmodels:\n  evil: {path: /etc}\n# \u2028: &a !!python/object x"
    candidates = [
        made("a/plain"),
        made("a/odd", licence=hostile),
        made("b/pickled", obstacle="weights as pickle only"),
        made("b/bad\nmodels: {}\n", obstacle="its name is no hub id"),
    ]
    proposals = propose(candidates, {})
    path = proposals_path(tmp_path)
    assert write_proposals(path, proposals) is True
    assert dict(FILE.read_file(path)) == proposals.entries
    assert FILE.read_file(path)["odd"].licence == hostile
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Models on the hub that config/models.yaml does not name yet")
    assert "\n# Nothing here is audited." in text
    assert "\n#   b/pickled: not proposed: weights as pickle only\n" in text
    assert "\n#   b/bad?models: {}?: not proposed: its name is no hub id\n" in text
    assert "trust_remote_code" not in text
    (tmp_path / "models.yaml").write_text(text, encoding="utf-8")
    assert dict(load_models(tmp_path)) == proposals.entries


def test_the_file_is_written_only_where_it_changes(tmp_path: Path) -> None:
    path = proposals_path(tmp_path)
    assert write_proposals(path, propose([], {})) is False
    assert not path.exists()
    assert write_proposals(path, propose([made("a/x")], {})) is True
    before = path.stat().st_mtime_ns, path.stat().st_ino
    assert write_proposals(path, propose([made("a/x")], {})) is False
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    assert write_proposals(path, propose([made("a/x")], {"x": ModelEntry(name="x", hub="a/x")})) is True
    assert yaml.safe_load(path.read_text()) == {"models": {}}
    assert dict(FILE.read_file(path)) == {}
    assert [file.name for file in tmp_path.iterdir()] == ["models.proposed.yaml"]


def test_watch_yaml_is_optional_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "watch.yaml"
    assert load_watched(tmp_path).names == ()
    for content, names in (
        ("", ()),
        ("hub:\n", ()),
        ("hub: []\n", ()),
        (f"hub: [maker, {COLLECTION}, maker]\n", ("maker", COLLECTION)),
    ):
        file.write_text(content, encoding="utf-8")
        assert load_watched(tmp_path).get("hub", ()) == names
    for content, told in (
        ("hub: maker", "must be a list"),
        ("hub: [5]", "must be a valid string, not 5"),
        ("hub: ['a b']", "'a b' is neither"),
        ("hub: [a/b/c]", "neither an owner"),
        ("hub: []\npage: 1", "one key, 'hub'"),
    ):
        file.write_text(content, encoding="utf-8")
        [problem] = load_watched(tmp_path).problems
        assert told in str(problem)
        assert "watch.yaml" in str(problem)
    for content in ("- maker", "hub: ["):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(ConfigError, match=r"watch\.yaml"):
            load_watched(tmp_path)


def test_the_shipped_file_watches_nothing() -> None:
    assert load_watched(Path(__file__).parent.parent.parent / "config").named("hub") == ()
