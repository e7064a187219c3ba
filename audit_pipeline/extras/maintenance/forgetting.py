"""The removal of a benchmark or a model with all derived data, for the command `corpus-audit forget`.

Nothing is removed while an audit is running, or while an unfinished run may write findings. The removal has five steps:

1. Delete the Dagster partition, so that no run can be requested for it.
2. Delete cached token statistics of texts that no other benchmark has.
3. Delete files. Files with texts come last.
4. Delete warehouse and report, and erase the content of the target's lines in the ledger.
5. Rebuild warehouse and report.

The files with texts and the ledger determine what is removed, so they are the last to change. Therefore the same
command finishes a removal that was killed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import dagster as dg

from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.config.entries import Entries
from audit_pipeline.config.problems import did_you_mean, list_family_partitions, resolve_partition
from audit_pipeline.errors import AuditError, ConfigError, DataError
from audit_pipeline.extras.maintenance.rendered_conversations import render_conversations
from audit_pipeline.models.config import load_models
from audit_pipeline.models.converted_files import conversion_folder
from audit_pipeline.pipeline.dagster.audit import publish
from audit_pipeline.pipeline.dagster.instance import (
    UNFINISHED,
    dagster_home,
    mark_dead_runs_failed,
    open_existing_instance,
    open_instance,
)
from audit_pipeline.pipeline.dagster.locks import hold_removal_lock
from audit_pipeline.scoring.needs.provider import list_derived_texts
from audit_pipeline.store.files import read_json, read_parquet, write_json
from audit_pipeline.store.ledger import erase_lines, read_ledger
from audit_pipeline.store.ledger_records import Ledger, Line
from audit_pipeline.store.paths import DataPaths, is_text_output_allowed
from audit_pipeline.store.store import iterate_partitions, list_cache_folders
from audit_pipeline.tables import DOCUMENTS, TABLES, Table, text_sha256
from audit_pipeline.token_statistics.cache import discard_rows

Dimension = Literal["benchmark", "model"]

# An older temporary file was left by a killed process, because no process writes to a file for so long.
_MAX_WRITE_SECONDS = 3600.0
# This job fetches documents and writes no findings, so it may run during a removal.
_FETCHING_JOB = "refresh_sources"
_UNFINISHED_BACKFILLS = {"REQUESTED", "CANCELING", "FAILING"}
_MAX_QUOTED_RUNS = 3


@dataclass(frozen=True)
class RemovalTarget:
    """A benchmark or a model to remove.

    Attributes:
        dimension: The partition dimension.
        name: The name of the partition.
    """

    dimension: Dimension
    name: str

    def __str__(self) -> str:
        return f"{self.dimension} {self.name}"


@dataclass
class Removal:
    """The data to remove for a benchmark or a model, and a description of the data that stay.

    Attributes:
        target: The benchmark or the model.
        files: Files by kind, in the order of their deletion.
        texts: Digests of the texts whose rows are deleted from all caches.
        lines: Digests of the ledger's lines whose content is erased.
        renamed_cards: Paths of cards (JSON files about models) that another model uses, too, with that model's name.
            The name in the card is replaced by it.
        retained_data: Descriptions of related data that stay.
        had_partition: The target had a Dagster partition.
        configured: The configuration contains the target. None if the configuration is unreadable.
        dead_runs: Identifiers of dead runs that were marked as failed.
    """

    target: RemovalTarget
    files: dict[str, list[Path]] = field(default_factory=lambda: defaultdict(list))
    texts: set[str] = field(default_factory=set)
    lines: set[str] = field(default_factory=set)
    renamed_cards: dict[Path, str] = field(default_factory=dict)
    retained_data: list[str] = field(default_factory=list)
    had_partition: bool = False
    configured: bool | None = None
    dead_runs: Sequence[str] = ()

    def list_removed_kinds(self) -> list[dict[str, Any]]:
        """Return one row per kind of removed data with its number of files.

        The number is None if the data are parts of files that also contain other data.
        """
        rows: list[dict[str, Any]] = []
        for kind, files in self.files.items():
            if files:
                rows.append({"what": kind, "files": len(files)})
        if self.texts:
            rows.append({"what": f"token statistics of {len(self.texts)} texts", "files": None})
        if self.lines:
            rows.append({"what": f"{len(self.lines)} lines of the ledger", "files": None})
        return rows


def plan_removal(named_target: RemovalTarget, paths: DataPaths) -> Removal:
    """Return the data that :func:`forget` would remove. Nothing changes, and no Dagster home is created.

    Raises:
        AuditError: If the name is unknown, or a file that determines the removal is unreadable.
    """
    partitions: Sequence[str] = ()
    home = dagster_home(paths)
    if (home / "dagster.yaml").exists():
        with open_existing_instance(home) as instance:
            partitions = instance.get_dynamic_partitions(named_target.dimension)
    return _find_named_removal(named_target, partitions, paths)


def forget(
    named_target: RemovalTarget, definitions: dg.Definitions, paths: DataPaths, on_step: Callable[[str], None]
) -> Removal:
    """Remove a benchmark or a model with all derived data, and rebuild warehouse and report.

    Args:
        named_target: The target, by a name that the user may have abbreviated.
        definitions: The Dagster definitions, for the rebuild.
        paths: The data folder.
        on_step: Receives a description of each step.

    Raises:
        AuditError: If the name is unknown, an audit is unfinished, or a file that determines the removal is unreadable.
            Nothing is removed.
    """
    with hold_removal_lock(paths), open_instance(paths) as instance:
        dead_runs = mark_dead_runs_failed(instance, paths)
        partitions = instance.get_dynamic_partitions(named_target.dimension)
        removal = _find_named_removal(named_target, partitions, paths)
        removal.dead_runs = dead_runs
        target = removal.target
        _require_finished_runs(target, instance)
        instance.delete_dynamic_partition(target.dimension, target.name)
        try:
            # A run may have been requested just before the partition was deleted.
            _require_finished_runs(target, instance)
        except AuditError:
            if removal.had_partition:
                instance.add_dynamic_partitions(target.dimension, [target.name])
            raise
        on_step(f"removing {target}")
        execute_removal(removal, paths)
        on_step("rebuilding warehouse and report")
        publish(definitions, paths, on_step, include_text=is_text_output_allowed())
        return removal


def _find_named_removal(named_target: RemovalTarget, partitions: Sequence[str], paths: DataPaths) -> Removal:
    target = _resolve_target(named_target, partitions, paths)
    removal = find_removal(target, paths)
    removal.had_partition = target.name in partitions
    entries = _load_entries(target)
    if entries is not None:
        removal.configured = target.name in entries or entries.is_broken(target.name)
    return removal


def describe_unfinished_runs(instance: dg.DagsterInstance) -> list[str]:
    """Return descriptions of the unfinished runs and backfills that may read or write findings."""
    descriptions: list[str] = []
    for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)):
        if run.job_name != _FETCHING_JOB:
            descriptions.append(f"run {run.run_id} ({run.job_name}, {run.status.value.lower()})")
    for backfill in instance.get_backfills():
        if backfill.status.value in _UNFINISHED_BACKFILLS:
            descriptions.append(f"backfill {backfill.backfill_id} ({backfill.status.value.lower()})")
    return descriptions


def _require_finished_runs(target: RemovalTarget, instance: dg.DagsterInstance) -> None:
    runs = describe_unfinished_runs(instance)
    if not runs:
        return
    listing = ", ".join(runs[:_MAX_QUOTED_RUNS])
    if len(runs) > _MAX_QUOTED_RUNS:
        listing += f" and {len(runs) - _MAX_QUOTED_RUNS} more"
    raise AuditError(
        f"The {target} cannot be removed while an audit is unfinished: {listing}. Wait until these runs end, or cancel "
        "them in the Dagster UI. Then repeat the command. Nothing was removed."
    )


def _resolve_target(named_target: RemovalTarget, partitions: Sequence[str], paths: DataPaths) -> RemovalTarget:
    """Return the target with the name of its partition.

    A model may be named by a relative path. A benchmark may be named by its family if the family has no other
    benchmark.

    Raises:
        DataError: If no data, no partition and no entry has the name.
    """
    dimension = named_target.dimension
    name = named_target.name
    known_names = list_stored_names(dimension, paths) | set(partitions)
    entries = _load_entries(named_target)
    if entries is not None:
        known_names |= set(entries.names)
    known = sorted(known_names)
    if name in known:
        return named_target
    path = str(Path(name).expanduser().resolve())
    if dimension == "model" and path in known:
        return RemovalTarget("model", path)
    if dimension == "benchmark" and list_family_partitions(name, known):
        return RemovalTarget("benchmark", resolve_partition(name, known))
    raise DataError(
        f"Unknown {dimension} '{name}': config/{dimension}s.yaml, Dagster's partitions and {paths.root} do not contain "
        f"it; {did_you_mean(name, known)}"
    )


def _load_entries(target: RemovalTarget) -> Entries[Any] | None:
    try:
        return load_benchmarks() if target.dimension == "benchmark" else load_models()
    except ConfigError:
        return None


def list_stored_names(dimension: Dimension, paths: DataPaths) -> set[str]:
    """Return the names of the benchmarks or models that the data folder contains data of."""
    names = {_find_partition_owner(table, partition, dimension) for table, partition, _ in _iterate_folders(paths)}
    names |= {_find_line_owner(line, dimension) for line in read_ledger(paths).lines}
    if dimension == "model":
        names |= {str(card.get("name")) for card in _read_cards(paths).values()}
    return {name for name in names if name is not None}


def find_removal(target: RemovalTarget, paths: DataPaths) -> Removal:
    """Return the data to remove for a benchmark or a model.

    Raises:
        DataError: If a file that determines the removal is unreadable.
    """
    removal = Removal(target)
    ledger = read_ledger(paths)
    if target.dimension == "model":
        _add_model_files(removal, ledger, paths)
    else:
        _add_benchmark_texts(removal, ledger, paths)
    folders = [
        (table, folder)
        for table, partition, folder in _iterate_folders(paths)
        if _find_partition_owner(table, partition, target.dimension) == target.name
    ]
    # Files with texts are deleted last. A repeated command needs them to find the cached rows.
    for table, folder in sorted(folders, key=lambda pair: bool(pair[0].text_columns)):
        removal.files[table.name] += _list_files_below(folder)
    removal.lines = {line.digest for line in ledger.lines if _find_line_owner(line, target.dimension) == target.name}
    n_damaged = sum(line.fields is None for line in ledger.lines)
    if n_damaged:
        removal.retained_data.append(f"{n_damaged} corrupt lines of the ledger, whose content is unknown")
    for log in sorted(paths.root.glob(f"{paths.warehouse.name}.*.aside")):
        removal.retained_data.append(f"{log}, the log of a session that wrote to an earlier warehouse")
    return removal


def execute_removal(removal: Removal, paths: DataPaths) -> None:
    """Delete the data, the warehouse and the report, and erase lines of the ledger.

    The caller must rebuild warehouse and report.
    """
    if removal.texts:
        for folder in list_cache_folders(paths):
            discard_rows(folder, removal.texts)
            _remove_files(_list_damaged_parts(folder), paths)
    for files in removal.files.values():
        _remove_files(files, paths)
    for card, name in removal.renamed_cards.items():
        write_json(card, {**read_json(card), "name": name})
    _remove_files([paths.warehouse, *_list_files_below(paths.reports)], paths)
    erase_lines(paths, removal.lines)


def _iterate_folders(paths: DataPaths) -> Iterator[tuple[Table, str, Path]]:
    """Yield table, partition and folder of all stored partitions. Derived tables precede their sources."""
    for table in reversed([*TABLES.values()]):
        if table.has_files:
            for partition, folder in iterate_partitions(paths, table):
                yield table, partition, folder


def _find_partition_owner(table: Table, partition: str, dimension: Dimension) -> str | None:
    """Return the benchmark or the model of a partition, or None if the partition belongs to none."""
    first_key, _, second_key = partition.partition("|")
    names = {
        "benchmark": {"benchmark": partition},
        "pair": {"benchmark": first_key, "model": second_key},
        "overlap": {"benchmark": first_key},
    }
    return names.get(table.partitioned_by, {}).get(dimension)


def _find_line_owner(line: Line, dimension: Dimension) -> str | None:
    if not line.fields:
        return None
    table = TABLES.get(line.fields.get("table", ""))
    if table is None:
        return None
    return _find_partition_owner(table, line.fields["partition"], dimension)


def _list_files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _remove_files(files: Iterable[Path], paths: DataPaths) -> None:
    """Delete files, and the folders that become empty."""
    for file in files:
        file.unlink(missing_ok=True)
        folder = file.parent
        while folder != paths.root and folder.exists() and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent


def _list_damaged_parts(folder: Path) -> list[Path]:
    """Return damaged parts of the cache, and temporary files of killed processes. They may contain rows of any text."""
    parts = list(folder.glob("part-*.unreadable"))
    for path in folder.glob(".part-*.tmp"):
        if path.stat().st_mtime < time.time() - _MAX_WRITE_SECONDS:
            parts.append(path)
    return parts


def _add_benchmark_texts(removal: Removal, ledger: Ledger, paths: DataPaths) -> None:
    """Add to the removal the texts that no other benchmark has, and the texts that detectors derive from them."""
    document_digests: dict[str, str] = {}
    for _, folder in iterate_partitions(paths, DOCUMENTS):
        for file in folder.glob("*.parquet"):
            rows = read_parquet(file, ["document_id", "sha256"])
            document_digests.update(zip(rows["document_id"].to_pylist(), rows["sha256"].to_pylist(), strict=True))
    target_texts: set[str] = set()
    other_texts: set[str] = set()
    for table, partition, folder in _iterate_folders(paths):
        benchmark = _find_partition_owner(table, partition, "benchmark")
        if benchmark is None or not table.text_columns:
            continue
        digests = target_texts if benchmark == removal.target.name else other_texts
        for file in folder.glob("*.parquet"):
            digests |= _read_text_digests(table, file, document_digests)
    removal.texts = target_texts - other_texts
    known_models = {str(card["name"]) for card in _read_cards(paths).values() if card.get("name")}
    rendered = render_conversations(removal.target.name, known_models, ledger, paths)
    removal.texts |= rendered.digests
    removal.retained_data += rendered.problems
    removal.retained_data.append("the documents of the benchmark's sources, because other benchmarks may use them")
    n_shared = len(target_texts & other_texts)
    if n_shared:
        removal.retained_data.append(
            f"token statistics of {n_shared} of the benchmark's texts, because other benchmarks also contain these "
            "texts"
        )


def _read_text_digests(table: Table, file: Path, document_digests: Mapping[str, str]) -> set[str]:
    """Return the digests of a table file's texts and documents, and of the texts that detectors derive from them."""
    try:
        rows = read_parquet(file)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{file} is unreadable ({error}), but determines which data are removed. Build or audit the benchmark "
            "again, or move the file to another folder. Nothing was removed."
        ) from error
    texts = table.texts(rows)
    digests = set(map(text_sha256, [*texts, *list_derived_texts(texts)]))
    if "document_id" in rows.column_names:
        # A search for passages may have cached rows of whole documents.
        document_ids = rows["document_id"].to_pylist()
        digests |= {document_digests[name] for name in document_ids if name in document_digests}
    return digests


