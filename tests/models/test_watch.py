"""The search for new models on the hub, against a local hub."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from bad_server import fault
from hub_server import HubServer
from huggingface_hub import HfApi, ModelInfo

from audit_pipeline.errors import ConfigError, TransientError
from audit_pipeline.models.config import FILE, ModelEntry, load_models
from audit_pipeline.models.model_proposals import (
    list_candidates,
    load_watched,
    proposals_path,
    propose_entries,
    write_proposals,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = ("config.json", "model.safetensors")


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as server:
        yield server
    assert server.unknown == []


def on_hub(hub: HubServer, name: str, files: tuple[str, ...] = FILES, **described: Any) -> str | None:
    """Add a model to the hub and return its commit."""
    told = {"cardData": {"license": "apache-2.0"}, "safetensors": {"parameters": {"F32": 1234567}, "total": 1234567}}
    made = hub.add("model", name, dict.fromkeys(files, b"x"), **{**told, **described})
    return made.refs["main"]


def test_an_owners_models_become_entries(hub: HubServer) -> None:
    commit = on_hub(hub, "maker/small")
    on_hub(hub, "maker/closed", gated="manual", cardData={"license": "other", "license_name": "maker-1"})
    on_hub(hub, "maker/plain", safetensors=None, cardData=None, createdAt="2022-03-02T23:29:04.000Z")
    on_hub(hub, "else/small")
    entries = propose_entries(list_candidates("maker", HfApi(endpoint=hub.url, token=False)), {})
    assert entries["maker/small"] == ModelEntry(
        name="maker/small",
        hub="maker/small",
        revision=commit,
        release_date=date(2026, 10, 1),
        licence="apache-2.0",
    )
    assert entries["maker/small"].trust_remote_code is False
    assert entries["maker/closed"].licence == "maker-1"
    assert (entries["maker/plain"].licence, entries["maker/plain"].release_date) == (None, None)
    assert list(entries) == ["maker/closed", "maker/plain", "maker/small"]
    query = parse_qs(urlsplit(hub.requests[-1].path).query)
    assert urlsplit(hub.requests[-1].path).path == "/api/models"
    assert (query["author"], query["pipeline_tag"], query["sort"]) == (["maker"], ["text-generation"], ["createdAt"])
    assert "siblings" in query["expand"]


@pytest.mark.parametrize(
    ("files", "usable"),
    [
        (("config.json", "model-00001-of-00002.safetensors"), True),
        (("config.json", "model.safetensors", "pytorch_model.bin"), True),
        (("config.json", "pytorch_model.bin"), False),
        (("config.json", "onnx/model.safetensors"), False),
        (("adapter_config.json", "adapter_model.safetensors"), False),
        (("model.safetensors",), False),
        ((), False),
    ],
)
def test_models_that_cannot_be_audited_are_not_proposed(files: tuple[str, ...], usable: bool) -> None:
    assert bool(propose_entries([made("maker/m", files)], {})) is usable


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_hub_raises_a_transient_error(hub: HubServer, status: int) -> None:
    hub.fail("/api/models", fault(status))
    with pytest.raises(
        TransientError, match=rf"maker cannot be fetched now, because the hub is busy \(status {status}\).*try again"
    ):
        list_candidates("maker", HfApi(endpoint=hub.url, token=False))
    on_hub(hub, "maker/m")
    assert len(list_candidates("maker", HfApi(endpoint=hub.url, token=False))) == 1


def made(hub: str, files: tuple[str, ...] = FILES) -> ModelInfo:
    return ModelInfo(
        id=hub, sha=COMMIT, created_at="2026-10-01T00:00:00.000Z", siblings=[{"rfilename": f} for f in files]
    )


def test_configured_models_are_not_proposed() -> None:
    known = {
        "one": ModelEntry(name="one", hub="Maker/One", revision="another"),
        "here": ModelEntry(name="here", path=Path("/x")),
    }
    proposals = propose_entries([made("maker/one"), made("maker/two"), made("maker/two")], known)
    assert [entry.hub for entry in proposals.values()] == ["maker/two"]


def test_the_file_has_the_form_of_models_yaml(tmp_path: Path) -> None:
    path = proposals_path(tmp_path)
    proposals = propose_entries([made("a/plain"), made("b/odd")], {})
    write_proposals(path, proposals)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Models of the owners in config/watch.yaml")
    assert "\n# Nothing here is audited." in text
    assert "trust_remote_code" not in text
    (tmp_path / "models.yaml").write_text(text, encoding="utf-8")
    assert dict(load_models(tmp_path)) == proposals
    write_proposals(path, propose_entries([], {}))
    assert dict(FILE.read_file(path)) == {}


def test_watch_yaml_is_optional_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "watch.yaml"
    assert load_watched(tmp_path).names == ()
    for content, names in (
        ("", ()),
        ("hub:\n", ()),
        ("hub: []\n", ()),
        ("hub: [maker, other, maker]\n", ("maker", "other")),
    ):
        file.write_text(content, encoding="utf-8")
        assert load_watched(tmp_path).get("hub", ()) == names
    for content, told in (
        ("hub: maker", "must be a list"),
        ("hub: [5]", "must be a valid string, not 5"),
        ("hub: [a/b]", "'a/b' is not the name of an owner"),
        ("hub: []\npage: 1", "page is not a key of this file. The keys are hub and owners"),
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
