"""The files of a trained control: its manifest and its texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from audit_pipeline.errors import DataError
from audit_pipeline.store.control_names import Role
from audit_pipeline.store.files import read_json, read_table
from audit_pipeline.store.integrity import require_matching_digests
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import CONTROL_TEXTS, text_sha256

MANIFEST, TEXTS = "manifest.json", "texts.parquet"


def read_control(name: str, paths: DataPaths) -> Mapping[str, Any]:
    """The manifest of the current version of a control; DataError where it has not been trained or cannot be read."""
    try:
        version = read_json(paths.control_pointer(name))["version"]
        manifest = read_json(paths.control_version(name, str(version)) / MANIFEST)
    except FileNotFoundError as error:
        raise DataError(f"the control {name} has not been trained yet: corpus-audit control {name}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"the control {name} cannot be read ({error}): train it again: corpus-audit control {name}"
        ) from error
    return dict(manifest)


def require_intact_control(folder: Path, prefix: str = "") -> None:
    """Raise DamagedError where a file of a control's version is missing or not as it was written.

    ``prefix`` is where the path of such a file begins within the folder: one of the models, or the texts.
    """
    files = read_json(folder / MANIFEST)["files"]
    own = {name: digest for name, digest in files.items() if name.startswith(prefix)}
    require_matching_digests(folder, own, f"the control {folder.parent.name}")


def read_control_texts(name: str, paths: DataPaths) -> pa.Table:
    """The texts of a control's current version (schema CONTROL_TEXTS); raises DataError as :func:`read_control`."""
    folder = paths.control_version(name, str(read_control(name, paths)["version"]))
    require_intact_control(folder, TEXTS)
    return read_table(folder / TEXTS, CONTROL_TEXTS, label=f"the control {name}")


def count_training_occurrences(texts: Iterable[str], name: str, role: Role, paths: DataPaths) -> list[int]:
    """How many times the training of a control's model held each of ``texts``, over all its epochs, in their order.

    0 for a text that this model was not trained on. Raises DataError as :func:`read_control`, and for a text that is
    not one of the control's as it is trained now.
    """
    epochs = read_control(name, paths)["settings"]["epochs"]
    kept = read_control_texts(name, paths)
    in_epoch = dict(zip(kept.column("sha256").to_pylist(), kept.column(role).to_pylist(), strict=True))
    try:
        return [epochs * in_epoch[text_sha256(text)] for text in texts]
    except KeyError:
        raise DataError(
            f"a text is none of the control {name} as it is trained now: build its benchmark again: "
            f"corpus-audit control {name}"
        ) from None


def read_trained_version(name: str, paths: DataPaths) -> str | None:
    """Return the version of the control as it is trained; None where it is not, or a file of it is damaged."""
    try:
        version = str(read_control(name, paths)["version"])
        require_intact_control(paths.control_version(name, version))
    except DataError:
        return None
    return version
