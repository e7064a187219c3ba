"""What is kept of one benchmark or one model, and taking it away: the domain half of `corpus-audit forget`.

What belongs here: finding the files and cached rows that were derived from a name, and removing them in an order that
can be taken up again. What does not: partitions and runs (operate/dagster/forgetting.py), rebuilding the warehouse.

Whatever says what there is to remove goes last: the examples, which name the texts, and the lineage, which names the
models' fingerprints. So a removal that was killed is finished by a second one.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa

from audit_pipeline.catalogue.contracts import RUN_TABLES, Pair, text_sha256, texts_read
from audit_pipeline.catalogue.paths import DataPaths, unsegment
from audit_pipeline.catalogue.tables import open_parquet, read_json, read_parquet, write_json
from audit_pipeline.errors import DataError
from audit_pipeline.models.kept import converted_of
from audit_pipeline.scoring.needs.registry import derived
from audit_pipeline.token_statistics.cache import COMPACTION_LOCK, discard, no_compaction, weigh

Dimension = Literal["benchmark", "model"]

PAIR_TABLES = (*RUN_TABLES, "outcomes")
_OF_SPLITS = ("split_quality", "blind_scores")
_LINEAGE = "lineage"
_CACHED = "token statistics"
_DAMAGED = "damaged parts of the cache, which may hold its texts"
DEAD_AFTER_SECONDS = 3600.0
"""A temporary file that is older is no living writer's."""


@dataclass(frozen=True)
class Target:
    """A benchmark or a model, by the name of its partition."""

    dimension: Dimension
    name: str

    def covers(self, pair: Pair) -> bool:
        """Whether the pair is of this benchmark, or of this model."""
        return self.name == (pair.benchmark if self.dimension == "benchmark" else pair.model)

    def __str__(self) -> str:
        return f"{self.dimension} {self.name}"


@dataclass(frozen=True)
class Gone:
    """What goes, or went, of one sort: whole files and rows of files that stay, with their bytes on disk."""

    what: str
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class _Lot:
    """Files of one sort that go whole, and the folders that go where that leaves them empty."""

    what: str
    files: tuple[Path, ...]
    folders: tuple[Path, ...] = ()

    @classmethod
    def of(cls, what: str, folders: Iterable[Path]) -> _Lot:
        given = tuple(folders)
        inner = [path for folder in given for path in sorted(folder.rglob("*"), reverse=True) if path.is_dir()]
        return cls(what, tuple(path for folder in given for path in _files(folder)), (*inner, *given))


@dataclass(frozen=True)
class _Entry:
    """A folder of lineage: which partition of which table it explains."""

    folder: Path
    table: str
    partition: str

    @property
    def pair(self) -> Pair | None:
        # That of token frequencies names a corpus and a tokenizer.
        return None if self.table == "token_frequencies" else _pair(self.partition)


@dataclass(frozen=True)
class Removal:
    """What a name's removal takes away, in this order: whole caches, rows of its texts in caches, files.

    ``renamed_cards`` are those that another name of the same model keeps. ``kept`` says in words what stays although it
    has to do with the name.
    """

    target: Target
    marker: Path
    cache_folders: tuple[Path, ...] = ()
    texts: frozenset[str] = frozenset()
    shared_caches: tuple[Path, ...] = ()
    lots: tuple[_Lot, ...] = ()
    renamed_cards: tuple[tuple[Path, str], ...] = ()
    kept: tuple[str, ...] = ()


@dataclass
class _Fingerprints:
    """The fingerprints that a model's name stood for."""

    models: set[str] = field(default_factory=set)
    tokenizers: set[str] = field(default_factory=set)
    weights: set[str] = field(default_factory=set)


def names_kept(dimension: Dimension, paths: DataPaths) -> set[str]:
    """The benchmarks, or models, of which anything lies under the data folder."""
    marked = paths.removal(dimension, "any").parent.glob(f"{dimension}=*.json")
    names = {unsegment(path.name.removeprefix(f"{dimension}=").removesuffix(".json")) for path in marked}
    pairs = [pair for table in PAIR_TABLES for _, pair in _pair_folders(paths, table)]
    entries = _entries(paths)
    pairs += [entry.pair for entry in entries if entry.pair is not None]
    if dimension == "model":
        cards = (_card(path) for path in _card_files(paths))
        return names | {pair.model for pair in pairs} | {str(card["name"]) for card in cards if "name" in card}
    built = {entry.partition for entry in entries if entry.table in ("examples", *_OF_SPLITS)}
    return names | built | {pair.benchmark for pair in pairs} | set(_benchmark_folders(paths))


