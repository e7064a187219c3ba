"""The workspace of a user's own files: a configuration that audits them, and nothing else.

What belongs here: which entries its files hold, writing them, and what becomes of a workspace that is there already.
What does not: what the files are (own_files.py), laying out any workspace (config/workspace.py), running an audit.

It is a workspace as any other: its benchmark is not on request, so that the weekly audit takes it. The default
instrument check stands beside it, which runs on request only. A second check may name other held-out documents or
another model; what a user has edited is never overwritten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from audit_pipeline.benchmarks import config as benchmarks
from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.catalogue.paths import DEFAULTS, WORKSPACE_FILE, is_workspace
from audit_pipeline.catalogue.tables import read_json, write_json
from audit_pipeline.config.entries import Entries
from audit_pipeline.config.workspace import default_head, lay_out
from audit_pipeline.controls.roles import INSTRUMENT_CHECK
from audit_pipeline.errors import ConfigError
from audit_pipeline.models import config as models
from audit_pipeline.models.config import ModelEntry, load_models, resolve_model
from audit_pipeline.operate.own_files import AUDITED, Looked
from audit_pipeline.sources import config as sources
from audit_pipeline.sources.local_files import NAME

_RECORD = "check.json"
"""Beside the configuration: which files it is about, and what was written, so that edits are noticed."""
_SOURCES_HEAD = """\
# Written by corpus-audit check: which of your own files are read, and on which side each of them is. The files stay
# where they are; new ones in a folder are read with the next audit. docs/input-files.md says what can be read.
"""


@dataclass(frozen=True)
class OwnWorkspace:
    """Where it is, and which of its files were written now; ``is_new``: all of them."""

    folder: Path
    is_new: bool
    written: tuple[str, ...]


def model_for(given: str, folder: Path) -> tuple[ModelEntry, dict[str, dict[str, Any]]]:
    """The model that a user named, and the entries that a workspace in ``folder`` needs to audit it.

    It is looked for in that workspace first, where there is one, then in the configuration that is used here. Raises
    ConfigError and ModelError as :func:`resolve_model` does, and ConfigError for a model that was trained here.
    """
    config = folder / "config"
    if is_workspace(folder) and given in (known := load_models(config)):
        return known[given], {}
    known = load_models()
    entry = resolve_model(given, known)
    if entry.control is not None:
        raise ConfigError(f"{given} was trained here on texts of its own, and knows nothing else; name another model")
    needed = {entry.name: _plain(entry, known)}
    if entry.reference_model is not None and entry.reference_model in known:
        needed[entry.reference_model] = _plain(known[entry.reference_model], known)
    return entry, needed


def _plain(entry: ModelEntry, known: Entries[ModelEntry]) -> dict[str, Any]:
    """The entry as it is written, its path whole: that counts from the folder of its file."""
    given = known.given.get(entry.name)
    fields = dict(given) if isinstance(given, Mapping) else {"hub": entry.hub} if entry.hub is not None else {}
    return {**fields, "path": str(entry.path)} if entry.path is not None else fields


def bring_up(folder: Path, looked: Looked, needed: Mapping[str, Mapping[str, Any]]) -> OwnWorkspace:
    """Make ``folder`` the workspace of these files, or the one that is there that of this request.

    ``needed`` are the models' entries that it must have. Raises ConfigError where the folder holds something else, a
    workspace of other files, or a file that would have to change and was edited.
    """
    config = folder / "config"
    files = list(map(str, looked.own.sides[AUDITED]))
    if _is_free(folder):
        of_control = _entries_of_control(load_models(DEFAULTS / "config"))
        entries = {**needed, **{name: entry for name, entry in of_control.items() if name not in needed}}
        wanted = _wanted(looked, entries, has_control=True)
        lay_out(folder, wanted)
        _record(config, files, {name: _digest(text) for name, text in wanted.items()})
        return OwnWorkspace(folder, is_new=True, written=tuple(wanted))
    known = _known(folder)
    if known["files"] != files:
        raise ConfigError(
            f"{folder} is the workspace of other files ({', '.join(known['files'][:3])}): name another folder with "
            "--workspace, or remove that one"
        )
    there = load_models(config)
    kept = {name: _plain(there[name], there) for name in there}
    # A workspace of an earlier version has no instrument check, and gets none: its files stay what they are.
    has_control = any(spec.control == INSTRUMENT_CHECK for spec in load_benchmarks(config).values())
    entries = {**kept, **{name: entry for name, entry in needed.items() if name not in kept}}
    wanted = _wanted(looked, entries, has_control=has_control)
    digests: dict[str, str] = known["written"]
    if set(needed) <= set(kept):
        del wanted[models.FILE_NAME]
    changed = {name: text for name, text in wanted.items() if _digest(text) != digests.get(name)}
    for name in changed:
        if _digest((config / name).read_text(encoding="utf-8")) != digests.get(name):
            raise ConfigError(
                f"{config / name} was edited since it was written, and this request needs another one: edit it by hand "
                "and run corpus-audit audit there, or name another folder with --workspace"
            )
    for name, text in changed.items():
        (config / name).write_text(text, encoding="utf-8")
    _record(config, files, {**digests, **{name: _digest(text) for name, text in changed.items()}})
    return OwnWorkspace(folder, is_new=False, written=tuple(changed))


@contextmanager
def make_dry_run_workspace(
    folder: Path, looked: Looked, needed: Mapping[str, Mapping[str, Any]]
) -> Iterator[OwnWorkspace]:
    """The workspace of these files for a dry run: the one in ``folder``, or one that is gone when the block ends.

    Raises ConfigError as :func:`bring_up` does. ``folder`` stays free where it is free.
    """
    if not _is_free(folder):
        yield bring_up(folder, looked, needed)
        return
    with TemporaryDirectory(prefix="corpus-audit-") as made:
        yield bring_up(Path(made), looked, needed)


def _is_free(folder: Path) -> bool:
    """Whether ``folder`` can be made a workspace."""
    return not ((folder / "config").exists() or (folder / WORKSPACE_FILE).exists())


def _wanted(looked: Looked, needed: Mapping[str, Mapping[str, Any]], *, has_control: bool) -> dict[str, str]:
    control = _entries_of_control(load_benchmarks(DEFAULTS / "config").families) if has_control else {}
    return {
        sources.FILE.name: _SOURCES_HEAD + _yaml({NAME: looked.own.source}),
        benchmarks.FILE_NAME: _with_head(benchmarks.FILE_NAME, "benchmarks", {**looked.benchmarks, **control}),
        models.FILE_NAME: _with_head(models.FILE_NAME, "models", needed),
    }


def _entries_of_control(entries: Entries[Any]) -> dict[str, Mapping[str, Any]]:
    """The entries of the default configuration that the instrument check needs, as they are written."""
    return {
        name: given
        for name, given in entries.given.items()
        if isinstance(given, Mapping) and _control_of(given) == INSTRUMENT_CHECK
    }


def _control_of(given: Mapping[str, Any]) -> object:
    """The control that an entry names: a benchmark by its name, a model with its role."""
    control = given.get("control")
    return control.get("name") if isinstance(control, Mapping) else control


def _with_head(name: str, key: str, entries: Mapping[str, Any]) -> str:
    return default_head(name, key) + _yaml({key: dict(entries)})


def _yaml(value: Mapping[str, Any]) -> str:
    # Without aliases: the same settings stand in two entries, each for itself.
    dumper = type("Dumper", (yaml.SafeDumper,), {"ignore_aliases": lambda self, data: True})
    return yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, width=110)


def _known(folder: Path) -> dict[str, Any]:
    """What was recorded of the workspace in ``folder``."""
    try:
        record: dict[str, Any] = read_json(folder / "config" / _RECORD)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{folder} holds something that corpus-audit check did not make, or did not finish: name another folder "
            "with --workspace, or remove that one"
        ) from error
    return record


def _record(config: Path, files: list[str], written: Mapping[str, str]) -> None:
    write_json(config / _RECORD, {"files": files, "written": dict(written)})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
