"""Columns that several tables share, and the computation of canonical JSON, digests and ids."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit_pipeline.tables.table import Column, Order, Table, boolean, choice, double, fraction, string

# Creating an encoder takes longer than encoding a short value, so all calls share one.
_JSON = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
# JSON escapes line breaks in strings, so a line break is a safe separator of values.
_JSON_LINES = json.JSONEncoder(ensure_ascii=False, separators=("\n", ":"), allow_nan=False)
_ITEMS_AT_ONCE = 1024
_UNCHANGED_TYPES = frozenset((str, int, bool, type(None)))
"""The types of values that canonical JSON does not change. A list of them needs no look at each value."""


def canonical_json(value: object) -> str:
    """Return the canonical JSON of a value: sorted keys, no blanks, floats with 12 significant digits.

    Floats are rounded so that ``0.1 * 3`` and ``0.3`` denote the same parameter setting.
    """
    return _JSON.encode(_canonical(value))


def each_to_canonical_json(values: Iterable[object]) -> list[str]:
    """Return :func:`canonical_json` of each value. The values are strings, numbers or None.

    All values are encoded in one call, which is faster than one call per value.
    """
    rounded = _canonical_items(list(values))
    if not rounded:
        return []
    return _JSON_LINES.encode(rounded)[1:-1].split("\n")


def _canonical(value: object) -> object:
    # The most frequent types are checked first. The check for a Mapping is the slowest.
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, Mapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return _canonical_items(value)
    return value


def _canonical_items(values: list[Any] | tuple[Any, ...]) -> Sequence[object]:
    if _UNCHANGED_TYPES.issuperset(map(type, values)):
        return values
    return list(map(_canonical, values))


def digest(*parts: object) -> str:
    """Return the sha256 (hex) of the canonical JSON of ``parts``."""
    return hashlib.sha256(canonical_json(list(parts)).encode()).hexdigest()


def digest_each(values: Iterable[str], *parts: object) -> list[str]:
    """Return ``digest(value, *parts)`` for each value. The parts are encoded once."""
    rest = f",{canonical_json(list(parts))[1:]}"
    return [hashlib.sha256(f"[{canonical_json(value)}{rest}".encode()).hexdigest() for value in values]


def digest_of_items(items: Iterable[object]) -> str:
    """Return the same digest as ``digest(list(items))``, but without all items in memory at once."""
    sha256 = hashlib.sha256(b"[[")
    separator = b""
    remaining = iter(items)
    while batch := list(itertools.islice(remaining, _ITEMS_AT_ONCE)):
        sha256.update(separator + canonical_json(batch)[1:-1].encode())
        separator = b","
    sha256.update(b"]]")
    return sha256.hexdigest()


def text_sha256(text: str) -> str:
    """Return the sha256 (hex) of the text's UTF-8 bytes."""
    return hashlib.sha256(text.encode()).hexdigest()


def example_id(benchmark: str, document_id: str, text: str) -> str:
    """Return the id of an example: the first 16 hex digits of ``digest(benchmark, document_id, text)``."""
    return digest(benchmark, document_id, text)[:16]


@dataclass(frozen=True)
class Pair:
    """A pair of a benchmark and a model. Token statistics, scores and evaluations have one partition per pair."""

    benchmark: str
    model: str

    @property
    def partition(self) -> str:
        """Return the name of the partition. Dagster sorts dimensions by name, so the benchmark comes first."""
        return f"{self.benchmark}|{self.model}"


def parse_pair(partition: str) -> Pair:
    """Return the pair of a partition key, ``benchmark|model``."""
    benchmark, _, model = partition.partition("|")
    return Pair(benchmark, model)


RUN_ID = string("run_id", "the run that wrote the row; joins to lineage.run_id")
MODEL = string("model", "the model")
BENCHMARK = string("benchmark", "the benchmark")
DETECTOR = string("detector", "the detector")
PARAMETERS = string("parameters", "canonical JSON of the detector's parameters")
IS_DEFAULT = boolean(
    "is_default", "whether parameters are the detector's default parameters, which the headline finding uses"
)
CI_LOW = double("ci_low", "lower end of the 95% interval", null=True)
CI_HIGH = double("ci_high", "upper end of the 95% interval", null=True)
CLAIM_LEVEL = choice("claim_level", ("screening only", "statistical evidence", "sound test"))
COLLECTION = string("collection", "the project, series or folder within the source")
GROUP = string("group", "the group of texts; intervals, calibration and cross-validation treat a group as one unit")
LANGUAGE = string("language", "ISO 639-1 code")
SHA256 = string("sha256", "sha256 of the UTF-8 text")


def build_rate_columns(name: str, description: str, *, null: bool = True) -> tuple[Column, Column, Column]:
    """Build the columns of a rate and of its 95% interval, NAME_low and NAME_high.

    Args:
        name: The name of the rate's column.
        description: The description of the rate.
        null: True if the rate may be missing.
    """
    return (
        fraction(name, description, null=null),
        fraction(f"{name}_low", f"lower end of the 95% interval of {name}", null=True),
        fraction(f"{name}_high", f"upper end of the 95% interval of {name}", null=True),
    )


def build_run_table(
    name: str,
    comment: str,
    *,
    columns: tuple[Column, ...],
    key: tuple[str, ...] = (),
    current: str = "",
    made_from: tuple[str, ...] = (),
    model: Column = MODEL,
    benchmark: Column = BENCHMARK,
    order: Order = "sorted",
) -> Table:
    """Declare a table to which every run of a pair (model and benchmark) adds a file.

    Args:
        name: The name of the table.
        comment: The description of the table.
        columns: The columns except model, benchmark and run_id, which are added.
        key: The columns that identify a row together with run_id, benchmark and model.
        current: The description of the rows for the view current_NAME (see ``Table.current``).
        made_from: The names of the tables that the rows are computed from.
        model: The column of the model.
        benchmark: The column of the benchmark.
        order: The order of the rows in the warehouse.
    """
    return Table(
        name,
        comment,
        (model, benchmark, *columns, RUN_ID),
        ("run_id", "benchmark", "model", *key),
        partitioned_by="pair",
        storage="runs",
        made_from=made_from,
        current=current,
        order=order,
    )