def find_removal(target: Target, paths: DataPaths) -> Removal:
    """What there is of ``target``; nothing is changed by looking.

    Raises DataError where a file that decides it cannot be read.
    """
    return _of_benchmark(target, paths) if target.dimension == "benchmark" else _of_model(target, paths)


def would_go(removal: Removal) -> list[Gone]:
    """What the removal would take away; the bytes of rows in parts that stay are shared out by rows."""
    found = [_weight_of_folder(folder) for folder in removal.cache_folders]
    for folder in removal.shared_caches:
        weight = weigh(folder, removal.texts)
        found.append(Gone(_CACHED, 0, weight.rows, weight.bytes))
        leftovers = _leftovers(folder)
        found.append(Gone(_DAMAGED, len(leftovers), 0, _bytes(leftovers)))
    found += [Gone(lot.what, len(lot.files), sum(map(_rows, lot.files)), _bytes(lot.files)) for lot in removal.lots]
    return _summed(found)


def remove(removal: Removal, on_removed: Callable[[Path], None] = lambda path: None) -> list[Gone]:
    """Take it all away and say what went; ``on_removed`` is told of every file and folder as it goes.

    The marker of the removal stays until :func:`finished`. A call that was killed is finished by finding and removing
    again.
    """
    write_json(removal.marker, {"dimension": removal.target.dimension, "name": removal.target.name})
    gone = []
    for folder in removal.cache_folders:
        gone.append(_weight_of_folder(folder))
        _remove_cache(folder, on_removed)
    for folder in removal.shared_caches:
        weight = discard(folder, removal.texts)
        gone.append(Gone(_CACHED, 0, weight.rows, weight.bytes))
        leftovers = _leftovers(folder)
        gone.append(Gone(_DAMAGED, len(leftovers), 0, _bytes(leftovers)))
        _unlink(leftovers, on_removed)
        on_removed(folder)
    for lot in removal.lots:
        present = [path for path in lot.files if path.exists()]
        gone.append(Gone(lot.what, len(present), sum(map(_rows, present)), _bytes(present)))
        _unlink(present, on_removed)
        for folder in lot.folders:
            _remove_if_empty(folder)
    for path, name in removal.renamed_cards:
        write_json(path, {**_card(path), "name": name})
    return _summed(gone)


def finished(removal: Removal) -> None:
    """Say that nothing of it is left anywhere, the warehouse included."""
    removal.marker.unlink(missing_ok=True)


def unfinished(paths: DataPaths) -> list[Target]:
    """The removals that were begun and not finished."""
    found = []
    dimensions: tuple[Dimension, ...] = ("benchmark", "model")
    for dimension in dimensions:
        for path in sorted(paths.removal(dimension, "any").parent.glob(f"{dimension}=*.json")):
            found.append(Target(dimension, unsegment(path.stem.removeprefix(f"{dimension}="))))
    return found


def kept_aside(paths: DataPaths) -> list[Path]:
    """Logs of somebody's read-write sessions on earlier warehouses; they may hold rows of anything."""
    return sorted(paths.warehouse.parent.glob(f"{paths.warehouse.name}.*.aside"))


