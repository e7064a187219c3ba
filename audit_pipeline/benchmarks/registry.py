"""Every builder by the name that entries give it, found by its module.

What belongs here: finding. What does not: what a builder is (builder.py) and does (builders/).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from audit_pipeline.benchmarks import builders
from audit_pipeline.benchmarks.builder import Builder
from audit_pipeline.config.by_module import by_name


def _find_builders() -> dict[str, Builder[Any]]:
    """The builder of every module in builders/: a new one needs no entry here."""
    names = [f"{builders.__name__}.{one.name}" for one in pkgutil.iter_modules(builders.__path__)]
    modules = (importlib.import_module(name) for name in names)
    return by_name(modules, what="builders", is_one=lambda one: isinstance(one, Builder), name_of=lambda one: one.name)


BUILDERS: Mapping[str, Builder[Any]] = _find_builders()
