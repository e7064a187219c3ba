"""What is kept of one benchmark or one model, and taking it away: the domain half of `corpus-audit forget`.

What belongs here: finding what the declared tables hold of a name, and what is kept of a model by its fingerprints (its
card, tokenizer, converted weights, the check at loading, what was seen behind its endpoint): which ones its name had,
and which of them no other name shares; and removing it all in an order that can be taken up again. What does not:
which tables there are (catalogue/contracts/), taking files and the cache's rows away (removal_files.py), partitions and
runs (operate/dagster/forgetting.py).

What was made of others goes before them, and whatever says what there is to remove goes last: the examples, which name
the texts, and the lineage, which names the models' fingerprints. So a removal that was killed is finished by a second
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa

from audit_pipeline.catalogue.contracts import DOCUMENTS, EXAMPLES, LINEAGE, TABLES, Pair, Table, text_sha256
from audit_pipeline.catalogue.files import read_json, read_parquet, write_json
from audit_pipeline.catalogue.lineage_chain import withdraw_rows
from audit_pipeline.catalogue.paths import DataPaths, name_from_path_segment
from audit_pipeline.catalogue.store import iterate_partitions, list_cache_folders
from audit_pipeline.catalogue.working_copy import remove as remove_file
from audit_pipeline.errors import DataError
from audit_pipeline.models.kept_files import conversion_folder
from audit_pipeline.operate.removal_files import (
    Gone,
    Lot,
    OnRemoved,
    remove_folder,
    remove_texts,
    rows_of_others,
    sum_by_kind,
    weight_of_folder,
    weight_of_texts,
)
from audit_pipeline.scoring.needs.registry import list_derived_texts

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
    return {str(card["name"]) for card in map(_read_card, _card_files(paths)) if "name" in card}


def find_kept_of_model(name: str, lineage: Mapping[str, Iterable[Path]], paths: DataPaths) -> KeptOfModel:
    """What is kept of a model and of no other; ``lineage`` are the folders of entries that name models, by model.

    Raises DataError where a file that decides it cannot be read.
    """
    by_name = _read_fingerprints(lineage, paths)
    own = by_name.pop(name, _Fingerprints())
    kept, renamed = [], []
    for fingerprint in sorted(own.models):
        if users := sorted(other for other, theirs in by_name.items() if fingerprint in theirs.models):
            kept.append(f"token statistics and card of {fingerprint}, which are those of {', '.join(users)} too")
            card = paths.model_card(fingerprint)
            if card.exists() and _read_card(card).get("name") == name:
                renamed.append((card, users[0]))
    models, tokenizers, weights, endpoints = (
        sorted(getattr(own, sort) - {one for theirs in by_name.values() for one in getattr(theirs, sort)})
        for sort in _SORTS
    )
    lots = (
        Lot.of("converted tokenizers", map(paths.kept_tokenizers, tokenizers)),
        Lot.of("converted weights", (conversion_folder(one, paths) for one in weights)),
        Lot("what was seen behind endpoints", tuple(path for path in map(paths.endpoint, endpoints) if path.exists())),
        Lot("checks at loading", tuple(path for one in models for path in paths.load_checks(one))),
        Lot("cards", tuple(path for path in map(paths.model_card, models) if path.exists())),
    )
    return KeptOfModel(frozenset(models), lots, tuple(renamed), tuple(kept))


def rename_card(path: Path, name: str) -> None:
    """Write the card anew under another name of its model."""
    write_json(path, {**_read_card(path), "name": name})


def read_columns(path: Path, *names: str) -> pa.Table:
    """Columns of a file that decides what may be removed; raises DataError where it cannot be read."""
    try:
        return read_parquet(path, names)
    except (pa.ArrowException, OSError) as error:
        raise DataError(_describe_unreadable_file(path, error)) from error


def _read_fingerprints(lineage: Mapping[str, Iterable[Path]], paths: DataPaths) -> dict[str, _Fingerprints]:
    """The fingerprints that the lineage and the cards name, by model."""
    found: dict[str, _Fingerprints] = {}
    for name, folders in lineage.items():
        of_model = found.setdefault(name, _Fingerprints())
        for path in (path for folder in folders for path in sorted(folder.glob("*.parquet"))):
            table = read_columns(path, "model_fingerprint", "tokenizer_fingerprint")
            of_model.models |= set(table.column("model_fingerprint").drop_null().to_pylist())
            of_model.tokenizers |= set(table.column("tokenizer_fingerprint").drop_null().to_pylist())
    for path in _card_files(paths):
        card = _read_card(path)
        of_model = found.setdefault(str(card.get("name")), _Fingerprints())
        of_model.models.add(path.stem)
        if card.get("tokenizer_fingerprint"):
            of_model.tokenizers.add(str(card["tokenizer_fingerprint"]))
        if card.get("weights_digest"):
            of_model.weights.add(str(card["weights_digest"]))
        if card.get("endpoint"):
            of_model.endpoints.add(str(card["endpoint"]))
    return found


def _read_card(path: Path) -> dict[str, object]:
    try:
        card = read_json(path)
    except (OSError, ValueError) as error:
        raise DataError(_describe_unreadable_file(path, error)) from error
    if not isinstance(card, dict):
        raise DataError(_describe_unreadable_file(path, "not a JSON object"))
    return card


def _card_files(paths: DataPaths) -> list[Path]:
    return [path for path in sorted(paths.model_card("any").parent.glob("*.json")) if path != paths.digest_cache]


def _describe_unreadable_file(path: Path, reason: object) -> str:
    words = " ".join(str(reason).split())
    return f"{path} cannot be read, and it decides what may be removed ({words}): build it again, or move it away"


Dimension = Literal["benchmark", "model"]


@dataclass(frozen=True)
class RemovalTarget:
    """A benchmark or a model, by the name of its partition."""

    dimension: Dimension
    name: str

    def covers(self, pair: Pair) -> bool:
        """Whether the pair is of this benchmark, or of this model."""
        return self.name == (pair.benchmark if self.dimension == "benchmark" else pair.model)

    def __str__(self) -> str:
        return f"{self.dimension} {self.name}"


@dataclass(frozen=True)
class _Partition:
    """A partition of a table, and the folder in which its files, or its lineage entries, lie."""

    table: Table
    name: str
    folder: Path

    def of(self, dimension: Dimension) -> str | None:
        """The benchmark, or model, that it is of; None where it is of none."""
        if self.table.per == "pair":
            benchmark, bar, model = self.name.partition("|")
            return {"benchmark": benchmark, "model": model}[dimension] if bar else None
        if self.table.per == "overlap":
            return self.name.partition("|")[0] if dimension == "benchmark" else None
        return self.name if self.table.per == dimension else None


@dataclass(frozen=True)
class Removal:
    """What a name's removal takes away, in this order: whole caches, rows of its texts in caches, files.

    ``renamed_cards`` are those that another name of the same model keeps. ``kept`` says in words what stays although it
    has to do with the name.
    """

    target: RemovalTarget
    paths: DataPaths
    cache_folders: tuple[Path, ...] = ()
    texts: frozenset[str] = frozenset()
    shared_caches: tuple[Path, ...] = ()
    lots: tuple[Lot, ...] = ()
    renamed_cards: tuple[tuple[Path, str], ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def marker(self) -> Path:
        """The file that says that the removal was begun and is not finished."""
        return self.paths.removal(self.target.dimension, self.target.name)


def list_kept_names(dimension: Dimension, paths: DataPaths) -> set[str]:
    """The benchmarks, or models, of which anything lies under the data folder."""
    names = {target.name for target in list_unfinished_removals(paths) if target.dimension == dimension}
    found = [*_partitions(paths), *_iterate_lineage_partitions(paths)]
    names |= {name for one in found if (name := one.of(dimension)) is not None}
    return names | names_on_cards(paths) if dimension == "model" else names


def find_removal(target: RemovalTarget, paths: DataPaths) -> Removal:
    """What there is of ``target``; nothing is changed by looking.

    Raises DataError where a file that decides it cannot be read.
    """
    if target.dimension == "model":
        own = find_kept_of_model(target.name, _lineage_by_model(paths), paths)
        caches = tuple(one for one in list_cache_folders(paths) if _fingerprint_of(one, paths) in own.fingerprints)
        lots = tuple(_lots(target, paths, own.lots))
        return Removal(target, paths, caches, lots=lots, renamed_cards=own.renamed_cards, kept=own.kept)
    texts = _read_target_texts(target, paths)
    shared = tuple(list_cache_folders(paths)) if texts.own else ()
    kept = ["the documents of its sources, which are no benchmark's own"]
    if common := len(texts.own & texts.of_others):
        kept.append(f"token statistics of {common} of its texts, which other benchmarks hold too")
    if strangers := rows_of_others(shared, texts.own_run | texts.of_others_run):
        kept.append(
            f"{strangers} cached rows of texts that stand in no benchmark (files that were scored, earlier builds)"
        )
    return Removal(
        target,
        paths,
        texts=frozenset(texts.own_run - texts.of_others_run),
        shared_caches=shared,
        lots=tuple(_lots(target, paths)),
        kept=tuple(kept),
    )


def measure_removal(removal: Removal) -> list[Gone]:
    """What the removal would take away; the bytes of rows in parts that stay are shared out by rows."""
    found = [weight_of_folder(folder) for folder in removal.cache_folders]
    for folder in removal.shared_caches:
        found += weight_of_texts(folder, removal.texts)
    return sum_by_kind([*found, *(lot.weight() for lot in removal.lots)])


def remove(removal: Removal, on_removed: OnRemoved = lambda path: None) -> list[Gone]:
    """Take it all away and say what went; ``on_removed`` is told of every file and folder as it goes.

    The links of the lineage rows are withdrawn from their chain first. The marker of the removal stays until
    :func:`mark_removal_finished`. A call that was killed is finished by finding and removing again.
    """
    write_json(removal.marker, {"dimension": removal.target.dimension, "name": removal.target.name})
    lineage = (file for lot in removal.lots if lot.what == LINEAGE.name for file in lot.files)
    entries = [file for file in lineage if file.suffix == ".parquet"]
    withdraw_rows(removal.paths, entries, "forgotten")
    gone = []
    for folder in removal.cache_folders:
        gone.append(weight_of_folder(folder))
        remove_folder(folder, on_removed)
    for folder in removal.shared_caches:
        gone += remove_texts(folder, removal.texts, on_removed)
    for lot in removal.lots:
        gone.append(lot.weight())
        lot.remove(on_removed)
    for path, name in removal.renamed_cards:
        rename_card(path, name)
    return sum_by_kind(gone)


def mark_removal_finished(removal: Removal) -> None:
    """Say that nothing of it is left anywhere, the warehouse included."""
    remove_file(removal.marker)


def list_unfinished_removals(paths: DataPaths) -> list[RemovalTarget]:
    """The removals that were begun and not finished."""
    found = []
    for dimension in get_args(Dimension):
        for path in sorted(paths.removal(dimension, "any").parent.glob(f"{dimension}=*.json")):
            found.append(
                RemovalTarget(
                    dimension, name_from_path_segment(path.name.removeprefix(f"{dimension}=").removesuffix(".json"))
                )
            )
    return found


def list_set_aside_logs(paths: DataPaths) -> list[Path]:
    """Logs of users' read-write sessions on earlier warehouses; they may hold rows of anything."""
    return sorted(paths.warehouse.parent.glob(f"{paths.warehouse.name}.*.aside"))


