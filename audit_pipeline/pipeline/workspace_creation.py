"""The creation of workspaces, and the workspace that ``corpus-audit check`` creates to audit a user's files.

A workspace is a folder with its own configuration and data. store/paths.py finds a workspace.

In the workspace of a check, the weekly audit includes the benchmarks of the workspace. It does not include the
instrument check of the default configuration, which is also in the workspace but runs only on request. A later check of
the same files may name other held-out documents or another model. It then rewrites sources.yaml, benchmarks.yaml and
models.yaml if their content changes.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from filelock import FileLock

from audit_pipeline.benchmarks import config as benchmarks
from audit_pipeline.config.entries import Entries
from audit_pipeline.errors import ConfigError
from audit_pipeline.models import config as models
from audit_pipeline.models.config import ModelEntry, load_models
from audit_pipeline.pipeline.user_files import AUDITED, Inventory
from audit_pipeline.sources import config as sources
from audit_pipeline.sources.local_files import NAME
from audit_pipeline.store.files import read_json, write_json
from audit_pipeline.store.paths import DEFAULTS, INSTRUMENT_CHECK, WORKSPACE_FILE, config_dir, is_workspace

USUAL_FOLDER = "corpus-audit-check"
_RECORD = "check.json"
"""The file in the folder of the configuration that records the files and options of the check."""
_MAX_NAMED = 3
_SOURCES_HEAD = """\
# Written by corpus-audit check: your files, by side. The files are read from these folders and are not copied. The next
# audit also reads new files in a folder. docs/input-files.md lists the formats that can be read.
"""


@dataclass(frozen=True)
class CheckWorkspace:
    """A workspace in which a user's files are audited.

    Attributes:
        folder: The folder of the workspace.
        is_new: Whether this check created the workspace.
        written: The names of the configuration files that this check wrote.
    """

    folder: Path
    is_new: bool
    written: tuple[str, ...]


def find_check_workspace() -> Path:
    """Return the default folder of a check.

    Returns:
        The workspace in use if a check created it, or ./corpus-audit-check.
    """
    in_use = config_dir().parent
    if (in_use / "config" / _RECORD).is_file():
        return in_use
    return Path.cwd() / USUAL_FOLDER


def resolve_workspace_model(name: str, folder: Path) -> tuple[ModelEntry, dict[str, dict[str, Any]]]:
    """Return the model that a user named, and the entries that a workspace needs to audit it.

    Args:
        name: The name, path or hub id of the model. The workspace in ``folder`` is searched first, then the
            configuration in use.
        folder: The folder of the workspace of the check.

    Returns:
        The entry of the model, and new entries of config/models.yaml by name.

    Raises:
        ConfigError: If the entry is broken, or if the model is part of a control.
        ModelError: If there is no such model.
    """
    if is_workspace(folder):
        workspace_models = load_models(folder / "config")
        if name in workspace_models:
            return workspace_models[name], {}
    known = load_models()
    entry = models.resolve_model(name, known)
    if entry.control is not None:
        raise ConfigError(
            f"{name} is a model of a control, which was trained here on other texts, so it has not read your files. "
            "Name another model with --model."
        )
    needed = {entry.name: _build_entry_fields(entry, known)}
    pending = _list_references(entry)
    while pending:
        name = pending.pop()
        if name in known and name not in needed:
            needed[name] = _build_entry_fields(known[name], known)
            pending += _list_references(known[name])
    return entry, needed


def _list_references(entry: ModelEntry) -> list[str]:
    return [name for name in (entry.base, entry.detector_reference) if name is not None]


def _build_entry_fields(entry: ModelEntry, entries: Entries[ModelEntry]) -> dict[str, Any]:
    """Return the fields of an entry as written in its file, with absolute paths.

    A relative path in the file starts at the folder of the file, so it would be wrong in the new workspace.
    """
    written_fields = entries.raw_values.get(entry.name)
    parsed_fields = entry.model_dump(mode="json", exclude_unset=True, exclude_none=True, exclude={"name"})
    fields = dict(written_fields) if isinstance(written_fields, Mapping) else parsed_fields
    if entry.checkpoint is not None and entry.default_reference in entries:
        # The new entry is not part of the series, so it has to name the first checkpoint.
        fields["base"] = entry.default_reference
    if entry.adapter is not None:
        fields["adapter"] = parsed_fields["adapter"]
    if entry.path is not None:
        fields["path"] = str(entry.path)
    return fields


def ensure_workspace(
    folder: Path, inventory: Inventory, model_entries: Mapping[str, Mapping[str, Any]]
) -> CheckWorkspace:
    """Create the workspace of a user's files, or update the existing workspace of these files.

    Args:
        folder: The folder of the workspace.
        inventory: The user's files.
        model_entries: Entries that models.yaml of the workspace must contain, by the model's name.

    Raises:
        ConfigError: If the folder has other content, or is the workspace of other files.
    """
    config = folder / "config"
    request = inventory.user_files.workspace_record
    if _can_create_workspace(folder):
        control_models = _select_control_entries(load_models(DEFAULTS / "config"))
        contents = _build_config_files(inventory, {**model_entries, **control_models})
        create_workspace(folder, contents)
        write_json(config / _RECORD, request)
        return CheckWorkspace(folder, is_new=True, written=tuple(contents))
    recorded = _read_record(folder)
    files = recorded["collections"][AUDITED]
    if files != request["collections"][AUDITED]:
        raise ConfigError(
            f"{folder} is the workspace of other files ({', '.join(files[:_MAX_NAMED])}). Name another folder with "
            f"--workspace, or remove {folder}."
        )
    with FileLock(config / "check.lock"):
        known = load_models(config)
        # Existing entries keep their order and their content.
        existing_entries = {name: _build_entry_fields(known[name], known) for name in known}
        contents = _build_config_files(inventory, {**existing_entries, **model_entries, **existing_entries})
        if recorded == request:
            del contents[sources.FILE.name], contents[benchmarks.FILE_NAME]
        if set(model_entries) <= set(known):
            del contents[models.FILE_NAME]
        for name, text in contents.items():
            (config / name).write_text(text, encoding="utf-8")
        write_json(config / _RECORD, request)
    return CheckWorkspace(folder, is_new=False, written=tuple(contents))


@contextmanager
def make_dry_run_workspace(
    folder: Path, inventory: Inventory, model_entries: Mapping[str, Mapping[str, Any]]
) -> Iterator[CheckWorkspace]:
    """Yield a workspace for a dry run.

    If ``folder`` is free, the workspace is temporary and nothing is written to ``folder``. Otherwise it is the existing
    workspace.

    Raises:
        ConfigError: As :func:`ensure_workspace`.
    """
    if not _can_create_workspace(folder):
        yield ensure_workspace(folder, inventory, model_entries)
        return
    with TemporaryDirectory(prefix="corpus-audit-") as temporary:
        yield ensure_workspace(Path(temporary), inventory, model_entries)


def _can_create_workspace(folder: Path) -> bool:
    """Return whether a folder has neither config/ nor workspace.yaml, so that a workspace can be created there."""
    return not ((folder / "config").exists() or (folder / WORKSPACE_FILE).exists())


def _build_config_files(inventory: Inventory, model_entries: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the contents of the configuration files by file name."""
    control_benchmarks = _select_control_entries(benchmarks.load_benchmarks(DEFAULTS / "config").families)
    return {
        sources.FILE.name: _SOURCES_HEAD + _to_yaml({NAME: inventory.user_files.source}),
        benchmarks.FILE_NAME: _format_entries(
            benchmarks.FILE_NAME, "benchmarks", {**inventory.benchmarks, **control_benchmarks}
        ),
        models.FILE_NAME: _format_entries(models.FILE_NAME, "models", model_entries),
    }


