"""Whether weights fit is known from headers and from what devices have, before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from tiny_models import save_model, tokenized

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import ModelError
from audit_pipeline.models import room
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.models.room import Memory, fit_of, parameters, weight_bytes
from audit_pipeline.models.weights import load_weights
from audit_pipeline.token_statistics.estimate import seconds_for
from audit_pipeline.token_statistics.ready import forward_pass


def model_of(folder: Path, **fields: object) -> TokenizedModel:
    if not (folder / "model").exists():
        save_model(folder / "model")
    return tokenized(folder / "model", folder / "data", **fields)


def given(monkeypatch: pytest.MonkeyPatch, main: Memory, *gpus: Memory) -> None:
    """A machine that has this, and no swap."""
    monkeypatch.setattr(room, "main_memory", lambda: main)
    monkeypatch.setattr(room, "gpus", lambda: list(gpus))
    monkeypatch.setattr(psutil, "swap_memory", lambda: SimpleNamespace(total=0))


@pytest.mark.parametrize(("dtype", "itemsize"), [("float32", 4), ("bfloat16", 2)])
def test_weights_take_what_they_take_in_the_entrys_dtype(tmp_path: Path, dtype: str, itemsize: int) -> None:
    model = model_of(tmp_path, dtype=dtype)
    loaded = load_weights(model, "cpu")
    in_memory = sum(parameter.numel() * parameter.element_size() for parameter in loaded.parameters())
    assert weight_bytes(model, "cpu") == in_memory == parameters(model) * itemsize


def test_a_model_that_never_fits_is_refused_and_nothing_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(tmp_path)
    size = weight_bytes(model, "cpu")
    # What is taken now may be free in a moment: that alone stops nothing.
    given(monkeypatch, Memory(size, size // 2))
    assert "do not fit" in fit_of(model, "cpu").words
    load_weights(model, "cpu")
    given(monkeypatch, Memory(size - 1, size - 1))
    with pytest.raises(ModelError, match=r"too large: The weights take 0.2 MB in memory \(float32\), and do not fit"):
        forward_pass(model, DataPaths(tmp_path / "data"), "cpu")
    assert fit_of(model_of(tmp_path, devices="auto"), "cpu").ever


def test_several_gpus_have_their_memory_together_or_a_share_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, auto, divided = (model_of(tmp_path, **fields) for fields in ({}, {"devices": "auto"}, {"tensor_parallel": 2}))
    size = weight_bytes(one, "cuda")
    half = Memory(size * 2 // 3, size * 2 // 3)
    given(monkeypatch, Memory(10 * size, 10 * size), half, half)
    assert not fit_of(one, "cuda").ever
    assert fit_of(auto, "cuda").now
    assert "2 GPUs have" in fit_of(auto, "cuda").words
    assert fit_of(divided, "cuda").now
    given(monkeypatch, Memory(10 * size, 10 * size), half)
    assert not fit_of(auto, "cuda").now
    assert "The rest lies in main memory" in fit_of(auto, "cuda").words
    assert fit_of(auto, "cuda").ever
    assert not fit_of(divided, "cuda").ever
    assert "tensor_parallel: 2 takes as many GPUs, and there are 1" in fit_of(divided, "cuda").words


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    "ask",
    [
        lambda model, paths: forward_pass(model, paths, "cuda"),
        lambda model, paths: seconds_for(model, 100, "cuda"),
        lambda model, paths: load_weights(model, "cuda"),
    ],
)
def test_a_gpu_that_is_not_there_is_told(tmp_path: Path, ask: Callable[[TokenizedModel, DataPaths], object]) -> None:
    with pytest.raises(ModelError, match="no CUDA device is available: leave --device out"):
        ask(model_of(tmp_path), DataPaths(tmp_path / "data"))


def test_what_this_machine_has_is_asked_of_it() -> None:
    memory = room.main_memory()
    assert 0 < memory.free <= memory.total == psutil.virtual_memory().total
    assert len(room.gpus()) == torch.cuda.device_count()
