"""The provider of every need, by its name: found in the modules here, and in the modules ``need`` of extras."""

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
    own = (importlib.import_module(f"{needs.__name__}.{name}") for name in names if name != "registry")
    modules = (*own, *extras.find_modules("need"))
    return collect_by_name(
        modules,
        label="needs",
        is_wanted=lambda value: isinstance(value, type) and issubclass(value, Provider) and hasattr(value, "need"),
        name_of=lambda provider: provider.need.name,
    )


PROVIDERS: Mapping[str, type[Provider[Any]]] = _find_providers()


def list_derived_texts(texts: Sequence[str]) -> list[str]:
    """Other texts that models are run over for the needs of ``texts``: see Provider.list_derived."""
    return [text for provider in PROVIDERS.values() for text in provider.list_derived(texts)]


def is_from_need(upstream: str) -> bool:
    """Whether a name in ``upstream`` is of something that a need brought: a reference model, say."""
    return upstream.partition("/")[0] in {provider.source for provider in PROVIDERS.values()}
