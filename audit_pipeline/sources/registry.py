"""Every source by name, found by its module.

What belongs here: finding and looking up. What does not: what a source is (base.py), does (its own module), and how it
is kept (store.py).

A source is a `Source` in a module of this package, in the module `source` of a package of connectors/, or at an entry
point of an installed package. Nothing imports the connectors by name, and their parsers are imported when they are
fetched.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from audit_pipeline import sources
from audit_pipeline.config.brought import merge_entry_points
from audit_pipeline.config.by_module import by_name
from audit_pipeline.config.hints import did_you_mean
from audit_pipeline.errors import SourceError
from audit_pipeline.sources.base import Source

_CONNECTORS = "audit_pipeline.connectors"


@cache
def all_sources() -> Mapping[str, Source[Any]]:
    """Every source by name; a new one needs no entry here. Raises ConfigError where two of ours have one name."""
    modules = (importlib.import_module(name) for name in _modules())
    ours: dict[str, Source[Any]] = by_name(
        modules, what="sources", is_one=lambda one: isinstance(one, Source), name_of=lambda one: one.name
    )
    return merge_entry_points(ours, "corpus_audit.sources", Source, lambda one: one.name).found


def _modules() -> Iterator[str]:
    connectors = importlib.import_module(_CONNECTORS)
    yield from (f"{sources.__name__}.{one.name}" for one in pkgutil.iter_modules(sources.__path__))
    yield from (f"{_CONNECTORS}.{one.name}.source" for one in pkgutil.iter_modules(connectors.__path__) if one.ispkg)


def source_named(name: str) -> Source[Any]:
    """The source called ``name``; raises SourceError, naming the nearest or those there are."""
    if name not in all_sources():
        raise SourceError(f"there is no source '{name}'; {did_you_mean(name, all_sources(), 'the sources are')}")
    return all_sources()[name]
