"""What is found by its module: sources, builders, detectors, providers of needs.

What belongs here: giving each its name, once. What does not: which modules are looked at (each kind's registry).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TypeVar

from audit_pipeline.errors import ConfigError

T = TypeVar("T")


def by_name(
    modules: Iterable[ModuleType], *, what: str, is_one: Callable[[object], bool], name_of: Callable[[T], str]
) -> dict[str, T]:
    """Every value of the modules that ``is_one``, by its name, in the order of the modules; ``what`` it is in a word.

    What a module imports from another counts once. Raises ConfigError, naming both modules, where two have one name.
    """
    found: dict[str, tuple[T, str]] = {}
    for module in modules:
        values: list[T] = [value for value in vars(module).values() if is_one(value)]
        for value in values:
            other, where = found.setdefault(name_of(value), (value, module.__name__))
            if other is not value:
                raise ConfigError(
                    f"there are two {what} named '{name_of(value)}', in {where} and in {module.__name__}: rename one"
                )
    return {name: value for name, (value, _) in found.items()}
