"""What the tables have in common: columns that several have, and the canonical forms that keys are made of."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from audit_pipeline.tables.table import Column, Order, Table, boolean, choice, double, fraction, string

# One encoder for all: making it takes longer than what it does for a short value.
_JSON = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
# JSON spells a line break within a string as \n, so none is ever within a value.
_JSON_LINES = json.JSONEncoder(ensure_ascii=False, separators=("\n", ":"), allow_nan=False)
_ITEMS_AT_ONCE = 1024


def canonical_json(value: object) -> str:
    """JSON with one spelling for one value: sorted keys, no blanks, floats at 12 significant digits.

    Floats are rounded so that ``0.1 * 3`` and ``0.3`` name the same parameter setting.
    """
    return _JSON.encode(_canonical(value))


def each_to_canonical_json(values: Iterable[object]) -> list[str]:
    """What :func:`canonical_json` is of each of the ``values`` (strings, numbers, None), all at once."""
    rounded = [_canonical(value) if isinstance(value, float) else value for value in values]
    return _JSON_LINES.encode(rounded)[1:-1].split("\n") if rounded else []


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


def digest_each(values: Iterable[str], *parts: object) -> list[str]:
    """What :func:`digest` is of each of the ``values`` and ``parts`` after it; the parts are written once."""
    rest = f",{canonical_json(list(parts))[1:]}"
    return [hashlib.sha256(f"[{canonical_json(value)}{rest}".encode()).hexdigest() for value in values]


def digest_of_items(items: Iterable[object]) -> str:
    """What :func:`digest` is of a list of them, which need not all be in memory."""
    found, between = hashlib.sha256(b"[["), b""
    remaining = iter(items)
    while some := list(itertools.islice(remaining, _ITEMS_AT_ONCE)):
        found.update(between + canonical_json(some)[1:-1].encode())
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


def parse_pair(partition: str) -> Pair:
    """Return the pair of a partition key, ``benchmark|model``."""
    benchmark, _, model = partition.partition("|")
    return Pair(benchmark, model)


RUN_ID = string("run_id", "the run that wrote the row; joins to lineage.run_id")
MODEL = string("model", "the model")
BENCHMARK = string("benchmark", "the benchmark")
DETECTOR = string("detector", "the detector")
PARAMETERS = string("parameters", "canonical JSON of the detector's parameters")
IS_DEFAULT = boolean("is_default", "whether these are the detector's default parameters (the headline finding)")
CI_LOW = double("ci_low", "lower end of the 95% interval", null=True)
CI_HIGH = double("ci_high", "upper end of the 95% interval", null=True)
CLAIM_LEVEL = choice("claim_level", ("screening only", "statistical evidence", "sound test"))
COLLECTION = string("collection", "the project, series or folder within the source")
GROUP = string("group", "the unit of intervals, calibration and cross-validation")
LANGUAGE = string("language", "ISO 639-1 code")
SHA256 = string("sha256", "sha256 of the UTF-8 text")


def build_rate_columns(name: str, description: str, *, null: bool = True) -> tuple[Column, Column, Column]:
    """A rate and both ends of its 95% interval, NAME_low and NAME_high; ``null``: there may be no rate."""
    return (
        fraction(name, description, null=null),
        fraction(f"{name}_low", "lower end of its 95% interval", null=True),
        fraction(f"{name}_high", "upper end of its 95% interval", null=True),
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
    """A table to which every run on a pair adds rows; ``key``: apart from run, benchmark and model."""
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
