"""What is kept of a model by its fingerprints: its card, tokenizer, converted weights, the check at loading, what was
seen behind its endpoint.

What belongs here: which fingerprints a model's name stood for, and which of them no other name shares. What does not:
tables, which are kept by the model's name (removal.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.tables import read_json, read_parquet, write_json
from audit_pipeline.errors import DataError
from audit_pipeline.models.kept import converted_of
from audit_pipeline.operate.removal_lots import Lot

_SORTS = ("models", "tokenizers", "weights", "endpoints")


@dataclass
class _Fingerprints:
    """The fingerprints that a model's name stood for."""

    models: set[str] = field(default_factory=set)
    tokenizers: set[str] = field(default_factory=set)
    weights: set[str] = field(default_factory=set)
    endpoints: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class KeptOfModel:
    """What goes with a model's name: the fingerprints of caches, and files, in order.

    ``renamed_cards`` are those that another name of the same model keeps; ``kept`` says in words what else stays.
    """

    fingerprints: frozenset[str]
    lots: tuple[Lot, ...]
    renamed_cards: tuple[tuple[Path, str], ...]
    kept: tuple[str, ...]


def names_on_cards(paths: DataPaths) -> set[str]:
    """The models that have a card."""
    return {str(card["name"]) for card in map(_card, _card_files(paths)) if "name" in card}


def kept_of_model(name: str, lineage: Mapping[str, Iterable[Path]], paths: DataPaths) -> KeptOfModel:
    """What is kept of a model and of no other; ``lineage`` are the folders of entries that name models, by model.

    Raises DataError where a file that decides it cannot be read.
    """
    by_name = _fingerprints(lineage, paths)
    own = by_name.pop(name, _Fingerprints())
    kept, renamed = [], []
    for fingerprint in sorted(own.models):
        if users := sorted(other for other, theirs in by_name.items() if fingerprint in theirs.models):
            kept.append(f"token statistics and card of {fingerprint}, which are those of {', '.join(users)} too")
            card = paths.model_card(fingerprint)
            if card.exists() and _card(card).get("name") == name:
                renamed.append((card, users[0]))
    models, tokenizers, weights, endpoints = (
        sorted(getattr(own, sort) - {one for theirs in by_name.values() for one in getattr(theirs, sort)})
        for sort in _SORTS
    )
    lots = (
        Lot.of("converted tokenizers", map(paths.kept_tokenizers, tokenizers)),
        Lot.of("converted weights", (converted_of(one, paths) for one in weights)),
        Lot("what was seen behind endpoints", tuple(path for path in map(paths.endpoint, endpoints) if path.exists())),
        Lot("checks at loading", tuple(path for one in models for path in paths.load_checks(one))),
        Lot("cards", tuple(path for path in map(paths.model_card, models) if path.exists())),
    )
    return KeptOfModel(frozenset(models), lots, tuple(renamed), tuple(kept))


def rename_card(path: Path, name: str) -> None:
    """Write the card anew under another name of its model."""
    write_json(path, {**_card(path), "name": name})


def columns_of(path: Path, *names: str) -> pa.Table:
    """Columns of a file that decides what may be removed; raises DataError where it cannot be read."""
    try:
        return read_parquet(path, names)
    except (pa.ArrowException, OSError) as error:
        raise DataError(_undecided(path, error)) from error


def _fingerprints(lineage: Mapping[str, Iterable[Path]], paths: DataPaths) -> dict[str, _Fingerprints]:
    """The fingerprints that the lineage and the cards name, by model."""
    found: dict[str, _Fingerprints] = {}
    for name, folders in lineage.items():
        of_model = found.setdefault(name, _Fingerprints())
        for path in (path for folder in folders for path in sorted(folder.glob("*.parquet"))):
            table = columns_of(path, "model_fingerprint", "tokenizer_fingerprint")
            of_model.models |= set(table.column("model_fingerprint").drop_null().to_pylist())
            of_model.tokenizers |= set(table.column("tokenizer_fingerprint").drop_null().to_pylist())
    for path in _card_files(paths):
        card = _card(path)
        of_model = found.setdefault(str(card.get("name")), _Fingerprints())
        of_model.models.add(path.stem)
        if card.get("tokenizer_fingerprint"):
            of_model.tokenizers.add(str(card["tokenizer_fingerprint"]))
        if card.get("weights_digest"):
            of_model.weights.add(str(card["weights_digest"]))
        if card.get("endpoint"):
            of_model.endpoints.add(str(card["endpoint"]))
    return found


def _card(path: Path) -> dict[str, object]:
    try:
        card = read_json(path)
    except (OSError, ValueError) as error:
        raise DataError(_undecided(path, error)) from error
    if not isinstance(card, dict):
        raise DataError(_undecided(path, "not a JSON object"))
    return card


def _card_files(paths: DataPaths) -> list[Path]:
    return [path for path in sorted(paths.model_card("any").parent.glob("*.json")) if path != paths.digest_cache]


def _undecided(path: Path, reason: object) -> str:
    words = " ".join(str(reason).split())
    return f"{path} cannot be read, and it decides what may be removed ({words}): build it again, or move it away"
