"""The choice of a folder's weight files: the index decides, and unread files are reported or refused."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import save_model, tokenized
from transformers import AutoModelForCausalLM

from audit_pipeline.errors import ModelError, ModelFilesWarning
from audit_pipeline.models.weights import load_weights
from audit_pipeline.store.files import read_json, write_json

Change = Callable[[Path], object]
INDEX = "model.safetensors.index.json"
FIRST, SECOND, OTHER = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2, 9))


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "single")


@pytest.fixture(scope="module")
def sharded(single: Path) -> Path:
    """Save weights of another seed in two shards with an index."""
    folder = save_model(single.parent / "sharded", seed=1)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    halves = {FIRST: names[::2], SECOND: names[1::2]}
    for file, some in halves.items():
        save_file({name: tensors[name] for name in some}, folder / file, metadata={"format": "pt"})
    weight_map = {name: file for file, some in halves.items() for name in some}
    write_json(folder / INDEX, {"metadata": {}, "weight_map": weight_map})
    return folder


def add_to_index(folder: Path, **entries: str) -> None:
    index = read_json(folder / INDEX)
    write_json(folder / INDEX, {**index, "weight_map": {**index["weight_map"], **entries}})


def add_tensors(folder: Path, file: str, tensors: Mapping[str, torch.Tensor]) -> None:
    save_file({**load_file(folder / file), **tensors}, folder / file, metadata={"format": "pt"})


def copy_file(source: str, target: str) -> Change:
    return lambda folder: shutil.copy(folder / source, folder / target)


def write_later(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"another format")
    os.utime(folder / name, (4e9, 4e9))


def repeat_header_key(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + size].decode().rstrip()
    name, field = next((name, field) for name, field in json.loads(header).items() if name != "__metadata__")
    header = f'{header[:-1]}, "{name}": {json.dumps(field)}}}'
    (folder / "model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header.encode() + content[8 + size :]
    )


@pytest.mark.parametrize(
    ("of_shards", "change", "words"),
    [
        (True, copy_file(FIRST, "model.safetensors"), f"two sets of weights: model.safetensors, and {FIRST}, {SECOND}"),
        (True, lambda folder: (folder / SECOND).unlink(), f"names {SECOND}, which is missing"),
        (
            True,
            partial(add_to_index, more=FIRST),
            f"{FIRST} lacks 1 of the tensors that the index assigns to it, for example more",
        ),
        (True, partial(add_to_index, **{"model.norm.weight": SECOND}), "do not belong together"),
        (
            True,
            partial(add_to_index, more="../other.safetensors"),
            "'../other.safetensors', which is not a .safetensors file in",
        ),
        (True, partial(add_to_index, more="/etc/other.safetensors"), "which is not a .safetensors file in its folder"),
        (True, lambda folder: (folder / INDEX).write_text("{}"), "lists no files of weights"),
        (True, lambda folder: (folder / INDEX).write_text("{"), "is corrupt"),
        (
            True,
            lambda folder: (folder / INDEX).unlink(),
            f"read only from files with these names, not from {FIRST}",
        ),
        (False, repeat_header_key, "contains the key 'lm_head.weight' twice"),
        (False, lambda folder: (folder / "model.safetensors").write_bytes(b""), "weights"),
        (
            False,
            lambda folder: (folder / "model.safetensors").rename(folder / "model.fp16.safetensors"),
            "not from model.fp16.safetensors",
        ),
        (False, copy_file("model.safetensors", "0000100_adapters.safetensors"), "contains an adapter"),
        (
            False,
            copy_file("model.safetensors", "shard-00000-model-00001-of-00001.safetensors"),
            "a distributed checkpoint",
        ),
        (
            False,
            lambda folder: write_json(
                folder / "config.json", {**read_json(folder / "config.json"), "transformers_weights": "o.safetensors"}
            ),
            "names another file of weights (transformers_weights: 'o.safetensors')",
        ),
    ],
)
def test_ambiguous_or_damaged_weight_files_raise_a_one_line_error(
    single: Path, sharded: Path, tmp_path: Path, of_shards: bool, change: Change, words: str
) -> None:
    folder = Path(shutil.copytree(sharded if of_shards else single, tmp_path / "m"))
    change(folder)
    with pytest.raises(ModelError) as caught:
        load_weights(tokenized(folder, tmp_path / "data"), "cpu")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_repeated_key_of_the_index_raises_a_one_line_error(sharded: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(sharded, tmp_path / "m"))
    index = folder / INDEX
    key = '"model.norm.weight"'
    index.write_text(index.read_text(encoding="utf-8").replace(key, f'{key}: "x", {key}', 1), encoding="utf-8")
    with pytest.raises(ModelError, match=r"contains the key 'model\.norm\.weight' twice") as caught:
        load_weights(tokenized(folder, tmp_path / "data"), "cpu")
    assert "\n" not in str(caught.value)


WRONG = {"model.norm.weight": torch.full((32,), 7.0)}


@pytest.mark.parametrize(
    ("of_shards", "change", "unread", "is_digested"),
    [
        (
            True,
            partial(add_tensors, file=SECOND, tensors=WRONG),
            "the index assigns them to another file or to no file: model.n",
            True,
        ),
        (
            True,
            partial(add_tensors, file=FIRST, tensors={"more": torch.zeros(2)}),
            "or to no file: more",
            True,
        ),
        (
            True,
            copy_file(FIRST, OTHER),
            f"weights are read from {FIRST}, {SECOND}. These weight files in the same folder are not read: {OTHER}",
            False,
        ),
        (False, partial(write_later, name="pytorch_model.bin"), "not read: pytorch_model.bin (newer)", False),
        (False, partial(write_later, name="consolidated.00.pth"), "not read: consolidated.00.pth (newer)", False),
        (False, partial(write_later, name="q4.gguf"), "not read: q4.gguf (newer)", False),
        (False, partial(write_later, name="optimizer.pt"), None, False),
        (False, copy_file("model.safetensors", "consolidated.safetensors"), "not read: consolidated.saf", False),
    ],
)
def test_a_warning_names_unread_files_which_are_not_digested(
    single: Path, sharded: Path, tmp_path: Path, of_shards: bool, change: Change, unread: str | None, is_digested: bool
) -> None:
    original = sharded if of_shards else single
    folder = Path(shutil.copytree(original, tmp_path / "m"))
    change(folder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = tokenized(folder, tmp_path / "data")
        loaded = load_weights(model, "cpu")
    named = [str(warning.message) for warning in caught if warning.category is ModelFilesWarning]
    assert len(named) == (0 if unread is None else 1)
    assert unread is None or unread in named[0]
    expected = AutoModelForCausalLM.from_pretrained(original).state_dict()
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    plain = tokenized(original, tmp_path / "data").identity
    assert (model.identity.weights_digest != plain.weights_digest) == is_digested


def test_the_index_is_digested_if_it_chooses_between_tensors(sharded: Path, tmp_path: Path) -> None:
    prints = []
    for shard in (FIRST, SECOND):
        folder = Path(shutil.copytree(sharded, tmp_path / shard))
        for file in (FIRST, SECOND):
            add_tensors(folder, file, WRONG)
        add_to_index(folder, **{"model.norm.weight": shard})
        prints.append(tokenized(folder, tmp_path / "data").identity.model_fingerprint)
    assert prints[0] != prints[1]