def stat_of(path: Path) -> os.stat_result | None:
    """Size and time of a file; None where its writer has moved it into place meanwhile."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _of_benchmark(target: Target, paths: DataPaths) -> Removal:
    folders = _benchmark_folders(paths)
    texts: frozenset[str] = frozenset()
    kept = ["the documents of its sources, which are no benchmark's own"]
    caches: tuple[Path, ...] = ()
    if target.name in folders and paths.examples(target.name).exists():
        own, own_run = _texts(paths, target.name)
        others: set[str] = set()
        others_run: set[str] = set()
        for name in folders:
            if name != target.name and paths.examples(name).exists():
                as_they_are, as_run = _texts(paths, name)
                others |= as_they_are
                others_run |= as_run
        texts = frozenset(own_run - others_run)
        if shared := len(own & others):
            kept.append(f"token statistics of {shared} of its texts, which stand in other benchmarks too")
        caches = tuple(_cache_folders(paths))
        if strangers := _rows_of_no_benchmark(caches, own_run | others_run):
            kept.append(
                f"{strangers} cached rows of texts that stand in no benchmark (files that were scored, earlier builds)"
            )
    of_others, of_examples = _lineage_of(target, paths)
    lots = [
        *_tables_of(target, paths),
        _Lot.of("split_quality", [paths.split_quality(target.name).parent]),
        _Lot.of("blind_scores", [paths.blind_scores(target.name).parent]),
        _Lot.of(_LINEAGE, of_others),
        _Lot.of("examples and manifest", [paths.examples(target.name).parent]),
        _Lot.of(_LINEAGE, of_examples),
    ]
    return Removal(
        target,
        paths.removal(target.dimension, target.name),
        texts=texts,
        shared_caches=caches,
        lots=tuple(lots),
        kept=tuple(kept),
    )


def _of_model(target: Target, paths: DataPaths) -> Removal:
    by_name = _fingerprints(paths)
    own = by_name.pop(target.name, _Fingerprints())
    kept, renamed = [], []
    for fingerprint in sorted(own.models):
        if users := sorted(name for name, theirs in by_name.items() if fingerprint in theirs.models):
            kept.append(f"token statistics and card of {fingerprint}, which are those of {', '.join(users)} too")
            card = paths.model_card(fingerprint)
            if card.exists() and _card(card).get("name") == target.name:
                renamed.append((card, users[0]))
    models = own.models - {one for theirs in by_name.values() for one in theirs.models}
    tokenizers = own.tokenizers - {one for theirs in by_name.values() for one in theirs.tokenizers}
    weights = own.weights - {one for theirs in by_name.values() for one in theirs.weights}
    caches = tuple(folder for folder in _cache_folders(paths) if _fingerprint_of(folder, paths) in models)
    lots = [
        *_tables_of(target, paths),
        _Lot.of("converted tokenizers", (paths.kept_tokenizers(one) for one in sorted(tokenizers))),
        _Lot.of("converted weights", (converted_of(one, paths) for one in sorted(weights))),
        _Lot("checks at loading", tuple(path for one in sorted(models) if (path := paths.load_check(one)).exists())),
        _Lot("cards", tuple(path for one in sorted(models) if (path := paths.model_card(one)).exists())),
        _Lot.of(_LINEAGE, _lineage_of(target, paths)[0]),
    ]
    return Removal(
        target,
        paths.removal(target.dimension, target.name),
        cache_folders=caches,
        lots=tuple(lots),
        renamed_cards=tuple(renamed),
        kept=tuple(kept),
    )


def _tables_of(target: Target, paths: DataPaths) -> Iterator[_Lot]:
    for table in PAIR_TABLES:
        yield _Lot.of(table, (folder for folder, pair in _pair_folders(paths, table) if target.covers(pair)))


def _lineage_of(target: Target, paths: DataPaths) -> tuple[list[Path], list[Path]]:
    """The folders of lineage that explain its examples, last, and before them those of all that was made of them."""
    entries = _entries(paths)
    own = [entry for entry in entries if target == Target("benchmark", entry.partition)]
    of_pairs = [entry.folder for entry in entries if entry.pair is not None and target.covers(entry.pair)]
    of_splits = [entry.folder for entry in own if entry.table in _OF_SPLITS]
    return [*of_pairs, *of_splits], [entry.folder for entry in own if entry.table == "examples"]


def _fingerprints(paths: DataPaths) -> dict[str, _Fingerprints]:
    """The fingerprints that the lineage and the cards name, by model."""
    found: dict[str, _Fingerprints] = {}
    for entry in _entries(paths):
        if entry.pair is None:
            continue
        of_model = found.setdefault(entry.pair.model, _Fingerprints())
        for path in sorted(entry.folder.glob("*.parquet")):
            table = _column(path, "model_fingerprint", "tokenizer_fingerprint")
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
    return found


def _texts(paths: DataPaths, benchmark: str) -> tuple[set[str], set[str]]:
    """The digests of a benchmark's texts, and of all that a model is run on for them: in lower case, too."""
    texts = texts_read(_column(paths.examples(benchmark), "text", "context"))
    own = {text_sha256(text) for text in texts}
    return own, own | {text_sha256(text) for text in derived(texts)}


def _column(path: Path, *names: str) -> pa.Table:
    try:
        return read_parquet(path, names)
    except (pa.ArrowException, OSError) as error:
        raise DataError(_undecided(path, error)) from error


def _card(path: Path) -> dict[str, object]:
    try:
        card = read_json(path)
    except (OSError, ValueError) as error:
        raise DataError(_undecided(path, error)) from error
    if not isinstance(card, dict):
        raise DataError(_undecided(path, "not a JSON object"))
    return card


