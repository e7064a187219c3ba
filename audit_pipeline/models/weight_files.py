"""The files that a model's weights are read from, and the files next to them that are not read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from audit_pipeline.errors import ModelError

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

    def find_tensors_beside_index(self) -> list[str]:
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
                    f"{self.folder / INDEX_FILE} and {name} are of different saves: the index has {absent[0]} in "
                    f"{name}, which lacks it ({len(absent)} such tensors). Fetch both again."
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
        """Return a sentence for the user about the files that are read and those that are not."""
        return f"{model}: weights are read from {shorten_names(self.names)}; not read: {shorten_names(unread)}"


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
                f"{folder} holds neither {SINGLE_FILE} nor {INDEX_FILE}, but {shorten_names(safetensors)}: "
                f"weights of {model} are read only from files with these names. Save it again, or rename a complete "
                f"file to {SINGLE_FILE}."
            )
        return WeightFiles(folder, (SINGLE_FILE,), None)
    shard_by_tensor = _read_index(index)
    shards = sorted(set(shard_by_tensor.values()))
    if single.exists() and SINGLE_FILE not in shards:
        raise ModelError(
            f"{folder} holds two sets of weights: {SINGLE_FILE}, and {shorten_names(shards)} of {INDEX_FILE}. Move one "
            "of them out of the folder (the shards together with their index)."
        )
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing:
        raise ModelError(
            f"the weights of {model} cannot be read: {index} names {missing[0]}, which is missing "
            f"({len(missing)} of {len(shards)} files are). Fetch {folder} again."
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
        raise ModelError(f"{file} is cut short: its header is incomplete. Fetch it again.")
    fields = _read_json_without_duplicates(header, file)
    if not isinstance(fields, dict):
        raise ModelError(f"{file} is corrupt: its header holds no fields. Fetch it again.")
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
            f"{folder} holds a distributed checkpoint ({shorten_names(distributed)}), which is not read: save the "
            f"model again as {SINGLE_FILE}, or move these files out of the folder."
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
            f"{folder / 'config.json'} names the file of its weights (transformers_weights: {weights_name!r}). This is "
            f"not supported: rename that file to {SINGLE_FILE} and remove the key."
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
        raise ModelError(f"{index} names no file of weights (weight_map). Fetch it again.")
    for shard in sorted(set(weight_map.values())):
        parts = PurePosixPath(shard).parts
        is_inside = bool(parts) and not shard.startswith("/") and ".." not in parts and "\\" not in shard
        if not is_inside or not shard.endswith(".safetensors"):
            raise ModelError(
                f"{index} names {shard!r}, which is no .safetensors file in its folder: correct it, or fetch it again."
            )
    return dict(weight_map)


def _is_map_to_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _read_json_without_duplicates(content: bytes, file: Path) -> Any:
    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for key, value in pairs:
            if key in fields:
                raise ModelError(f"{file} holds the key {key!r} twice. Fetch it again, or save the model again.")
            fields[key] = value
        return fields

    try:
        return json.loads(content, object_pairs_hook=collect)
    except ValueError as error:
        raise ModelError(f"{file} is corrupt: {error}. Fetch it again.") from error
