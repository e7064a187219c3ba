"""Adapters on a base model: scores, exchange in memory, and refusals."""

from __future__ import annotations

import copy
import json
import os
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from test_quantised import pack_in_bits
from tiny_models import LORA, SAME_IN_FLOAT32, SAME_IN_FLOAT64, SENTENCES, error_line, save_adapter, save_model, score
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from audit_pipeline.config.entries import Entries
from audit_pipeline.config.validation import validate_as
from audit_pipeline.errors import ModelFilesWarning
from audit_pipeline.models import adapters
from audit_pipeline.models.adapters import HeldBase
from audit_pipeline.models.config import AdapterFiles, ModelEntry, resolve_model
from audit_pipeline.models.fingerprint import entry_version
from audit_pipeline.models.locate import locate
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenized
from audit_pipeline.scoring.backends import HeldModel
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.backend import Backend
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.loading import load_forward_pass
from audit_pipeline.token_statistics.tokens import encode

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.usefixtures("one_thread")

NO_MODELS: Entries[ModelEntry] = Entries(Path("models.yaml"), "model", {})


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "base")


@pytest.fixture(scope="module")
def saved_adapter(base: Path) -> Path:
    return save_adapter(base.parent / "adapter", base)


@pytest.fixture
def adapter(saved_adapter: Path, tmp_path: Path) -> Path:
    """Copy the adapter of the base, so that a test can change it."""
    return Path(shutil.copytree(saved_adapter, tmp_path / "adapter"))


@pytest.fixture(scope="module")
def base_scores(base: Path) -> np.ndarray:
    without = load(base, None, base.parent / "data")
    return scores_of(HeldBase().load(without, "cpu"), without)


def load(base: Path, adapter: Path | None, data: Path, **fields: object) -> TokenizedModel:
    named = None if adapter is None else AdapterFiles(path=adapter)
    return load_tokenized(ModelEntry(name=(adapter or base).name, path=base, adapter=named, **fields), DataPaths(data))


def scores_of(module: torch.nn.Module, model: TokenizedModel) -> np.ndarray:
    forward = ForwardPass(module, model.vocab_size)
    return np.concatenate([row["logprob"] for row in score(model, forward, list(SENTENCES))])


@pytest.mark.parametrize(
    "config",
    [
        peft.LoraConfig(**LORA),
        peft.LoraConfig(**{**LORA, "use_dora": True}),
        peft.LoraConfig(**{**LORA, "target_modules": ["q_proj", "lm_head"]}),
        peft.LoraConfig(**LORA, init_lora_weights="pissa"),
        peft.LoHaConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
        peft.IA3Config(
            target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"], task_type="CAUSAL_LM"
        ),
        peft.OFTConfig(r=2, oft_block_size=0, target_modules=["q_proj"], task_type="CAUSAL_LM"),
    ],
    ids=["lora", "dora", "head", "pissa", "loha", "ia3", "oft"],
)
def test_an_adapter_scores_like_the_merged_model_and_does_not_change_the_base(
    base: Path, tmp_path: Path, config: object
) -> None:

    def float64_logprobs(module: torch.nn.Module, model: TokenizedModel) -> np.ndarray:
        """Return the log-probabilities of all tokens but the first of each sentence, computed in float64.

        Merged and separate weights are different float32 sums, so a comparison in float32 would measure rounding.
        """
        exact = copy.deepcopy(module).double()
        parts = []
        for encoded in encode(model, list(SENTENCES)):
            ids = torch.tensor(encoded.token_id.astype(np.int64))
            with torch.inference_mode():
                log_p = exact(input_ids=ids[None], use_cache=False).logits[0, :-1].log_softmax(-1)
            parts.append(log_p.gather(1, ids[1:, None])[:, 0].numpy())
        return np.concatenate(parts)

    folder = save_adapter(tmp_path / "adapter", base, config)
    plain = AutoModelForCausalLM.from_pretrained(base)
    merged = peft.PeftModel.from_pretrained(plain, folder).double().merge_and_unload().eval()
    model, without = load(base, folder, tmp_path / "data"), load(base, None, tmp_path / "data")
    held = HeldBase()
    before = scores_of(held.load(without, "cpu"), without)
    adapted = held.load(model, "cpu")
    assert np.abs(scores_of(adapted, model) - before).max() > 1e-3
    expected = float64_logprobs(merged, model)
    np.testing.assert_allclose(float64_logprobs(adapted, model), expected, atol=SAME_IN_FLOAT64)
    np.testing.assert_array_equal(scores_of(held.load(without, "cpu"), without), before)


