"""The provider of every need, by its name.

What belongs here: finding them. What does not: any one of them (its own module).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any

from audit_pipeline.config.discovery import collect_by_name
from audit_pipeline.scoring import needs
from audit_pipeline.scoring.needs.provider import Provider


def _find_providers() -> dict[str, type[Provider[Any]]]:
    """The providers in the modules of this package: a new one needs no entry here."""
    names = [one.name for one in pkgutil.iter_modules(needs.__path__)]
    modules = (importlib.import_module(f"{needs.__name__}.{name}") for name in names if name != "registry")
    return collect_by_name(modules, label="needs", is_wanted=_is_provider, name_of=lambda one: one.need.name)


def _is_provider(value: object) -> bool:
    return isinstance(value, type) and Provider in value.__mro__ and value is not Provider


PROVIDERS: Mapping[str, type[Provider[Any]]] = _find_providers()


def list_derived_texts(texts: Sequence[str]) -> list[str]:
    """Other texts that models are run over for the needs of ``texts``: see Provider.derived."""
    return [text for one in PROVIDERS.values() for text in one.derived(texts)]


def is_extra(upstream: str) -> bool:
    """Whether an entry of a lineage row's upstream names something that a need brought: a reference model, say."""
    return upstream.partition("/")[0] in {one.source for one in PROVIDERS.values()}
