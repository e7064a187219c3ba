"""The providers of all requirements, from the modules of this folder and the modules ``need`` of extras."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any

from audit_pipeline import extras
from audit_pipeline.config.plugins import collect_by_name
from audit_pipeline.scoring import needs
from audit_pipeline.scoring.needs.provider import Provider


def _find_providers() -> dict[str, type[Provider[Any]]]:
    names = [module.name for module in pkgutil.iter_modules(needs.__path__)]
    modules = [importlib.import_module(f"{needs.__name__}.{name}") for name in names if name != "registry"]
    return collect_by_name(
        (*modules, *extras.find_modules("need")),
        label="needs",
        is_wanted=lambda value: isinstance(value, type) and issubclass(value, Provider) and hasattr(value, "need"),
        name_of=lambda provider: provider.need.name,
    )


PROVIDERS: Mapping[str, type[Provider[Any]]] = _find_providers()
"""The provider classes by the name of their requirement."""


def list_derived_texts(texts: Sequence[str]) -> list[str]:
    """Return the texts that providers derive from ``texts``, for all requirements (Provider.list_derived)."""
    derived_texts: list[str] = []
    for provider in PROVIDERS.values():
        derived_texts += provider.list_derived(texts)
    return derived_texts


def is_from_need(upstream: str) -> bool:
    """Return True if a name in ``upstream`` is the input of a requirement, for example a reference model."""
    return upstream.partition("/")[0] in {provider.source for provider in PROVIDERS.values()}
