"""Creation of a workspace: a folder with its own configuration and data. store/paths.py finds a workspace."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from audit_pipeline.errors import ConfigError
from audit_pipeline.store.paths import DEFAULTS, WORKSPACE_FILE

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
            raise ConfigError(f"{path} exists already and is not overwritten. Choose another folder.")
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