def test_all_adapters_of_a_base_share_one_base_in_memory(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from audit_pipeline.models import weights

    loaded: list[str] = []

    def load_weights(model: TokenizedModel, *options: object) -> torch.nn.Module:
        loaded.append(model.entry.name)
        return own(model, *options)

    own = weights.load_weights
    monkeypatch.setattr(weights, "load_weights", load_weights)
    folders = [save_adapter(tmp_path / name, base, seed=seed) for seed, name in enumerate(["a", "b"])]
    models = [load(base, folder, tmp_path / "data") for folder in (*folders, None)]
    held, paths = HeldModel(), DataPaths(tmp_path / "data")

    def open_pass(model: TokenizedModel) -> Backend:
        return load_forward_pass(model, paths, "cpu", held=held.base)

    found = []
    for model in (*models, models[0]):
        forward = held.ensure_loaded(model, open_pass).local_backend
        assert isinstance(forward, ForwardPass)
        found.append(np.concatenate([row["logprob"] for row in score(model, forward, list(SENTENCES))]))
    assert loaded == ["a"]
    np.testing.assert_array_equal(found[0], found[3])
    assert np.abs(found[0] - found[1]).max() > 1e-3
    assert np.abs(found[1] - found[2]).max() > 1e-3
    other = load(save_model(tmp_path / "other", seed=9), None, tmp_path / "data")
    held.ensure_loaded(other, open_pass)
    held.free()
    held.ensure_loaded(models[1], open_pass)
    assert loaded == ["a", "other", "b"]


def test_the_fingerprint_covers_base_and_adapter(base: Path, tmp_path: Path) -> None:
    first = save_adapter(tmp_path / "first", base)
    copied = Path(shutil.copytree(first, tmp_path / "copied"))
    config = json.loads((copied / "adapter_config.json").read_text())
    (copied / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": "elsewhere"}))
    scaled = Path(shutil.copytree(first, tmp_path / "scaled"))
    (scaled / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 1}))
    other = save_adapter(tmp_path / "other", base, seed=2)
    models = [load(base, folder, tmp_path / "data") for folder in (first, copied, scaled, other, None)]
    prints = [model.identity.model_fingerprint for model in models]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 4
    assert {model.identity.weights_digest for model in models} == {models[4].identity.weights_digest}
    entry = models[0].entry
    before = entry_version(entry)
    (first / "adapter_model.safetensors").write_bytes(b"more")
    assert entry_version(entry) != before


def test_the_folder_of_an_adapter_names_its_base(base: Path, tmp_path: Path, adapter: Path) -> None:
    config = adapter / "adapter_config.json"
    known = ModelEntry(name="base", path=base, start_token="<|endoftext|>", window=32, release_date="2024-01-01")
    configured = Entries(Path("models.yaml"), "model", {"base": known})
    server = {"backend": "openai", "endpoint": {"url": "http://localhost:1/v1", "model": "m", "dialect": "vllm"}}
    served = validate_as(ModelEntry, {"name": "served", "hub": "owner/name", "start_token": "<s>", **server})
    on_server = Entries(Path("models.yaml"), "model", {"served": served})
    for named, models, expected in (
        (str(base), configured, ("<|endoftext|>", base, None)),
        ("base", configured, ("<|endoftext|>", base, None)),
        (str(base), NO_MODELS, (None, base, None)),
        ("owner/name", NO_MODELS, (None, None, "owner/name")),
        ("owner/name", on_server, (None, None, "owner/name")),
    ):
        config.write_text(json.dumps({**json.loads(config.read_text()), "base_model_name_or_path": named}))
        entry = resolve_model(str(adapter), models)
        assert (entry.start_token, entry.path, entry.hub) == expected
        assert (entry.name, entry.adapter, entry.release_date) == (str(adapter), AdapterFiles(path=adapter), None)
    config.write_text(json.dumps({"base_model_name_or_path": "nowhere"}))
    assert "'nowhere' (adapter_config.json) is not a configured model" in error_line(
        lambda: resolve_model(str(adapter), NO_MODELS)
    )
    config.write_text("{}")
    assert "does not name the base" in error_line(lambda: resolve_model(str(adapter), NO_MODELS))


