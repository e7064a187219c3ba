"""The files in a model's folder: weights, their quantisation, and adapters.

The module chooses the files that weights are read from. It reads the statements of config.json about quantisation, and
the statements of an adapter's files about its base model and tokenizer. It does not load weights.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from audit_pipeline.errors import ModelError
from audit_pipeline.store.files import read_json

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_OTHER_FORMATS = {".bin", ".pt", ".pth", ".ckpt", ".msgpack", ".h5", ".ot", ".gguf"}
# Beginnings of the names of files in these formats that hold the state of a trainer instead of weights.
_TRAINER_STATE = ("training_args", "optimizer", "scheduler", "scaler", "rng_state", "trainer_state")
# If a folder holds one file of this name, transformers reads all *.safetensors in it instead of the two files above.
_DISTRIBUTED_SHARD = re.compile(r"shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors")
# The first eight bytes of a file are the length of its header. The format limits this length.
_HEADER_SIZE_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000
_MAX_NAMED = 3


@dataclass(frozen=True)
class WeightFiles:
    """The files that a model's weights are read from.

    Attributes:
        folder: Folder of the files.
        names: Names of the files: one file, or the shards of the index in alphabetical order.
        shard_by_tensor: Shard of each tensor according to the index. None for a single file.
    """

    folder: Path
    names: tuple[str, ...]
    shard_by_tensor: Mapping[str, str] | None

    @property
    def paths(self) -> list[Path]:
        """Return the paths of the files."""
        return [self.folder / name for name in self.names]

    def find_unindexed_tensors(self) -> list[str]:
        """Return the tensors that a shard holds, but the index assigns to another shard or to none. They are not read.

        Raises:
            ModelError: If a header is damaged, or a shard lacks a tensor of the index.
        """
        assigned_by_shard: dict[str, set[str]] = {name: set() for name in self.names}
        for tensor, shard in (self.shard_by_tensor or {}).items():
            assigned_by_shard[shard].add(tensor)
        strays: list[str] = []
        for name, assigned in assigned_by_shard.items():
            present = read_tensor_names(self.folder / name)
            if self.shard_by_tensor is None:
                continue
            absent = sorted(assigned.difference(present))
            if absent:
                raise ModelError(
                    f"{self.folder / INDEX_FILE} and {name} do not belong together: {name} lacks {len(absent)} of the "
                    f"tensors that the index assigns to it, for example {absent[0]}. Fetch both files again."
                )
            strays.extend(sorted(set(present).difference(assigned)))
        return strays

    def list_ignored_weight_files(self, *, compare_times: bool) -> list[str]:
        """Return the names of weight files in the folder that are not read. Newer files of other formats are marked.

        Args:
            compare_times: True to include files of other formats that are newer than the read files. Files from the hub
                have the times of their download, which carry no information.
        """
        unread: list[str] = []
        other_formats: list[Path] = []
        for file in sorted(self.folder.iterdir()):
            if file.name in self.names or not file.is_file():
                continue
            if file.suffix == ".safetensors":
                unread.append(file.name)
            elif file.suffix in _OTHER_FORMATS and not file.name.startswith(_TRAINER_STATE):
                other_formats.append(file)
        if not compare_times:
            return unread
        oldest = min(path.stat().st_mtime_ns for path in self.paths)
        for file in other_formats:
            if file.stat().st_mtime_ns > oldest:
                unread.append(f"{file.name} (newer)")
        return unread

    def describe_choice(self, unread: Sequence[str], model: str) -> str:
        """Return a sentence for the user about the files that are read and the files that are not read."""
        return (
            f"{model}: the weights are read from {shorten_names(self.names)}. These weight files in the same folder "
            f"are not read: {shorten_names(unread)}."
        )


def choose_weight_files(folder: Path, model: str) -> WeightFiles:
    """Return the files of the weights of ``model``: model.safetensors, or the shards of its index.

    Raises:
        ModelError: If the folder holds no weights or several sets of them, or if the index cannot be used.
    """
    single = folder / SINGLE_FILE
    index = folder / INDEX_FILE
    safetensors = sorted(file.name for file in folder.glob("*.safetensors"))
    _require_default_names(folder, safetensors)
    if not index.exists():
        if not single.exists():
            raise ModelError(
                f"{folder} contains neither {SINGLE_FILE} nor {INDEX_FILE}. The weights of {model} are read only from "
                f"files with these names, not from {shorten_names(safetensors)}. Save the model again, or rename a "
                f"complete file to {SINGLE_FILE}."
            )
        return WeightFiles(folder, (SINGLE_FILE,), None)
    shard_by_tensor = _read_index(index)
    shards = sorted(set(shard_by_tensor.values()))
    if single.exists() and SINGLE_FILE not in shards:
        raise ModelError(
            f"{folder} contains two sets of weights: {SINGLE_FILE}, and {shorten_names(shards)} of {INDEX_FILE}. Move "
            "one set out of the folder. Move shards together with their index."
        )
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing:
        raise ModelError(
            f"the weights of {model} cannot be read: {index} names {missing[0]}, which is missing "
            f"({len(missing)} of {len(shards)} files are missing). Fetch {folder} again."
        )
    return WeightFiles(folder, tuple(shards), shard_by_tensor)


def read_tensor_names(file: Path) -> list[str]:
    """Return the names of the tensors in a .safetensors file, from its header.

    Raises:
        ModelError: If the header is damaged, or contains a name twice.
    """
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(_HEADER_SIZE_BYTES), "little")
        # A damaged size may be huge, so the format's maximum limits the number of bytes to read.
        header = opened.read(min(size, _MAX_HEADER_BYTES))
    if not header or len(header) < size:
        raise ModelError(f"{file} is incomplete: it ends within its header. Fetch it again.")
    fields = _read_json_without_duplicates(header, file)
    if not isinstance(fields, dict):
        raise ModelError(f"{file} is corrupt: its header contains no JSON object. Fetch it again.")
    return [name for name in fields if name != "__metadata__"]


def shorten_names(names: Sequence[str]) -> str:
    """Return the first names of a list and the number of remaining names."""
    shown = ", ".join(names[:_MAX_NAMED])
    more = len(names) - _MAX_NAMED
    if more > 0:
        return f"{shown} and {more} more"
    return shown


def _require_default_names(folder: Path, safetensors: Sequence[str]) -> None:
    """Raise ModelError if transformers would read other files than model.safetensors and its index."""
    distributed = list(filter(_DISTRIBUTED_SHARD.fullmatch, safetensors))
    if distributed:
        raise ModelError(
            f"{folder} contains a distributed checkpoint ({shorten_names(distributed)}), which cannot be read. Save "
            f"the model again as {SINGLE_FILE}, or move these files out of the folder."
        )
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        # The code that reads the configuration reports the damage.
        return
    weights_name = None
    if isinstance(config, dict):
        weights_name = config.get("transformers_weights")
    if weights_name not in (None, SINGLE_FILE, INDEX_FILE):
        raise ModelError(
            f"{folder / 'config.json'} names another file of weights (transformers_weights: {weights_name!r}), which "
            f"is not supported. Rename that file to {SINGLE_FILE} and remove the key."
        )


def _read_index(index: Path) -> Mapping[str, str]:
    try:
        content = _read_json_without_duplicates(index.read_bytes(), index)
    except OSError as error:
        raise ModelError(f"the index of the weights cannot be read: {error}") from error
    weight_map: Any = None
    if isinstance(content, dict):
        weight_map = content.get("weight_map")
    if not weight_map or not _is_map_to_texts(weight_map):
        raise ModelError(f"{index} lists no files of weights (weight_map). Fetch it again.")
    for shard in sorted(set(weight_map.values())):
        parts = PurePosixPath(shard).parts
        is_inside = bool(parts) and not shard.startswith("/") and ".." not in parts and "\\" not in shard
        if not is_inside or not shard.endswith(".safetensors"):
            raise ModelError(
                f"{index} names {shard!r}, which is not a .safetensors file in its folder. Correct it, or fetch it "
                "again."
            )
    return dict(weight_map)


def _is_map_to_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _read_json_without_duplicates(content: bytes, file: Path) -> Any:
    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for key, value in pairs:
            if key in fields:
                raise ModelError(f"{file} contains the key {key!r} twice. Fetch it again, or save the model again.")
            fields[key] = value
        return fields

    try:
        return json.loads(content, object_pairs_hook=collect)
    except ValueError as error:
        raise ModelError(f"{file} is corrupt: {error}. Fetch it again.") from error


_QUANTISED_EXTRA = "quantised"

# Names of formats in config.json, with the modules that transformers needs to read them.
_QUANTISATION_MODULES: Mapping[str, tuple[str, ...]] = {
    "bitsandbytes": ("bitsandbytes",),
    "compressed-tensors": ("compressed_tensors",),
    "gptq": ("optimum", "gptqmodel"),
    "awq": ("gptqmodel",),
    "fp8": (),
}
# Modules that the extra 'quantised' installs. The other modules must be compiled against the installed torch.
_MODULES_IN_EXTRA = {"bitsandbytes", "compressed_tensors"}


@dataclass(frozen=True)
class Quantisation:
    """The number format of published weights.

    Attributes:
        method: Name of the format in config.json.
        bits: Bits per weight, or None if config.json does not contain them.
    """

    method: str
    bits: int | None

    def stays_packed(self, device: str) -> bool:
        """Return True if the weights stay quantised in the memory of ``device``. Other formats are unpacked there."""
        return self.method != "compressed-tensors" and (self.method != "fp8" or device.startswith("cuda"))

    def __str__(self) -> str:
        if self.bits is None:
            return self.method
        return f"{self.method}, {self.bits} bits"


def read_quantisation(config_folder: Path) -> Quantisation | None:
    """Return the quantisation that the config.json in a folder describes, or None for plain weights."""
    fields = read_json(config_folder / "config.json").get("quantization_config")
    if not isinstance(fields, Mapping):
        return None
    # Early files of bitsandbytes have no quant_method.
    if fields.get("load_in_4bit"):
        return Quantisation("bitsandbytes", 4)
    if fields.get("load_in_8bit"):
        return Quantisation("bitsandbytes", 8)
    bits = fields.get("bits")
    return Quantisation(str(fields.get("quant_method")), bits if isinstance(bits, int) else None)


def require_quantisation_package(model: str, quantisation: Quantisation | None) -> None:
    """Check that the quantised weights of a model can be read.

    Raises:
        ModelError: If the quantisation method is not supported, or a required package is not installed.
    """
    if quantisation is None:
        return
    if quantisation.method not in _QUANTISATION_MODULES:
        raise ModelError(
            f"the weights of {model} are quantised as {quantisation.method!r}, which is not supported. "
            f"Use one of {', '.join(_QUANTISATION_MODULES)}, or weights that are not quantised."
        )
    absent = [module for module in _QUANTISATION_MODULES[quantisation.method] if find_spec(module) is None]
    if not absent:
        return
    packages = " ".join(module.replace("_", "-") for module in absent)
    arguments = f"--no-build-isolation {packages}"
    if _MODULES_IN_EXTRA.issuperset(absent):
        arguments = f"'corpus-audit[{_QUANTISED_EXTRA}]'"
    raise ModelError(
        f"the weights of {model} are quantised ({quantisation}). Reading them requires packages that are not "
        f"installed: {packages}. Run: pip install {arguments}"
    )


ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
MLX_WEIGHTS = "*adapters.safetensors"

_TOKENIZER_FILE = "tokenizer.json"
# Vocabulary files other than tokenizer.json. A folder with such a file has a tokenizer, even without tokenizer.json.
_VOCABULARIES = ("vocab.json", "vocab.txt", "tekken.json", "*.model")
# Fields of tokenizer.json that training code sets. They do not change the tokens of a single text.
_BATCH_FIELDS = ("version", "truncation", "padding")
_MLX_KEYS = ("fine_tune_type", "lora_parameters", "lora_layers")


def read_adapter_config(folder: Path) -> dict[str, Any]:
    """Return the fields of adapter_config.json.

    Raises:
        ModelError: If the file cannot be read, or belongs to an adapter of MLX.
    """
    path = folder / ADAPTER_CONFIG
    try:
        config = read_json(path)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path} is not the configuration of an adapter: it contains no JSON object")
    if config.get("peft_type") is None and any(key in config for key in _MLX_KEYS):
        raise build_mlx_error(folder)
    return config


def build_mlx_error(folder: Path) -> ModelError:
    """Return the error for an adapter that mlx-lm has trained."""
    return ModelError(
        f"{folder} contains an adapter of MLX (mlx-lm), which is not supported. Merge it with its base model "
        "(mlx_lm.fuse) and use the merged model, or convert the adapter to peft."
    )


def read_base_revision(folder: Path) -> str | None:
    """Return the revision of the base that an adapter was trained on, or None if its configuration names none.

    Raises:
        ModelError: If adapter_config.json cannot be read, or its revision is not text.
    """
    revision = read_adapter_config(folder).get("revision")
    if revision is not None and not isinstance(revision, str):
        raise ModelError(
            f"{folder / ADAPTER_CONFIG}: revision is {revision!r}, but must be text: a branch, tag or commit of the "
            "base model"
        )
    return revision or None


def find_own_tokenizer(adapter: Path, base: Path | None) -> Path | None:
    """Return the adapter's folder if its tokenizer gives other tokens than the base's tokenizer, else None.

    Chat templates, padding and truncation do not change the tokens of a text.

    Args:
        adapter: Folder of the adapter.
        base: Folder of its base. None if the base's tokenizer is in a .gguf, which cannot be compared.

    Raises:
        ModelError: If the folder declares added tokens that the base lacks, but holds no vocabulary.
    """
    present: list[str] = []
    for pattern in (_TOKENIZER_FILE, *_VOCABULARIES):
        files = sorted(adapter.glob(pattern))
        present += [file.name for file in files if file.is_file()]
    if not present:
        _require_no_further_tokens(adapter, base)
        return None
    if base is None:
        return adapter
    # A tokenizer.json holds the whole vocabulary, so no other vocabulary file is compared.
    compared = [_TOKENIZER_FILE]
    if _TOKENIZER_FILE not in present:
        compared = [*present, "merges.txt", "added_tokens.json"]
    for name in compared:
        if _read_tokenizer_content(adapter / name) != _read_tokenizer_content(base / name):
            return adapter
    if _read_declarations(adapter) not in ({}, _read_declarations(base)):
        return adapter
    return None


def _read_tokenizer_content(file: Path) -> object:
    """Return the part of a tokenizer file that determines the tokens of a text, or None if the file is missing.

    This is the content of a JSON file without batch settings, or the bytes of another file.
    """
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return None
    if file.suffix != ".json":
        return content
    try:
        fields = json.loads(content)
    except ValueError:
        # The code that reads the tokenizer reports the damage.
        return content
    if file.name == _TOKENIZER_FILE and isinstance(fields, dict):
        return {key: value for key, value in fields.items() if key not in _BATCH_FIELDS}
    return fields


def _read_declarations(folder: Path) -> dict[str, object]:
    """Return the declarations in tokenizer_config.json: start and end tokens, if texts get them, and added tokens."""
    fields = _read_tokenizer_content(folder / "tokenizer_config.json")
    if not isinstance(fields, dict):
        return {}
    declared: dict[str, object] = {}
    for role in ("bos_token", "eos_token", "add_bos_token", "add_eos_token"):
        token = fields.get(role)
        if isinstance(token, dict):
            token = token.get("content", token)
        declared[role] = token
    added = fields.get("added_tokens_decoder")
    if isinstance(added, dict):
        declared["added_tokens"] = {number: token.get("content") for number, token in added.items()}
    return declared


def _require_no_further_tokens(adapter: Path, base: Path | None) -> None:
    added = _read_tokenizer_content(adapter / "added_tokens.json")
    if added and (base is None or added != _read_tokenizer_content(base / "added_tokens.json")):
        raise ModelError(
            f"{adapter / 'added_tokens.json'} declares tokens that the base model does not have, and its folder "
            f"contains no {_TOKENIZER_FILE}. Save the adapter's tokenizer into the folder again."
        )
