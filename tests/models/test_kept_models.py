"""Stored copies of models: tokenizers, converted weights, and the detection of changed bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import tokenized
from transformers import AutoTokenizer

from audit_pipeline.models import conversion, converted_files, weights
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.converted_files import read_manifest_if_whole, read_tokenizer
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenized
from audit_pipeline.models.weights import load_weights
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics import load_checks
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.load_checks import LoadCheck
from audit_pipeline.token_statistics.loading import load_forward_pass

pytestmark = pytest.mark.filterwarnings("ignore:.*The stored copy is rebuilt")


@pytest.fixture
def a_gguf(tiny_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TokenizedModel:
    """Return a model of a .gguf. Patches make transformers read the tiny folder's model instead of the file."""
    source = tiny_folder("llama")
    gguf = tmp_path / "tiny.gguf"
    gguf.write_bytes(b"GGUF" + b"\0" * 60)
    load_pretrained = weights._load_pretrained

    def from_gguf(model: TokenizedModel, place: Path, **options: Any) -> object:
        if "gguf_file" not in options:
            return load_pretrained(model, place, **options)
        return weights.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)

    def read_source(located: object) -> object:
        return AutoTokenizer.from_pretrained(source), weights.AutoConfig.from_pretrained(source)

    monkeypatch.setattr(conversion, "read_with_transformers", read_source)
    monkeypatch.setattr(weights, "_load_pretrained", from_gguf)
    return load_tokenized(ModelEntry(name="g", path=gguf), DataPaths(tmp_path / "data"))


def test_every_changed_byte_of_a_stored_tokenizer_is_detected(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    paths = DataPaths(tmp_path)
    entry = ModelEntry(name="m", path=tiny_folder("llama"))
    before = load_tokenized(entry, paths)
    [folder] = paths.stored_tokenizers(before.identity.tokenizer_fingerprint).iterdir()
    for file in folder.iterdir():
        whole = file.read_bytes()
        for place in range(7, len(whole), max(1, len(whole) // 40)):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            # A file system's clock may stand still for some milliseconds.
            os.utime(file, ns=(place, place))
            found = read_tokenizer(folder)
            # A blank of the manifest may become another blank; nothing that is read may.
            assert found is None or (found.vocab_size, found.default_start_token, found.tokenizer.special_ids) == (
                before.vocab_size,
                before.start_token,
                before.tokenizer.special_ids,
            )
            assert file.suffix != ".json" or file.name != converted_files.TOKENIZER_FILE or found is None
        file.write_bytes(whole)
    assert read_tokenizer(folder) is not None
    (folder / converted_files.TOKENIZER_FILE).unlink()
    assert load_tokenized(entry, paths).tokenizer.encode(["a"], add_special_tokens=False)[0].ids


def test_the_weights_of_a_gguf_are_converted_once(a_gguf: TokenizedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    first = load_weights(a_gguf, "cpu", messages.append)
    assert read_manifest_if_whole(a_gguf.weights_folder)
    assert any("converting tiny.gguf" in line for line in messages)
    assert any("of converted weights are stored in" in line for line in messages)
    monkeypatch.setattr(weights, "_load_from_gguf", None)
    second = load_weights(a_gguf, "cpu", messages.append)
    assert len(messages) == 2
    assert first.state_dict().keys() == second.state_dict().keys()
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, second.state_dict()[name])


def test_changed_converted_weights_are_rebuilt(a_gguf: TokenizedModel) -> None:
    load_weights(a_gguf, "cpu")
    [file] = a_gguf.weights_folder.glob("*.safetensors")
    whole = file.read_bytes()
    file.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])
    with pytest.warns(UserWarning, match="is missing or corrupt. The stored copy is rebuilt"):
        assert not read_manifest_if_whole(a_gguf.weights_folder)
    messages: list[str] = []
    load_weights(a_gguf, "cpu", messages.append)
    assert any("converting" in line for line in messages)
    assert file.read_bytes() == whole


def test_load_checks_run_once_per_machine(
    tiny_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = DataPaths(tmp_path)
    model = tokenized(tiny_folder("llama"), tmp_path)
    checks = []

    check_model = load_checks.check_model

    def counted(forward: ForwardPass) -> LoadCheck:
        checks.append(forward)
        return check_model(forward)

    monkeypatch.setattr(load_checks, "check_model", counted)
    first = load_forward_pass(model, paths, "cpu")
    again = load_forward_pass(model, paths, "cpu")
    assert len(checks) == 1
    assert (
        first.checked
        == again.checked
        == LoadCheck(onednn=False, split=True, equal_lengths=False, packed=True, shared_prefix=True)
    )
    assert (again.equal_lengths, again.packed) == (False, True)
    # Another version of what the check hangs on, and another content of the file, ask for a new one.
    monkeypatch.setattr(load_checks, "CHECK_VERSION", load_checks.CHECK_VERSION + 1)
    load_forward_pass(model, paths, "cpu")
    assert len(checks) == 2
    path = paths.load_check(model.identity.model_fingerprint)
    path.write_text(path.read_text(encoding="utf-8").replace('"packed": true', '"packed": false'), encoding="utf-8")
    assert load_forward_pass(model, paths, "cpu").packed
    assert len(checks) == 3