def _add_model_files(removal: Removal, ledger: Ledger, paths: DataPaths) -> None:
    """Add to the removal the files that are stored under fingerprints that only the model to remove has."""
    name = removal.target.name
    cards = _read_cards(paths)
    other_models = _group_fingerprints(ledger, cards)
    fingerprints = other_models.pop(name, set())
    shared = fingerprints & {fingerprint for others in other_models.values() for fingerprint in others}
    for kind, fingerprint in sorted(fingerprints - shared):
        for what, stored in _list_stored_paths(kind, fingerprint, paths).items():
            for path in stored:
                if path.is_dir():
                    removal.files[what] += _list_files_below(path)
                elif path.exists():
                    removal.files[what].append(path)
    # Only the cards contain the fingerprints of weights and endpoints. They are deleted last, so that the command still
    # finds these fingerprints when it is repeated after an interruption.
    removal.files["cards"] = removal.files.pop("cards", [])
    for kind, fingerprint in sorted(shared):
        if kind != "model":
            continue
        users = sorted(other for other, theirs in other_models.items() if (kind, fingerprint) in theirs)
        removal.retained_data.append(
            f"token statistics and card of the fingerprint {fingerprint}, because it is also the fingerprint of "
            f"{', '.join(users)}"
        )
        card = paths.model_card(fingerprint)
        if cards.get(card, {}).get("name") == name:
            removal.renamed_cards[card] = users[0]


