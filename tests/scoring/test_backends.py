"""The holder of a single model: the model is reused, and freed before another model is loaded."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tiny_models import tokenized

from audit_pipeline.errors import ModelError
from audit_pipeline.models import adapters
from audit_pipeline.models.server_settings import Endpoint
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.backends import HeldModel
from audit_pipeline.token_statistics.backend import Backend


class Weights:
    """A stand-in for the weights of a model."""


class Loader:
    """A loader that records the loaded models, and whether the earlier model was still in memory."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.earlier_in_memory: list[bool] = []
        self.latest: Callable[[], object] = lambda: None

    def __call__(self, model: TokenizedModel) -> Backend:
        gc.collect()
        self.earlier_in_memory.append(self.latest() is not None)
        self.loaded.append(model.entry.name)
        weights = Weights()
        # The modules of a model form a cycle, which only the garbage collector frees.
        weights.itself = weights  # type: ignore[attr-defined]
        self.latest = weakref.ref(weights)
        return cast(Backend, weights)


@pytest.fixture
def model(tiny_folder: Callable[..., Path], tmp_path: Path) -> TokenizedModel:
    return tokenized(tiny_folder("llama"), tmp_path / "data")


def with_entry(model: TokenizedModel, **changes: Any) -> TokenizedModel:
    """Return the same weights under another entry."""
    entry = model.entry.model_copy(update=changes)
    return replace(model, located=replace(model.located, entry=entry))


def test_the_same_model_is_loaded_once(model: TokenizedModel) -> None:
    held, load = HeldModel(), Loader()
    first = held.ensure_loaded(model, load)
    assert held.ensure_loaded(with_entry(model, name="the same under another name"), load) is first
    assert load.loaded == [model.entry.name]


@pytest.mark.parametrize(
    "change",
    [
        lambda model: with_entry(model, devices="auto"),
        lambda model: with_entry(
            model, endpoint=Endpoint(url="http://127.0.0.1:1/v1", model="m", dialect="vllm", concurrency=2)
        ),
        lambda model: replace(model, start_token_id=7),
    ],
    ids=["devices", "endpoint", "start token"],
)
def test_other_devices_endpoints_or_start_tokens_are_another_model(
    model: TokenizedModel, change: Callable[[TokenizedModel], TokenizedModel]
) -> None:
    held, load = HeldModel(), Loader()
    other = change(model)
    assert other.identity == model.identity
    assert held.ensure_loaded(model, load) is not held.ensure_loaded(other, load)
    assert load.loaded == [model.entry.name] * 2


def test_the_earlier_model_is_freed_before_the_next_is_loaded(
    model: TokenizedModel, tiny_folder: Callable[..., Path], tmp_path: Path
) -> None:
    held, load = HeldModel(), Loader()
    other = tokenized(tiny_folder("opt"), tmp_path / "data")
    for one in (model, other, model):
        held.ensure_loaded(one, load)
    assert load.loaded == [model.entry.name, other.entry.name, model.entry.name]
    assert load.earlier_in_memory == [False, False, False]


def test_memory_is_released_only_after_a_load(model: TokenizedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[str] = []
    monkeypatch.setattr(adapters, "release_unused_memory", lambda: released.append("all"))
    held = HeldModel()
    held.free()
    assert released == []
    held.ensure_loaded(model, Loader())
    held.free()
    held.free()
    assert released == ["all"]

    def fails(wanted: TokenizedModel) -> Backend:
        raise ModelError("no room")

    with pytest.raises(ModelError):
        held.ensure_loaded(model, fails)
    held.free()
    assert released == ["all", "all"]


def test_after_a_failed_load_no_model_is_held(model: TokenizedModel) -> None:
    held, load = HeldModel(), Loader()
    held.ensure_loaded(model, load)

    def fails(wanted: TokenizedModel) -> Backend:
        raise ModelError(f"no room for {wanted.entry.name}")

    with pytest.raises(ModelError, match="no room"):
        held.ensure_loaded(with_entry(model, devices="auto"), fails)
    gc.collect()
    assert load.latest() is None
    held.ensure_loaded(model, load)
    assert len(load.loaded) == 2, "the one before was freed for it"
