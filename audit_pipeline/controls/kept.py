"""What is kept of a trained control: its manifest and its texts.

What belongs here: reading them. What does not: training (build.py), and anything that imports a model library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from audit_pipeline.contracts import CONTROL_TEXTS
from audit_pipeline.errors import DataError
from audit_pipeline.paths import DataPaths
from audit_pipeline.tables import read_json, read_table


def read_control(name: str, paths: DataPaths) -> Mapping[str, Any]:
    """The manifest of the current version of a control; DataError where it has not been trained or cannot be read."""
    try:
        version = read_json(paths.control_pointer(name))["version"]
        manifest = read_json(paths.control_version(name, str(version)) / "manifest.json")
    except FileNotFoundError as error:
        raise DataError(f"the control {name} has not been trained yet: corpus-audit control {name}") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise DataError(
            f"the control {name} cannot be read ({error}): train it again: corpus-audit control {name}"
        ) from error
    return dict(manifest)


def read_texts(name: str, paths: DataPaths) -> pa.Table:
    """The texts of a control's current version (schema CONTROL_TEXTS); raises DataError as :func:`read_control`."""
    folder = paths.control_version(name, str(read_control(name, paths)["version"]))
    return read_table(folder / "texts.parquet", CONTROL_TEXTS, what=f"the control {name}")