def _undecided(path: Path, reason: object) -> str:
    words = " ".join(str(reason).split())
    return f"{path} cannot be read, and it decides what may be removed ({words}): build it again, or move it away"


def _rows_of_no_benchmark(caches: Iterable[Path], texts: set[str]) -> int:
    """How many cached rows are of texts that no benchmark holds."""
    return sum(_row_count(folder) - weigh(folder, texts).rows for folder in caches)


def _row_count(folder: Path) -> int:
    return sum(_rows(part) for part in folder.glob("part-*.parquet"))


def _pair_folders(paths: DataPaths, table: str) -> Iterator[tuple[Path, Pair]]:
    for folder in sorted(paths.table(table).glob("partition=*")):
        pair = _pair(_partition_of(folder))
        if pair is not None:
            yield folder, pair


def _entries(paths: DataPaths) -> list[_Entry]:
    """The folders of lineage, those of documents left out."""
    found = []
    for folder in sorted(paths.table(_LINEAGE).glob("partition=*")):
        table, _, partition = _partition_of(folder).partition(":")
        if table != "documents":
            found.append(_Entry(folder, table, partition))
    return found


def _partition_of(folder: Path) -> str:
    return unsegment(folder.name.removeprefix("partition="))


def _pair(partition: str) -> Pair | None:
    benchmark, bar, model = partition.partition("|")
    return Pair(benchmark, model) if bar else None


def _benchmark_folders(paths: DataPaths) -> dict[str, Path]:
    folders = sorted(paths.examples("any").parent.parent.glob("benchmark=*"))
    return {unsegment(folder.name.removeprefix("benchmark=")): folder for folder in folders}


def _card_files(paths: DataPaths) -> list[Path]:
    return [path for path in sorted(paths.model_card("any").parent.glob("*.json")) if path != paths.digest_cache]


def _cache_folders(paths: DataPaths) -> list[Path]:
    """Every kind's folder of every model."""
    return sorted(path for path in paths.table("token_statistics").glob("kind=*/model=*") if path.is_dir())


def _fingerprint_of(folder: Path, paths: DataPaths) -> str:
    return folder.name.removeprefix(paths.token_statistics("any", "").name)


def _leftovers(folder: Path) -> list[Path]:
    """Parts that were set aside, and what killed writers left behind; not what a living one may be writing."""
    born_before = time.time() - DEAD_AFTER_SECONDS
    temporary = [
        path
        for path in folder.glob(".part-*.tmp")
        if (stat := stat_of(path)) is not None and stat.st_mtime < born_before
    ]
    return sorted([*folder.glob("part-*.unreadable"), *temporary])


def _weight_of_folder(folder: Path) -> Gone:
    files = _files(folder)
    return Gone(_CACHED, len(files), sum(map(_rows, files)), _bytes(files))


def _remove_cache(folder: Path, on_removed: Callable[[Path], None]) -> None:
    with no_compaction(folder):
        _unlink((path for path in _files(folder) if path.name != COMPACTION_LOCK), on_removed)
    _unlink([folder / COMPACTION_LOCK], on_removed)
    _remove_if_empty(folder)


def _files(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(path for path in folder.rglob("*") if path.is_file()))


def _unlink(files: Iterable[Path], on_removed: Callable[[Path], None]) -> None:
    for path in files:
        path.unlink(missing_ok=True)
        on_removed(path)


def _remove_if_empty(folder: Path) -> None:
    """Remove a folder unless somebody has put something into it meanwhile."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _bytes(files: Iterable[Path]) -> int:
    return sum(stat.st_size for path in files if (stat := stat_of(path)) is not None)


def _rows(path: Path) -> int:
    """The rows of a Parquet file; none in a damaged one, in one that was merged meanwhile, or in another file."""
    if path.suffix != ".parquet":
        return 0
    try:
        with open_parquet(path) as file:
            return int(file.metadata.num_rows)
    except (pa.ArrowException, FileNotFoundError):
        return 0


def _summed(found: Sequence[Gone]) -> list[Gone]:
    """One entry a sort, in order; sorts of which there is nothing are left out."""
    files, rows, size = Counter[str](), Counter[str](), Counter[str]()
    for one in found:
        files[one.what] += one.files
        rows[one.what] += one.rows
        size[one.what] += one.bytes
    return [Gone(what, files[what], rows[what], size[what]) for what in files if files[what] or rows[what]]