def _list_stored_paths(kind: str, fingerprint: str, paths: DataPaths) -> Mapping[str, list[Path]]:
    """Return the files and folders that are stored under a fingerprint, by a description of their content."""
    if kind == "tokenizer":
        return {"converted tokenizers": [paths.stored_tokenizers(fingerprint)]}
    if kind == "weights":
        return {"converted weights": [conversion_folder(fingerprint, paths)]}
    if kind == "endpoint":
        return {"probes of endpoints": [paths.endpoint(fingerprint)]}
    suffix = paths.token_statistics("any", fingerprint).name
    return {
        "token statistics": [folder for folder in list_cache_folders(paths) if folder.name == suffix],
        "checks at loading": paths.load_checks(fingerprint),
        "cards": [paths.model_card(fingerprint)],
    }


def _group_fingerprints(ledger: Ledger, cards: Mapping[Path, Mapping[str, Any]]) -> dict[str, set[tuple[str, str]]]:
    """Return the kind and the value of each fingerprint in the ledger and the cards, by model."""
    fingerprints: dict[str, set[tuple[str, str]]] = defaultdict(set)

    def add(model: str, kind: str, fingerprint: object) -> None:
        if fingerprint:
            fingerprints[model].add((kind, str(fingerprint)))

    for entry in ledger.entries:
        table = TABLES.get(entry.table)
        model = _find_partition_owner(table, entry.partition, "model") if table is not None else None
        if model is not None:
            add(model, "model", entry.model_fingerprint)
            add(model, "tokenizer", entry.tokenizer_fingerprint)
    for path, card in cards.items():
        model = str(card.get("name"))
        add(model, "model", path.stem)
        add(model, "tokenizer", card.get("tokenizer_fingerprint"))
        add(model, "weights", card.get("weights_digest"))
        add(model, "endpoint", card.get("endpoint"))
    return fingerprints


def _read_cards(paths: DataPaths) -> dict[Path, Mapping[str, Any]]:
    """Return the cards of all models (JSON files with their fingerprints) by path.

    Raises:
        DataError: If a card is unreadable.
    """
    cards: dict[Path, Mapping[str, Any]] = {}
    for path in sorted(paths.model_card("any").parent.glob("*.json")):
        if path == paths.digest_cache:
            continue
        try:
            cards[path] = dict(read_json(path))
        except (OSError, ValueError, TypeError) as error:
            raise DataError(
                f"The model card {path} is unreadable ({error}), but the cards determine which data are removed. Move "
                "the card to another folder. The next audit of its model writes the card again. Nothing was removed."
            ) from error
    return cards
