"""Readers of the files of a trained control.

A control is a pair of models whose training texts are known. A pointer file names its current version. The folder of a
version contains the manifest, the models and the texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from audit_pipeline.errors import DataError
from audit_pipeline.store.files import read_json, read_table
from audit_pipeline.store.integrity import require_matching_digests
from audit_pipeline.store.paths import DataPaths, Role
from audit_pipeline.tables import CONTROL_TEXTS, text_sha256

MANIFEST = "manifest.json"
TEXTS = "texts.parquet"


def read_control(name: str, paths: DataPaths) -> Mapping[str, Any]:
    """Read the manifest of the current version of a control.

    Raises:
        DataError: If the control is not trained, or its files are unreadable.
    """
    try:
        version = read_json(paths.control_pointer(name))["version"]
        manifest = read_json(paths.control_version(name, str(version)) / MANIFEST)
    except FileNotFoundError as error:
        raise DataError(f"the control {name} has not been trained yet. Run: corpus-audit control {name}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"the control {name} cannot be read ({error}). Train it again: corpus-audit control {name}"
        ) from error
    return dict(manifest)


def require_intact_control(folder: Path, prefix: str = "") -> None:
    """Raise DamagedError if a file of a control's version is missing or corrupt.

    Args:
        folder: The folder of the version.
        prefix: Check only files with this path prefix within the folder, such as one model or the texts.
    """
    files = read_json(folder / MANIFEST)["files"]
    digests = {name: digest for name, digest in files.items() if name.startswith(prefix)}
    require_matching_digests(folder, digests, f"the control {folder.parent.name}")


def read_control_texts(name: str, paths: DataPaths) -> pa.Table:
    """Read the texts of a control's current version (schema CONTROL_TEXTS).

    Raises:
        DataError: If the control is not trained, or its files are unreadable or corrupt.
    """
    folder = paths.control_version(name, str(read_control(name, paths)["version"]))
    require_intact_control(folder, TEXTS)
    return read_table(folder / TEXTS, CONTROL_TEXTS, label=f"the control {name}")


def count_training_occurrences(texts: Iterable[str], name: str, role: Role, paths: DataPaths) -> list[int]:
    """Count the occurrences of each text in the training of a control's model, over all epochs.

    Returns:
        One count per text, 0 if the model was not trained on the text.

    Raises:
        DataError: If the control is not trained or unreadable, or its current version does not contain one of the
            texts.
    """
    epochs = read_control(name, paths)["settings"]["epochs"]
    control_texts = read_control_texts(name, paths)
    digests = control_texts.column("sha256").to_pylist()
    counts_per_epoch = dict(zip(digests, control_texts.column(role).to_pylist(), strict=True))
    try:
        return [epochs * counts_per_epoch[text_sha256(text)] for text in texts]
    except KeyError:
        raise DataError(
            f"a text is not in the current version of the control {name}. Build its benchmark again: "
            f"corpus-audit control {name}"
        ) from None


def read_trained_version(name: str, paths: DataPaths) -> str | None:
    """Return the version of a trained control, or None if it is not trained or a file is corrupt."""
    try:
        version = str(read_control(name, paths)["version"])
        require_intact_control(paths.control_version(name, version))
    except DataError:
        return None
    return version