def _select_control_entries(entries: Entries[Any]) -> dict[str, Mapping[str, Any]]:
    """Return the entries of the default configuration that the instrument check needs, as written in their file."""
    selected = {}
    for name, fields in entries.raw_values.items():
        if isinstance(fields, Mapping) and INSTRUMENT_CHECK in _list_control_names(fields):
            selected[name] = fields
    return selected


def _list_control_names(entry: Mapping[str, Any]) -> Collection[object]:
    # A benchmark names its control. A model has a mapping with the control's name and the model's role.
    control = entry.get("control")
    return control.values() if isinstance(control, Mapping) else (control,)


def _format_entries(file_name: str, key: str, entries: Mapping[str, Any]) -> str:
    return read_default_header(file_name, key) + _to_yaml({key: dict(entries)})


def _to_yaml(value: Mapping[str, Any]) -> str:
    # Aliases are disabled, so that entries with the same settings can be edited separately.
    dumper = type("Dumper", (yaml.SafeDumper,), {"ignore_aliases": lambda self, data: True})
    return yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, width=110)


def _read_record(folder: Path) -> dict[str, Any]:
    """Return the recorded files and options of the check that created the workspace.

    Raises:
        ConfigError: If the record is missing or unreadable.
    """
    try:
        record: dict[str, Any] = read_json(folder / "config" / _RECORD)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{folder} was not created by corpus-audit check, or its creation was interrupted. Name another folder "
            f"with --workspace, or remove {folder}."
        ) from error
    return record


_CONFIG = "config"
_DATA = "data"
_README = "README.md"
_OWNER_ALONE = 0o700
# Data folders are large and may contain copyrighted texts, so git must ignore them.
_GITIGNORE = "*\n!.gitignore\n!README.md\n"


def read_default_header(name: str, key: str) -> str:
    """Return the comments at the top of a default configuration file, which describe the keys of its entries."""
    text = (DEFAULTS / _CONFIG / name).read_text(encoding="utf-8")
    return text[: text.index(f"\n{key}:") + 1]


def create_workspace(folder: Path, config: Mapping[str, str] | None = None) -> list[Path]:
    """Create a workspace with the default configuration.

    Args:
        folder: The folder of the workspace.
        config: Texts of configuration files that replace the default files, by file name.

    Returns:
        The created files and folders.

    Raises:
        ConfigError: If one of these files or folders already exists. Nothing is created in this case.
    """
    created = [folder / _CONFIG, folder / WORKSPACE_FILE, folder / _DATA]
    for path in created:
        if path.exists():
            raise ConfigError(f"{path} already exists, and is not overwritten. Choose another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(
        DEFAULTS / _CONFIG,
        folder / _CONFIG,
        ignore=shutil.ignore_patterns("*.proposed.yaml"),
        copy_function=shutil.copyfile,
    )
    for name, text in (config or {}).items():
        (folder / _CONFIG / name).write_text(text, encoding="utf-8")
    (folder / _DATA).mkdir(mode=_OWNER_ALONE)
    shutil.copyfile(DEFAULTS / _DATA / _README, folder / _DATA / _README)
    (folder / _DATA / ".gitignore").write_text(_GITIGNORE, encoding="utf-8")
    # The file marks the folder as a workspace, so it is written last.
    shutil.copyfile(DEFAULTS / WORKSPACE_FILE, folder / WORKSPACE_FILE)
    return created
