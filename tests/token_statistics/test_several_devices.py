"""Layers on several devices, as far as a machine without a GPU allows: some in memory, some on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_models import SENTENCES, forward_of, save_model, tokenized

from audit_pipeline.extras.extraction.continuations import bound_near_verbatim, count_hits, generate_greedily
from audit_pipeline.models import weights
from audit_pipeline.models.weights import Memory, check_memory_fit, compute_weight_bytes, load_weights
from audit_pipeline.store.files import write_json
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import KINDS
from audit_pipeline.token_statistics.backend import WindowResult
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.loading import load_forward_pass
from audit_pipeline.token_statistics.prefixed_texts import is_prefix_rerun
from audit_pipeline.token_statistics.tokens import cut_windows, encode, window_and_stride

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = [*SENTENCES, "a", " ".join(SENTENCES)]
WANTED = tuple(sorted({name for kind in KINDS.values() for name in kind.statistics}))
BEFORE = tuple(range(5, 25))


# Families with different layouts: gemma2's head is its embedding, and bloom's packed branches need other positions.
@pytest.mark.parametrize(
    ("family", "share"),
    [
        ("llama", 0.8),
        ("bloom", 0.1),
        pytest.param("llama", 0.1, marks=pytest.mark.slow),
        pytest.param("gemma2", 0.8, marks=pytest.mark.slow),
    ],
)
def test_layers_on_disk_give_the_results_of_layers_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, share: float
) -> None:

    def assert_same(found: Sequence[WindowResult], expected: Sequence[WindowResult]) -> None:
        assert [result.window for result in found] == [result.window for result in expected]
        for ours, theirs in zip(found, expected, strict=True):
            values = theirs.values or {}
            assert (ours.values or {}).keys() == values.keys()
            for name, value in values.items():
                # Logits are stored in half precision.
                tolerance = 2e-3 if name == "logits" else 1e-5
                np.testing.assert_allclose(ours.values[name], value, rtol=tolerance, atol=tolerance, err_msg=name)
            if theirs.branches is not None:
                np.testing.assert_allclose(ours.branches.logprob, theirs.branches.logprob, atol=1e-5)

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
    encoded = encode(model, TEXTS)
    place = window_and_stride(model)
    batch = [window for number, text in enumerate(encoded) for window in cut_windows(number, text, *place)]
    expected = whole.begin(encoded, batch, WANTED)()
    assert_same(forward.begin(encoded, batch, WANTED)(), expected)
    # Windows of some texts, so that the texts of the batch get other numbers.
    part = [window for window in batch if window.text in {1, 3, 6}]
    modes = [result.values["argmax_id"] for result in expected if result.window in part]
    with_branches = whole.run_with_branches(encoded, part, 4, WANTED, argmax=modes)
    assert_same(forward.run_with_branches(encoded, part, 4, WANTED, argmax=modes), with_branches)
    alone = forward.run_branches(encoded, part, modes, 4)
    for ours, theirs in zip(alone, with_branches, strict=True):
        np.testing.assert_allclose(ours.branches.logprob, theirs.branches.logprob, atol=1e-5)
    fitting = [window for window in part if window.length + len(BEFORE) < place[0]]
    found, expected = (run.begin(encoded, fitting, WANTED, before=BEFORE)() for run in (forward, whole))
    assert_same(found, expected)
    # Continuations.
    prefix = encoded[0].token_id[:6].tolist()
    assert generate_greedily(forward, prefix, 12) == generate_greedily(whole, prefix, 12)
    likely = np.array([*prefix, *generate_greedily(whole, prefix, 1)], dtype=np.int32)
    short = replace(encoded[0], token_id=likely, start_token_id=None, first_scored=len(prefix))
    assert count_hits(forward, short, 64, 0) == count_hits(whole, short, 64, 0) > 0
    half = replace(encoded[0], first_scored=len(encoded[0].token_id) // 2)
    differing = len(half.token_id) - half.first_scored - 1
    bounds = [bound_near_verbatim(run, half, differing, 4) for run in (forward, whole)]
    assert bounds[0] == pytest.approx(bounds[1], abs=1e-3)


def test_a_model_on_several_devices_has_its_own_load_check(tmp_path: Path) -> None:
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


def test_a_tenth_of_main_memory_is_reserved_for_the_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_model_that_fits_is_on_one_device(tmp_path: Path) -> None:
    folder, messages = save_model(tmp_path / "model"), list[str]()
    spread = load_weights(tokenized(folder, tmp_path / "data", devices="auto"), "cpu", messages.append)
    assert {parameter.device.type for parameter in spread.parameters()} == {"cpu"}
    assert messages == ["model: the layers are on cpu"]