def _partitions(paths: DataPaths) -> Iterator[_Partition]:
    """Every partition of every declared table that has files of its own."""
    for table in TABLES.values():
        if table.has_files:
            yield from (_Partition(table, name, folder) for name, folder in iterate_partitions(paths, table))


def _iterate_lineage_partitions(paths: DataPaths) -> Iterator[_Partition]:
    """Every partition that the lineage explains, with its folder there; tables of a later version are left to that."""
    for name, folder in iterate_partitions(paths, LINEAGE):
        table, _, partition = name.partition(":")
        if table in TABLES:
            yield _Partition(TABLES[table], partition, folder)


def _lots(target: RemovalTarget, paths: DataPaths, model_lots: Iterable[Lot] = ()) -> Iterator[Lot]:
    """The files of ``target``: what was made of others before them, behind each sort the lineage that explains it."""
    own = [one for one in _partitions(paths) if one.of(target.dimension) == target.name]
    entries = [one for one in _iterate_lineage_partitions(paths) if one.of(target.dimension) == target.name]
    for names_texts in (False, True):
        for table in (one for one in reversed([*TABLES.values()]) if bool(one.holds_text) == names_texts):
            what = f"{table.name} and manifest" if table.manifest else table.name
            if folders := [one.folder for one in own if one.table is table]:
                yield Lot.of(what, folders)
        if not names_texts:
            yield from model_lots
        yield Lot.of(LINEAGE.name, (one.folder for one in entries if bool(one.table.holds_text) == names_texts))