def change_tensors(adapter: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(adapter / WEIGHTS)
    change(tensors)
    save_file(tensors, adapter / WEIGHTS)


def change_config(adapter: Path, **fields: object) -> None:
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def as_mlx(adapter: Path) -> None:
    fields = {"fine_tune_type": "lora", "model": "base", "num_layers": 2, "lora_parameters": {"rank": 8}}
    (adapter / "adapter_config.json").write_text(json.dumps(fields))
    (adapter / WEIGHTS).rename(adapter / "adapters.safetensors")


WEIGHTS = "adapter_model.safetensors"
ROWS = "base_model.model.model.embed_tokens.weight"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda folder: (folder / WEIGHTS).rename(folder / "adapter_model.bin"),
            "has no adapter_model.safetensors. Pickled weights",
        ),
        (lambda folder: os.truncate(folder / WEIGHTS, 100), "the weights of the adapter adapter cannot be read"),
        (
            partial(change_tensors, change=lambda all_of_it: all_of_it.pop(next(iter(all_of_it)))),
            "1 tensor(s) of the adapter are missing or unexpected",
        ),
        (
            partial(change_tensors, change=lambda all_of_it: all_of_it.update(more=torch.zeros(1))),
            "1 tensor(s) of the adapter are missing or unexpected",
        ),
        (partial(change_config, r=8), "does not fit its base"),
        (partial(change_config, target_modules=["no_such"]), "does not fit its base"),
        (partial(change_config, peft_type="NO_SUCH"), "of the type 'NO_SUCH' (peft_type), which peft"),
        (partial(change_config, peft_type=None), "of the type None (peft_type), which peft"),
        (partial(change_config, task_type="SEQ_CLS"), "for the task 'SEQ_CLS' (task_type), but only CAUSAL_LM"),
        (partial(change_config, new_switch=True), "does not support and would ignore: new_switch"),
        (
            partial(change_config, new_scale=0.5, new_name="x", new_list=[0], new_zero=0),
            "new_list, new_name, new_scale, new_zero",
        ),
        (partial(change_config, revision=7), "revision is 7, but must be text"),
        (as_mlx, "an adapter of MLX (mlx-lm), which is not supported. Merge it"),
        (lambda folder: (as_mlx(folder), (folder / "adapter_config.json").unlink()), "an adapter of MLX (mlx-lm)"),
        (
            lambda folder: (folder / "added_tokens.json").write_text('{"lantern!": 400}'),
            "declares tokens that the base model does not have",
        ),
        (
            partial(change_config, peft_type="PROMPT_TUNING", num_virtual_tokens=2),
            "of the type PROMPT_TUNING, which is not supported because it acts outside",
        ),
        (
            partial(change_tensors, change=lambda all_of_it: all_of_it.update({ROWS: torch.zeros(500, 32)})),
            "does not fit its base",
        ),
    ],
)
def test_an_unusable_adapter_raises_a_one_line_error(
    base: Path, tmp_path: Path, change: Callable[[Path], object], words: str, adapter: Path, base_scores: np.ndarray
) -> None:
    change(adapter)
    held = HeldBase()
    assert words in error_line(lambda: held.load(load(base, adapter, tmp_path / "data"), "cpu"))
    without = load(base, None, tmp_path / "data")
    np.testing.assert_array_equal(scores_of(held.load(without, "cpu"), without), base_scores)


def test_without_peft_the_error_names_the_command_that_installs_it(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adapter: Path
) -> None:
    monkeypatch.setattr(adapters, "find_spec", lambda name: None)
    words = error_line(lambda: HeldBase().load(load(base, adapter, tmp_path / "data"), "cpu"))
    assert (
        words
        == "adapter is an adapter, and the package peft is not installed. Run: pip install 'corpus-audit[adapters]'"
    )


def test_the_folder_of_an_adapter_may_contain_the_tokenizer_of_its_base(
    base: Path, tmp_path: Path, adapter: Path
) -> None:
    shutil.copy(base / "tokenizer.json", adapter)
    assert isinstance(HeldBase().load(load(base, adapter, tmp_path / "data"), "cpu"), torch.nn.Module)
    assert resolve_model(str(adapter), NO_MODELS).adapter is not None


def test_unknown_adapter_settings_without_a_value_are_accepted(base: Path, tmp_path: Path, adapter: Path) -> None:
    change_config(adapter, new_none=None, new_switch=False, new_name="", new_list=[], new_fields={})
    assert isinstance(HeldBase().load(load(base, adapter, tmp_path / "data"), "cpu"), torch.nn.Module)


def test_an_mlx_adapter_is_reported_before_its_base_is_resolved(base: Path, tmp_path: Path, adapter: Path) -> None:
    as_mlx(adapter)
    assert "an adapter of MLX" in error_line(lambda: resolve_model(str(adapter), NO_MODELS))


LANTERN = {"id": 400, "content": "harbour", "special": False}
CUT = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}


