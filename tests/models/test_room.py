"""The check that weights fit into memory, from headers and the memory of devices."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import save_model, tokenized

from audit_pipeline.errors import ModelError
from audit_pipeline.models import weights
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.models.weights import (
    Memory,
    apply_cgroup_limits,
    check_memory_fit,
    compute_weight_bytes,
    count_parameters,
    load_weights,
)
from audit_pipeline.store.files import write_json
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.calibration import estimate_pass_seconds
from audit_pipeline.token_statistics.loading import load_forward_pass


def save_and_load(folder: Path, **fields: object) -> TokenizedModel:
    if not (folder / "model").exists():
        save_model(folder / "model")
    return tokenized(folder / "model", folder / "data", **fields)


def simulate_memory(monkeypatch: pytest.MonkeyPatch, main: Memory, *gpus: Memory) -> None:
    """Simulate a machine with this memory and without swap."""
    monkeypatch.setattr(weights, "measure_main_memory", lambda: main)
    monkeypatch.setattr(weights, "measure_gpu_memory", lambda: list(gpus))
    monkeypatch.setattr(psutil, "swap_memory", lambda: SimpleNamespace(total=0))


@pytest.mark.parametrize(("dtype", "itemsize"), [("float32", 4), ("bfloat16", 2)])
def test_the_size_of_weights_follows_the_dtype_of_the_entry(tmp_path: Path, dtype: str, itemsize: int) -> None:
    model = save_and_load(tmp_path, dtype=dtype)
    loaded = load_weights(model, "cpu")
    in_memory = sum(parameter.numel() * parameter.element_size() for parameter in loaded.parameters())
    assert compute_weight_bytes(model, "cpu") == in_memory == count_parameters(model) * itemsize


def test_weights_in_two_copies_count_once(tmp_path: Path) -> None:
    model = save_and_load(tmp_path)
    size, folder = compute_weight_bytes(model, "cpu"), model.weights_folder
    shutil.copy(folder / "model.safetensors", folder / "consolidated.safetensors")
    assert compute_weight_bytes(model, "cpu") == size
    # In several files, which an index names.
    tensors = load_file(folder / "consolidated.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[:2], "model-00002-of-00002.safetensors": names[2:]}
    for file, some in shards.items():
        save_file({name: tensors[name] for name in some}, folder / file)
    index = {name: file for file, some in shards.items() for name in some}
    write_json(folder / "model.safetensors.index.json", {"weight_map": index})
    assert compute_weight_bytes(model, "cpu") == size
    (folder / "model.safetensors.index.json").write_text("{", encoding="utf-8")
    with pytest.raises(ModelError, match="weights"):
        compute_weight_bytes(model, "cpu")


@pytest.mark.parametrize(
    ("files", "groups", "expected"),
    [
        ({}, "", (100, 60)),
        ({"": ("max", "90", "anon 20")}, "0::/", (100, 60)),
        ({"": ("70", "50", "anon 20")}, "0::/", (70, 20)),
        ({"": ("70", "50", "anon 20\ninactive_file 30")}, "0::/", (70, 50)),
        # A group inside another that is bound more tightly; one that is not there (a path outside of the container).
        ({"a": ("40", "9", ""), "a/b": ("max", "9", "")}, "9:cpu:/\n0::/a/b", (40, 31)),
        ({"": ("70", "80", "")}, "0::/a/b", (70, 0)),
    ],
)
def test_the_control_group_limits_the_free_memory(
    tmp_path: Path, files: dict[str, tuple[str, str, str]], groups: str, expected: tuple[int, int]
) -> None:
    for folder, contents in files.items():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for name, content in zip(("memory.max", "memory.current", "memory.stat"), contents, strict=True):
            (tmp_path / folder / name).write_text(f"{content}\n", encoding="utf-8")
    assert apply_cgroup_limits(Memory(100, 60), groups, tmp_path) == Memory(*expected)


def test_a_model_that_never_fits_is_refused_before_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = save_and_load(tmp_path)
    size = compute_weight_bytes(model, "cpu")
    # Memory that is in use now may be free later, so loading is not refused.
    simulate_memory(monkeypatch, Memory(size, size // 2))
    assert "do not fit" in check_memory_fit(model, "cpu").sentences
    load_weights(model, "cpu")
    simulate_memory(monkeypatch, Memory(size - 1, size - 1))
    with pytest.raises(ModelError, match=r"too large: The weights take 0.2 MB in memory \(float32\), and do not fit"):
        load_forward_pass(model, DataPaths(tmp_path / "data"), "cpu")
    assert check_memory_fit(save_and_load(tmp_path, devices="auto"), "cpu").ever


def test_the_memory_of_several_gpus_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, auto = (save_and_load(tmp_path, **fields) for fields in ({}, {"devices": "auto"}))
    size = compute_weight_bytes(one, "cuda")
    half = Memory(size * 2 // 3, size * 2 // 3)
    simulate_memory(monkeypatch, Memory(10 * size, 10 * size), half, half)
    assert not check_memory_fit(one, "cuda").ever
    assert check_memory_fit(auto, "cuda").now
    assert "2 GPUs have" in check_memory_fit(auto, "cuda").sentences
    simulate_memory(monkeypatch, Memory(10 * size, 10 * size), half)
    assert not check_memory_fit(auto, "cuda").now
    assert "the weights that do not fit stay in main memory" in check_memory_fit(auto, "cuda").sentences
    assert check_memory_fit(auto, "cuda").ever


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    "ask",
    [
        lambda model, paths: load_forward_pass(model, paths, "cuda"),
        lambda model, paths: estimate_pass_seconds(model, paths, 100, "cuda"),
        lambda model, paths: load_weights(model, "cuda"),
    ],
)
def test_a_missing_gpu_raises_an_error(tmp_path: Path, ask: Callable[[TokenizedModel, DataPaths], object]) -> None:
    with pytest.raises(ModelError, match=r"no CUDA device is available\. Remove --device"):
        ask(save_and_load(tmp_path), DataPaths(tmp_path / "data"))