@dataclass(frozen=True)
class _Texts:
    """The digests of a target's texts, and of all that a model is run on for them: in lower case, too."""

    own: set[str]
    own_run: set[str]
    of_others: set[str]
    of_others_run: set[str]


def _read_target_texts(target: RemovalTarget, paths: DataPaths) -> _Texts:
    """The texts in the tables of which the target is a partition, and those of the other partitions."""
    found = _Texts(set(), set(), set(), set())
    for one in _partitions(paths):
        name, columns = one.of(target.dimension), one.table.holds_text
        if name is None or not columns:
            continue
        is_own = name == target.name
        texts = [
            text
            for file in sorted(one.folder.glob("*.parquet"))
            for text in one.table.texts(read_columns(file, *columns))
        ]
        as_they_are = {text_sha256(text) for text in texts}
        (found.own if is_own else found.of_others).update(as_they_are)
        as_run = as_they_are | {text_sha256(text) for text in list_derived_texts(texts)}
        (found.own_run if is_own else found.of_others_run).update(as_run)
    documents_of = _documents_by_benchmark(paths) if target.dimension == "benchmark" else {}
    for name, documents in documents_of.items():
        (found.own_run if name == target.name else found.of_others_run).update(documents)
    return found


def _documents_by_benchmark(paths: DataPaths) -> Mapping[str, set[str]]:
    """The digests of the documents that each benchmark was drawn from: whole ones may have been searched."""
    digests: dict[str, str] = {}
    for _, folder in iterate_partitions(paths, DOCUMENTS):
        for file in sorted(folder.glob("*.parquet")):
            rows = read_columns(file, "document_id", "sha256")
            digests |= dict(zip(*(rows.column(one).to_pylist() for one in rows.column_names), strict=True))
    found: dict[str, set[str]] = {}
    for name, folder in iterate_partitions(paths, EXAMPLES):
        for file in sorted(folder.glob("*.parquet")):
            ids = read_columns(file, "document_id").column("document_id").to_pylist()
            found.setdefault(name, set()).update(digests[one] for one in ids if one in digests)
    return found


def _lineage_by_model(paths: DataPaths) -> Mapping[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for one in _iterate_lineage_partitions(paths):
        if (model := one.of("model")) is not None:
            found.setdefault(model, []).append(one.folder)
    return found


def _fingerprint_of(folder: Path, paths: DataPaths) -> str:
    return folder.name.removeprefix(paths.token_statistics("any", "").name)
