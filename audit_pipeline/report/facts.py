"""Nested JSON as lines of names and values, for people who want to see all of it.

What belongs here: flattening manifests, versions and lists of inputs. What does not: which of them are shown
(sections/), reading the warehouse (page.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from audit_pipeline.report.numbers import cut

MOST = 60
"""Facts of one thing, at most: a manifest can hold thousands."""


def facts(value: object) -> list[dict[str, str]]:
    """Nested JSON as names and values, 60 at most, each cut to a bounded length."""
    return [{"name": cut(name, 200), "value": cut(word, 1000)} for name, word in flattened(value)[:MOST]]


def flattened(value: object, *, key: str = "") -> list[tuple[str, str]]:
    """Nested JSON as lines of (key, value): keys joined with ›, plain lists on one line, empty values left out."""
    if isinstance(value, Mapping):
        lines = [flattened(item, key=f"{key} › {name}" if key else str(name)) for name, item in value.items()]
        return [line for group in lines for line in group]
    if isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        lines = [flattened(item, key=f"{key} › {position}") for position, item in enumerate(value, start=1)]
        return [line for group in lines for line in group]
    if isinstance(value, list):
        value = ", ".join(_word(item) for item in value)
    return [] if value is None or value == "" else [(key, _word(value))]


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
