"""Laying out a workspace: a configuration and a data folder of your own.

What belongs here: which files there are and where they are copied from. What does not: finding a workspace
(store/paths.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from audit_pipeline.errors import ConfigError
from audit_pipeline.store.paths import DEFAULTS, WORKSPACE_FILE

_CONFIG, _DATA, _README = "config", "data", "README.md"
_OWNER_ALONE = 0o700
# What is audited may be in copyright, and is large: nothing of it belongs into anybody's repository.
_NOT_TO_BE_COMMITTED = "*\n!.gitignore\n!README.md\n"


def read_default_header(name: str, key: str) -> str:
    """Read what a file of the default configuration says of its keys: the comments before its one ``key``."""
    text = (DEFAULTS / _CONFIG / name).read_text(encoding="utf-8")
    return text[: text.index(f"\n{key}:") + 1]


def create_workspace(folder: Path, config: Mapping[str, str] | None = None) -> list[Path]:
    """Make ``folder`` a workspace with the default configuration; returns what was made, in the order of interest.

    ``config`` are files of the configuration that take the place of default files: name -> text.

    Raises ConfigError, with nothing made, where any of it is there already.
    """
    made = [folder / _CONFIG, folder / WORKSPACE_FILE, folder / _DATA]
    for path in made:
        if path.exists():
            raise ConfigError(f"{path} is there already, and nothing is overwritten: name another folder")
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
    (folder / _DATA / ".gitignore").write_text(_NOT_TO_BE_COMMITTED, encoding="utf-8")
    # Last: it makes the folder a workspace.
    shutil.copyfile(DEFAULTS / WORKSPACE_FILE, folder / WORKSPACE_FILE)
    return made
