"""The watcher of the hub, against a server on the loopback interface that speaks the hub's language."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from bad_server import fault
from hub_server import TOKEN, HubServer
from huggingface_hub import HfApi, ModelInfo

from audit_pipeline.errors import ConfigError, ModelError, TransientError
from audit_pipeline.models.config import FILE, ModelEntry, load_models
from audit_pipeline.models.watch import (
    find_obstacle,
    list_candidates,
    load_watched,
    proposals_path,
    propose,
    write_proposals,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"
COLLECTION = "maker/new-ones-64f9a55bb3115b4f513ec026"


FILES = ("config.json", "model.safetensors")
PICKLED = ("config.json", "pytorch_model.bin")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with HubServer() as server:
        yield server
    assert server.unknown == []


def on_hub(hub: HubServer, name: str, files: tuple[str, ...] = FILES, **described: Any) -> str | None:
    """Put a model on the hub; its commit."""
    told = {"cardData": {"license": "apache-2.0"}, "safetensors": {"parameters": {"F32": 1234567}, "total": 1234567}}
    made = hub.add("model", name, dict.fromkeys(files, b"x"), **{**told, **described})
    return made.refs["main"]


def api_of(hub: HubServer, token: str | bool = False) -> HfApi:
    return HfApi(endpoint=hub.url, token=token)


def test_an_owners_models_become_entries(hub: HubServer) -> None:
    commit = on_hub(hub, "maker/small")
    on_hub(hub, "maker/closed", gated="manual", cardData={"license": "other", "license_name": "maker-1"})
    on_hub(hub, "maker/plain", safetensors=None, cardData=None, createdAt="2022-03-02T23:29:04.000Z")
    on_hub(hub, "else/small")
    entries = propose(list_candidates("maker", api_of(hub)), {}).entries
    assert entries["small"] == ModelEntry(
        name="small",
        hub="maker/small",
        revision=commit,
        release_date=date(2026, 10, 1),
        licence="apache-2.0",
        notes="1,234,567 parameters; last changed on the hub on 2026-11-02",
    )
    assert entries["small"].trust_remote_code is False
    assert entries["closed"].licence == "maker-1"
    assert str(entries["closed"].notes).endswith("; gated: accept its terms on the hub and set HF_TOKEN")
    assert (entries["plain"].licence, entries["plain"].release_date) == (None, None)
    assert list(entries) == ["closed", "plain", "small"]
    query = parse_qs(urlsplit(hub.requests[-1].path).query)
    assert urlsplit(hub.requests[-1].path).path == "/api/models"
    assert (query["author"], query["pipeline_tag"], query["sort"]) == (["maker"], ["text-generation"], ["createdAt"])
    assert "siblings" in query["expand"]


@pytest.mark.parametrize("token", [False, TOKEN])
def test_a_collections_models_are_asked_for_one_by_one(hub: HubServer, token: str | bool) -> None:
    on_hub(hub, "a/one")
    on_hub(hub, "b/two")
    items = [("a/one", "model"), ("c/rows", "dataset"), ("d/gone", "model"), ("b/two", "model"), ("a/one", "model")]
    hub.collections[COLLECTION] = [{"id": name, "type": kind} for name, kind in items]
    assert [info.id for info in list_candidates(COLLECTION, api_of(hub, token))] == ["a/one", "b/two"]


@pytest.mark.parametrize(
    ("files", "obstacle"),
    [
        (("config.json", "model-00001-of-00002.safetensors"), None),
        (("config.json", "model.safetensors", "pytorch_model.bin"), None),
        (("config.json", "pytorch_model.bin"), "weights as pickle only"),
        (("config.json", "model.pth"), "weights as pickle only"),
        (("README.md", "model.Q4.gguf"), "weights as GGUF only; fetch the file and give its path"),
        (("config.json", "onnx/model.safetensors"), "no weights as safetensors"),
        (("adapter_config.json", "adapter_model.safetensors"), "no weights as safetensors"),
        (("model.safetensors",), "no config.json next to its weights"),
        ((), "no weights as safetensors"),
    ],
)
def test_what_cannot_be_audited_says_why(hub: HubServer, files: tuple[str, ...], obstacle: str | None) -> None:
    on_hub(hub, "maker/m", files)
    assert [find_obstacle(info) for info in list_candidates("maker", api_of(hub))] == [obstacle]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_hub_is_a_passing_fault(hub: HubServer, status: int) -> None:
    for name, path in (("maker", "/api/models"), (COLLECTION, f"/api/collections/{COLLECTION}")):
        hub.fail(path, fault(status), times=1)
        with pytest.raises(
            TransientError, match=rf"{name} cannot be fetched now: the hub is busy \(status {status}\).*try again"
        ):
            list_candidates(name, api_of(hub))
    on_hub(hub, "maker/m")
    assert len(list_candidates("maker", api_of(hub))) == 1


@pytest.mark.parametrize(
    ("status", "told"),
    [(401, "is not on the hub, or is private"), (403, "cannot be fetched"), (404, "cannot be fetched")],
)
def test_a_refusing_hub_is_not(hub: HubServer, status: int, told: str) -> None:
    hub.fail(f"/api/collections/{COLLECTION}", fault(status), times=1)
    with pytest.raises(ModelError, match=rf"{COLLECTION} {told}.*correct config/watch.yaml"):
        list_candidates(COLLECTION, api_of(hub))


def made(hub: str, files: tuple[str, ...] = FILES) -> ModelInfo:
    return ModelInfo(
        id=hub, sha=COMMIT, created_at="2026-10-01T00:00:00.000Z", siblings=[{"rfilename": f} for f in files]
    )


def test_what_the_configuration_names_already_is_not_proposed() -> None:
    known = {
        "one": ModelEntry(name="one", hub="Maker/One", revision="another"),
        "here": ModelEntry(name="here", path=Path("/x")),
    }
    proposals = propose([made("maker/one"), made("maker/two"), made("maker/two")], known)
    assert [entry.hub for entry in proposals.entries.values()] == ["maker/two"]
    assert proposals.refused == {}


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


def test_the_file_has_the_form_of_models_yaml_and_is_written_where_it_changes(tmp_path: Path) -> None:
    path = proposals_path(tmp_path)
    proposals = propose([made("a/plain"), made("b/pickled", PICKLED)], {})
    assert [write_proposals(path, proposals) for _ in range(2)] == [True, False]
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Models on the hub that config/models.yaml does not name yet")
    assert "\n# Nothing here is audited." in text
    assert text.endswith("\n#   b/pickled: not proposed: weights as pickle only\n")
    assert "trust_remote_code" not in text
    (tmp_path / "models.yaml").write_text(text, encoding="utf-8")
    assert dict(load_models(tmp_path)) == proposals.entries
    assert write_proposals(path, propose([], {})) is True
    assert dict(FILE.read_file(path)) == {}


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
        ("hub: []\npage: 1", "the file holds the keys hub and owners"),
        ("owners: [somebody]", "'somebody' is neither an e-mail address nor a team"),
    ):
        file.write_text(content, encoding="utf-8")
        [problem] = load_watched(tmp_path).problems
        assert told in str(problem)
        assert "watch.yaml" in str(problem)
    for content in ("- maker", "hub: ["):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(ConfigError, match=r"watch\.yaml"):
            load_watched(tmp_path)
