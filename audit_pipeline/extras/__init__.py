"""The optional features, one package per feature.

A package contributes commands (module ``commands``), files of config/ (``config``), needs of detectors (``need``),
sensors and sections of the report. :func:`find_modules` finds these modules by name. The assets of the features are in
``assets/``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType


def find_modules(name: str) -> Iterator[ModuleType]:
    """Import and yield the features' modules whose name is ``name`` or ends with ``_name``."""
    for package in pkgutil.iter_modules(__path__):
        for module in pkgutil.iter_modules([str(Path(folder, package.name)) for folder in __path__]):
            if module.name == name or module.name.endswith(f"_{name}"):
                yield importlib.import_module(f"{__name__}.{package.name}.{module.name}")
