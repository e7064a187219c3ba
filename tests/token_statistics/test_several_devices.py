"""Layers on several devices, as far as a machine without a GPU shows it: some in memory, some on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_models import forward_of, save_model, tokenized
from whole_and_divided import assert_alike, assert_extracts_alike

from audit_pipeline.models import weights
from audit_pipeline.models.weights import Memory, check_memory_fit, compute_weight_bytes, load_weights
from audit_pipeline.store.files import write_json
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.loading import load_forward_pass
from audit_pipeline.token_statistics.prefixed_texts import is_prefix_rerun

pytestmark = pytest.mark.usefixtures("one_thread")


# What is in memory and what is not; gemma2's head is its embedding, bloom's packed branches need other positions.
@pytest.mark.parametrize(
    ("family", "share"),
    [
        ("llama", 0.8),
        ("bloom", 0.1),
        pytest.param("llama", 0.1, marks=pytest.mark.slow),
        pytest.param("gemma2", 0.8, marks=pytest.mark.slow),
    ],
)
def test_layers_that_are_not_in_memory_give_what_they_give_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, share: float
) -> None:
    layers = {} if family == "bloom" else {"num_hidden_layers": 5}
    folder = save_model(tmp_path / "model", family, **layers)
    model, messages = tokenized(folder, tmp_path / "data", devices="auto"), list[str]()
    size = compute_weight_bytes(model, "cpu")
    monkeypatch.setattr(weights, "measure_main_memory", lambda: Memory(size, int(share * size)))
    spread = load_weights(model, "cpu", messages.append)
    devices = {parameter.device.type for parameter in spread.parameters()}
    assert devices == ({"cpu", "meta"} if share > 0.5 else {"meta"})
    assert messages == [f"model: the layers are on {'cpu, disk' if share > 0.5 else 'disk'}"]
    whole, forward = forward_of(tokenized(folder, tmp_path / "data")), ForwardPass(spread, model.vocab_size)
    assert forward.checked == whole.checked
    assert forward.device.type == "cpu"
    assert_alike(model, whole, forward, tolerance=1e-5)
    assert_extracts_alike(model, whole, forward)


def test_a_division_has_a_check_of_its_own(tmp_path: Path) -> None:
    folder, paths = save_model(tmp_path / "model"), DataPaths(tmp_path / "data")
    entries = [tokenized(folder, paths.root, **fields) for fields in ({}, {"devices": "auto"})]
    [own] = {model.identity.model_fingerprint for model in entries}
    for model in entries:
        load_forward_pass(model, paths, "cpu")

    assert paths.load_checks(own) == sorted(paths.load_check(own, model.entry.devices) for model in entries)
    assert paths.load_check(own).name == f"{own}.json"
    # One does not overwrite the other, and each is read for its own.
    write_json(paths.load_check(own), {"machine": {}, "found": {"shared_prefix": False}})
    assert [is_prefix_rerun(model, paths) for model in entries] == [True, False]


def test_a_tenth_of_main_memory_is_left_to_the_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_model(tmp_path / "model", num_hidden_layers=5)
    model = tokenized(folder, tmp_path / "data", devices="auto")
    size = compute_weight_bytes(model, "cpu")
    devices = []
    for free in (size * 21 // 20, size * 5 // 4):
        monkeypatch.setattr(weights, "measure_main_memory", lambda free=free: Memory(2 * size, free))
        spread = load_weights(model, "cpu")
        devices.append({parameter.device.type for parameter in spread.parameters()})
        assert check_memory_fit(model, "cpu").now is (free > size * 10 // 9)
    assert devices == [{"cpu", "meta"}, {"cpu"}]


def test_a_model_that_fits_lies_on_one_device(tmp_path: Path) -> None:
    folder, messages = save_model(tmp_path / "model"), list[str]()
    spread = load_weights(tokenized(folder, tmp_path / "data", devices="auto"), "cpu", messages.append)
    assert {parameter.device.type for parameter in spread.parameters()} == {"cpu"}
    assert messages == ["model: the layers are on cpu"]