@pytest.mark.parametrize(
    ("change", "declared", "is_taken"),
    [
        (lambda fields: fields["added_tokens"].append({**fields["added_tokens"][-1], **LANTERN}), {}, True),
        (lambda fields: fields.update(normalizer={"type": "Lowercase"}), {}, True),
        (lambda fields: fields["model"]["merges"].pop(), {}, True),
        (lambda fields: None, {"bos_token": "<|endoftext|>"}, True),
        (lambda fields: fields.update(truncation=CUT), {}, False),
        (lambda fields: None, {"chat_template": "{{ messages }}", "pad_token": "</s>", "padding_side": "left"}, False),
    ],
    ids=["added", "normalizer", "merges", "start", "batches", "template"],
)
def test_the_tokenizer_of_an_adapter_is_used_if_it_gives_other_tokens(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], declared: dict[str, str], is_taken: bool
) -> None:
    base = save_model(tmp_path / "base", vocab_size=448)
    folder = save_adapter(tmp_path / "adapter", base)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(base / name, folder)
    fields = json.loads((folder / "tokenizer.json").read_text())
    change(fields)
    (folder / "tokenizer.json").write_text(json.dumps(fields))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, **declared}))
    model, without = load(base, folder, tmp_path / "data"), load(base, None, tmp_path / "data")
    assert (model.located.own_tokenizer == folder) == is_taken
    assert (model.identity.tokenizer_fingerprint != without.identity.tokenizer_fingerprint) == is_taken
    own = Tokenizer.from_file(str(folder / "tokenizer.json"))
    own.no_truncation()
    assert [text.token_id.tolist() for text in encode(model, SENTENCES)] == [own.encode(text).ids for text in SENTENCES]
    assert model.vocab_size == 448


def test_the_base_has_the_revision_that_the_adapter_names(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adapter: Path
) -> None:
    change_config(adapter, base_model_name_or_path="owner/name", revision="v2")
    commits = {"main": "1" * 40, "v2": "2" * 40}
    for commit in commits.values():
        shutil.copytree(base, tmp_path / commit)

    def download(hub: str, revision: str | None, allow_patterns: object) -> str:
        assert hub in ("owner/name", "owner/other")
        return str(tmp_path / commits[revision or "main"])

    monkeypatch.setattr("audit_pipeline.models.locate.snapshot_download", download)
    configured = Entries(Path("models.yaml"), "model", {"m": ModelEntry(name="m", hub="owner/name", revision="main")})

    def find(**fields: str) -> ModelEntry:
        return ModelEntry(name="m", adapter=AdapterFiles(path=adapter), **fields)

    with warnings.catch_warnings():
        warnings.simplefilter("error", ModelFilesWarning)
        for entry in (
            find(hub="owner/name"),
            find(hub="owner/name", revision="v2"),
            resolve_model(str(adapter), NO_MODELS),
            resolve_model(str(adapter), configured),
        ):
            model = load_tokenized(entry, DataPaths(tmp_path / "data"))
            assert model.identity.weights_digest == f"hub:owner/name@{commits['v2']}"
    with pytest.warns(
        ModelFilesWarning, match="the revision v2 of the base model, but the entry names main, which is used"
    ):
        assert locate(find(hub="owner/name", revision="main")).commit == commits["main"]
    with pytest.warns(ModelFilesWarning, match="the base model owner/name, but the entry names owner/other"):
        assert locate(find(hub="owner/other")).commit == commits["main"]
    assert locate(find(path=str(base))).folder == base


def test_adapters_work_on_quantised_bases(tmp_path: Path) -> None:
    plain = save_model(tmp_path / "plain", hidden_size=64, intermediate_size=64, initializer_range=0.1)
    folder = save_adapter(tmp_path / "adapter", plain)
    packed = pack_in_bits(Path(shutil.copytree(plain, tmp_path / "packed")), 4)
    model, without = load(packed, folder, tmp_path / "data"), load(packed, None, tmp_path / "data")
    held = HeldBase()
    before = scores_of(held.load(without, "cpu"), without)
    module = AutoModelForCausalLM.from_pretrained(packed, dtype=torch.float32, device_map={"": "cpu"})
    expected = scores_of(peft.PeftModel.from_pretrained(module, folder).get_base_model().eval(), model)
    found = scores_of(held.load(model, "cpu"), model)
    np.testing.assert_allclose(found, expected, atol=SAME_IN_FLOAT32)
    assert np.abs(found - before).max() > 1e-2
    np.testing.assert_array_equal(scores_of(held.load(without, "cpu"), without), before)


def test_an_entry_names_the_location_of_the_adapter(tmp_path: Path, base: Path, adapter: Path) -> None:
    located = locate(ModelEntry(name="m", path=base, adapter=AdapterFiles(path=adapter)))
    assert located.resolved_from == f"path {base} with the adapter (path {adapter})"
    assert located.adapter is not None
    for fields in ({}, {"hub": "a/b", "path": adapter}):
        with pytest.raises(ValueError, match="either 'hub' or 'path'"):
            AdapterFiles(**fields)
