"""The canonical forms that keys are made of: JSON, digests, a partition's name.

What belongs here: one spelling for one value. What does not: the columns that hold them (the tables beside it).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# One encoder for all: making it takes longer than what it does for a short value.
_JSON = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def canonical_json(value: object) -> str:
    """JSON with one spelling for one value: sorted keys, no blanks, floats at 12 significant digits.

    Floats are rounded so that ``0.1 * 3`` and ``0.3`` name the same parameter setting.
    """
    return _JSON.encode(_canonical(value))


def _canonical(value: object) -> object:
    # First what there is most of: asking whether something is a Mapping takes longest.
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, Mapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    return value


def digest(*parts: object) -> str:
    """sha256 (hex) of the canonical JSON of ``parts``: unambiguous, whatever the parts hold."""
    return hashlib.sha256(canonical_json(list(parts)).encode()).hexdigest()


def digest_of_items(items: Iterable[object]) -> str:
    """What :func:`digest` is of a list of them, which need not all be in memory."""
    found, between = hashlib.sha256(b"[["), b""
    for item in items:
        found.update(between + canonical_json(item).encode())
        between = b","
    found.update(b"]]")
    return found.hexdigest()


def text_sha256(text: str) -> str:
    """sha256 (hex) of the text's UTF-8 bytes."""
    return hashlib.sha256(text.encode()).hexdigest()


def example_id(benchmark: str, document_id: str, text: str) -> str:
    """The identity of an example: sha256(benchmark, document_id, text), 16 hex digits."""
    return digest(benchmark, document_id, text)[:16]


@dataclass(frozen=True)
class Pair:
    """One model on one benchmark: a partition of the token statistics, scores and evaluations."""

    benchmark: str
    model: str

    @property
    def partition(self) -> str:
        """The partition's name; Dagster sorts dimensions by name, so the benchmark comes first."""
        return f"{self.benchmark}|{self.model}"
