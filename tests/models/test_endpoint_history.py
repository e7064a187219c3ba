"""Models at an endpoint: their files, their identity, and the detection of another model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tiny_models import save_model

from audit_pipeline.errors import DataError, ModelError
from audit_pipeline.models import locate as locating
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.fingerprint import (
    EndpointHistory,
    Probe,
    add_probe,
    compute_endpoint_fingerprint,
    history_path,
    is_different_model,
    list_earlier_fingerprints,
    read_history,
    record_probe,
)
from audit_pipeline.models.server_settings import Endpoint
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenized, write_card
from audit_pipeline.models.weights import load_weights
from audit_pipeline.store.paths import DataPaths

SEEN = Probe(((-1.0, -2.0), (-3.0,)), 0.0, "vllm-1")
INFINITE = float("inf")


def endpoint(**changes: Any) -> Endpoint:
    return Endpoint(**{"url": "https://host/v1", "model": "m", "dialect": "vllm", **changes})


def entry(path: Path | None, **changes: Any) -> ModelEntry:
    given = {"name": "served", "backend": "openai", "endpoint": endpoint(), "path": path, "window": 32}
    return ModelEntry(**{**given, **changes})


@pytest.fixture
def tokenizer_alone(tmp_path: Path) -> Path:
    folder = tmp_path / "tokenizer"
    whole = save_model(tmp_path / "whole")
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((whole / name).read_bytes())
    return folder


def shifted(by: float, *, noise: float = 0.0) -> Probe:
    return replace(SEEN, values=((-1.0, -2.0 - by), (-3.0,)), noise=noise)


# --- which model it is -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("then", "now", "is_another"),
    [
        (SEEN, SEEN, False),
        (SEEN, shifted(0.09), False),
        (SEEN, shifted(0.11), True),
        (SEEN, shifted(-0.11), True),
        # With a noise of .1, the values may differ by .3 from the first probe.
        (SEEN, shifted(0.29, noise=0.1), False),
        (shifted(0.0, noise=0.1), shifted(0.29), True),
        (SEEN, shifted(0.31, noise=0.1), True),
        (SEEN, replace(SEEN, values=((-1.0, -2.0), (-3.0, -1.0))), True),
        (SEEN, replace(SEEN, values=((-1.0, -2.0),)), True),
        (SEEN, replace(SEEN, server="vllm-2"), False),
        (shifted(INFINITE), shifted(INFINITE), False),
        (SEEN, shifted(INFINITE), True),
        # Values that are infinite both times do not hide a difference next to them.
        (shifted(INFINITE), replace(shifted(INFINITE), values=((-7.0, -INFINITE), (-3.0,))), True),
    ],
)
def test_log_probabilities_beyond_the_tolerance_mean_another_model(then: Probe, now: Probe, is_another: bool) -> None:
    assert is_different_model(then.values, now) is is_another


def test_the_history_keeps_a_model_until_a_probe_differs() -> None:
    first = add_probe(EndpointHistory(), SEEN)
    second = add_probe(first, replace(shifted(0.05, noise=0.02), server="vllm-2"))
    assert second == replace(first, server="vllm-2")
    # Small steps are counted from the first probe.
    third = add_probe(second, shifted(0.12))
    assert third.names[:1] == second.names
    assert third.values == shifted(0.12).values
    # A model that comes back gets a third name: it cannot be told from a new one.
    fourth = add_probe(third, SEEN)
    assert len(set(fourth.names)) == 3


def test_settings_that_change_no_row_change_no_fingerprint() -> None:
    before = compute_endpoint_fingerprint(endpoint(), "t", "s")
    unchanged = (
        {"key_env": "KEY"},
        {"concurrency": 2, "timeout_seconds": 1.0},
        {"price_per_million": 1.0, "max_tokens": 5, "max_cost": 2.0},
        {"url": "https://host/v1/"},
        # As many best tokens as the rows hold, and more.
        {"top_logprobs": 30},
    )
    assert {compute_endpoint_fingerprint(endpoint(**changes), "t", "s") for changes in unchanged} == {before}
    others = [
        *(
            compute_endpoint_fingerprint(endpoint(**changes), "t", "s")
            for changes in (
                {"url": "https://other/v1"},
                {"model": "n"},
                {"revision": "2"},
                {"dialect": "sglang"},
                {"top_logprobs": 0},
                {"moments": True},
            )
        ),
        compute_endpoint_fingerprint(endpoint(), "u", "s"),
        compute_endpoint_fingerprint(endpoint(), "t", "z"),
        compute_endpoint_fingerprint(endpoint(), "t", None),
    ]
    assert len({before, *others}) == len(others) + 1


def test_probes_are_stored_and_a_damaged_history_raises_an_error(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    assert read_history(endpoint(), "t", paths) == EndpointHistory()
    assert record_probe(endpoint(), "t", SEEN, paths) is False
    assert record_probe(endpoint(), "t", shifted(0.01), paths) is False
    assert record_probe(endpoint(), "t", shifted(1.0), paths) is True
    assert len(read_history(endpoint(), "t", paths).names) == 2
    assert read_history(endpoint(), "of another tokenizer", paths) == EndpointHistory()
    history_path(endpoint(), "t", paths).write_text('{"history": {"states": []}}', encoding="utf-8")
    with pytest.raises(DataError, match="cannot be read"):
        read_history(endpoint(), "t", paths)


def test_identity_and_card_of_a_model_at_an_endpoint(tokenizer_alone: Path, tmp_path: Path) -> None:
    paths, served = DataPaths(tmp_path / "data"), entry(tokenizer_alone)
    unknown = load_tokenized(served, paths)
    write_card(unknown, paths)
    assert not any(paths.model_card("any").parent.glob("*.json")), "it was never probed"

    def probed(seen: Probe) -> TokenizedModel:
        record_probe(endpoint(), unknown.identity.tokenizer_fingerprint, seen, paths)
        return load_tokenized(served, paths)

    first, second = probed(SEEN), probed(shifted(1.0))
    fingerprints = [model.identity.model_fingerprint for model in (unknown, first, second)]
    assert len(set(fingerprints)) == 3
    assert second.identity.before == {*fingerprints[:2]}
    assert second.identity.before == list_earlier_fingerprints(served, second.identity.tokenizer_fingerprint, paths)
    assert {model.identity.weights_digest for model in (unknown, first, second)} == {None}
    write_card(second, paths)
    card = json.loads(paths.model_card(fingerprints[2]).read_text())
    assert (card["weights_digest"], card["dtype"], card["attention"]) == (None, None, None)
    assert (card["endpoint_url"], card["endpoint_dialect"], card["server"]) == ("https://host/v1", "vllm", "vllm-1")
    assert paths.endpoint(card["endpoint"]).exists()


def test_an_endpoint_and_local_weights_share_no_cache_rows(tmp_path: Path) -> None:
    folder, paths = save_model(tmp_path / "whole"), DataPaths(tmp_path / "data")
    own = load_tokenized(ModelEntry(name="here", path=folder), paths).identity
    remote = load_tokenized(entry(folder, window=None), paths).identity
    assert own.model_fingerprint != remote.model_fingerprint
    assert own.tokenizer_fingerprint == remote.tokenizer_fingerprint, "token frequencies are of the tokenizer alone"


# --- its tokenizer ---------------------------------------------------------------------------------------------------


def test_a_tokenizer_without_weights_gives_the_same_tokens(tokenizer_alone: Path, tmp_path: Path) -> None:
    paths = DataPaths(tmp_path / "data")
    model = load_tokenized(entry(tokenizer_alone), paths)
    whole = load_tokenized(ModelEntry(name="whole", path=tmp_path / "whole"), paths)
    assert (model.context_length, model.vocab_size) == (32, len(model.tokenizer))
    assert model.start_token == whole.start_token == "<s>"
    for text in ("Le café <s> était fermé", "12, 345\n"):
        own, other = (loaded.tokenizer.encode([text], add_special_tokens=False)[0] for loaded in (model, whole))
        assert own.ids == other.ids
        assert own.offsets == other.offsets
    with pytest.raises(ModelError, match="runs on the server https://host/v1, but this command needs the weights"):
        load_weights(model, "cpu")


def test_without_config_json_the_entry_must_set_window(tokenizer_alone: Path, tmp_path: Path) -> None:
    paths = DataPaths(tmp_path / "data")
    for _ in range(2):
        with pytest.raises(ModelError, match="Set window in the entry"):
            load_tokenized(entry(tokenizer_alone, window=None), paths)
    # An architecture that transformers does not know, as the newest are.
    config = {"model_type": "of_tomorrow", "text_config": {"max_position_embeddings": 77, "vocab_size": 500}}
    (tokenizer_alone / "config.json").write_text(json.dumps(config), encoding="utf-8")
    model = load_tokenized(entry(tokenizer_alone, window=None), paths)
    assert (model.context_length, model.vocab_size) == (77, 500)


def test_no_weights_are_fetched_for_a_model_at_an_endpoint(
    tokenizer_alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[list[str]] = []

    def fetched(hub: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        requested.append(allow_patterns)
        return str(tokenizer_alone)

    monkeypatch.setattr(locating, "snapshot_download", fetched)
    located = locating.locate(entry(None, hub="own/er"))
    assert located.folder == tokenizer_alone
    assert "*.json" in requested[0]
    assert not any("safetensors" in pattern for pattern in requested[0])
    assert located.resolved_from == "m at https://host/v1; tokenizer: hub own/er"


@pytest.mark.parametrize(
    "fields", [{"dtype": "bfloat16"}, {"dtype": "float32"}, {"attention": "eager"}, {"trust_remote_code": False}]
)
def test_settings_of_local_weights_are_refused_for_an_endpoint(fields: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=f"these settings do not apply to it: {next(iter(fields))}"):
        entry(tmp_path, **fields)
