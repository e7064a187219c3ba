"""The command `corpus-audit forget`: remove a benchmark or a model, with its partition and all that came of it.

Nothing is removed while an audit is at work or any run is unfinished that may write findings. The partition goes first:
from then on no run can be requested for it. What says what there is to remove goes last: the examples, which name the
texts, and the lines of the ledger, which name the fingerprints. Warehouse and report, which name all of it, go before
the lines. So the same command finishes a removal that was killed.
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
from audit_pipeline.scoring.needs.registry import list_derived_texts
from audit_pipeline.store.files import read_json, read_parquet, write_json
from audit_pipeline.store.ledger import erase_lines, read_ledger
from audit_pipeline.store.ledger_lines import Line
from audit_pipeline.store.ledger_records import Ledger
from audit_pipeline.store.paths import DataPaths, is_text_output_allowed
from audit_pipeline.store.store import iterate_partitions, list_cache_folders
from audit_pipeline.tables import DOCUMENTS, TABLES, Table, text_sha256
from audit_pipeline.token_statistics.cache import discard_rows

Dimension = Literal["benchmark", "model"]

_ABANDONED_SECONDS = 3600.0
"""No living process writes to a temporary file that is older."""


@dataclass(frozen=True)
class RemovalTarget:
    """A benchmark or a model, by the name of its partition."""

    dimension: Dimension
    name: str

    def __str__(self) -> str:
        return f"{self.dimension} {self.name}"


@dataclass
class Removal:
    """What goes with a name.

    ``files``: by what they hold, in the order in which they go. ``texts``: the digests of those whose rows go from
    every cache. ``lines``: the digests of the ledger's lines. ``renamed_cards``: cards of models that keep another
    name, by that name. ``kept``: in words, what stays although it has to do with the target.
    """

    target: RemovalTarget
    files: dict[str, list[Path]] = field(default_factory=lambda: defaultdict(list))
    texts: set[str] = field(default_factory=set)
    lines: set[str] = field(default_factory=set)
    renamed_cards: dict[Path, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)

    def measure(self) -> list[dict[str, Any]]:
        """What goes, how many files or lines that is, and their bytes; None where they are shared with others."""
        rows: list[dict[str, Any]] = [
            {"what": what, "files": len(files), "bytes": sum(file.stat().st_size for file in files if file.exists())}
            for what, files in self.files.items()
            if files
        ]
        if self.texts:
            rows.append({"what": f"token statistics of {len(self.texts)} texts", "files": None, "bytes": None})
        if self.lines:
            rows.append({"what": f"{len(self.lines)} lines of the ledger", "files": None, "bytes": None})
        return rows


def list_stored_names(dimension: Dimension, paths: DataPaths) -> set[str]:
    """The benchmarks, or models, of which anything is kept."""
    found = [_find_name(table, partition, dimension) for table, partition, _ in _iterate_folders(paths)]
    found += [_find_name_in_line(line, dimension) for line in read_ledger(paths).lines]
    cards = [str(card.get("name")) for card in _read_cards(paths).values()] if dimension == "model" else []
    return {name for name in [*found, *cards] if name is not None}


def find_removal(target: RemovalTarget, paths: DataPaths) -> Removal:
    """Find what goes with ``target``; raises DataError where a file that decides it cannot be read."""
    removal, ledger = Removal(target), read_ledger(paths)
    if target.dimension == "model":
        _add_model_files(removal, ledger, paths)
    else:
        _add_benchmark_texts(removal, paths)
    folders = [
        (table, folder)
        for table, partition, folder in _iterate_folders(paths)
        if _find_name(table, partition, target.dimension) == target.name
    ]
    for has_text in (False, True):
        for table, folder in folders:
            if bool(table.text_columns) == has_text:
                removal.files[table.name] += _list_files_below(folder)
    removal.lines = {line.digest for line in ledger.lines if _find_name_in_line(line, target.dimension) == target.name}
    if damaged := sum(line.fields is None for line in ledger.lines):
        removal.kept.append(f"{damaged} damaged lines of the ledger: what they name is not known")
    logs = sorted(paths.root.glob(f"{paths.warehouse.name}.*.aside"))
    removal.kept += [f"{log}, the log of a session that wrote to an earlier warehouse" for log in logs]
    return removal


def execute_removal(removal: Removal, paths: DataPaths) -> None:
    """Take all of it away, and warehouse and report, which are to be built again."""
    for folder in list_cache_folders(paths) if removal.texts else ():
        discard_rows(folder, removal.texts)
        _remove_files(_list_damaged_parts(folder), paths)
    for files in removal.files.values():
        _remove_files(files, paths)
    for card, name in removal.renamed_cards.items():
        write_json(card, {**read_json(card), "name": name})
    _remove_files([paths.warehouse, *_list_files_below(paths.reports)], paths)
    erase_lines(paths, removal.lines)


def _iterate_folders(paths: DataPaths) -> Iterator[tuple[Table, str, Path]]:
    """Every partition of every table with files of its own, and its folder; what is made of others comes first."""
    for table in reversed([*TABLES.values()]):
        if table.has_files:
            yield from ((table, partition, folder) for partition, folder in iterate_partitions(paths, table))


def _find_name(table: Table, partition: str, dimension: Dimension) -> str | None:
    """The benchmark, or model, that a partition is of; None where it is of none."""
    first, _, second = partition.partition("|")
    names = {
        "benchmark": {"benchmark": partition},
        "pair": {"benchmark": first, "model": second},
        "overlap": {"benchmark": first},
    }
    return names.get(table.partitioned_by, {}).get(dimension)


def _find_name_in_line(line: Line, dimension: Dimension) -> str | None:
    table = TABLES.get((line.fields or {}).get("table", ""))
    return _find_name(table, line.fields["partition"], dimension) if table is not None and line.fields else None


def _list_files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _remove_files(files: Iterable[Path], paths: DataPaths) -> None:
    """Remove files, and the folders that this leaves empty."""
    for file in files:
        file.unlink(missing_ok=True)
        folder = file.parent
        while folder != paths.root and folder.exists() and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent


def _list_damaged_parts(folder: Path) -> list[Path]:
    """Parts that were set aside, and what killed writers left: they may hold any text."""
    abandoned = time.time() - _ABANDONED_SECONDS
    temporary = [path for path in folder.glob(".part-*.tmp") if path.stat().st_mtime < abandoned]
    return [*folder.glob("part-*.unreadable"), *temporary]


def _add_benchmark_texts(removal: Removal, paths: DataPaths) -> None:
    """Find the texts that no other benchmark holds, and all that models are run on for them."""
    digests: dict[str, str] = {}
    for _, folder in iterate_partitions(paths, DOCUMENTS):
        for file in folder.glob("*.parquet"):
            rows = read_parquet(file, ["document_id", "sha256"])
            digests |= dict(zip(rows["document_id"].to_pylist(), rows["sha256"].to_pylist(), strict=True))
    own, of_others = set[str](), set[str]()
    for table, partition, folder in _iterate_folders(paths):
        name = _find_name(table, partition, "benchmark")
        if name is None or not table.text_columns:
            continue
        found = own if name == removal.target.name else of_others
        for file in folder.glob("*.parquet"):
            try:
                rows = read_parquet(file)
            except (OSError, ValueError) as error:
                raise DataError(
                    f"{file} cannot be read, and it decides what may be removed ({error}): build it again, or move it "
                    "away"
                ) from error
            texts = table.texts(rows)
            found.update(map(text_sha256, [*texts, *list_derived_texts(texts)]))
            if "document_id" in rows.column_names:
                # Whole documents may have been searched.
                found.update(digests[name] for name in rows["document_id"].to_pylist() if name in digests)
    removal.texts = own - of_others
    removal.kept.append("the documents of its sources, which are no benchmark's own")
    if shared := len(own & of_others):
        removal.kept.append(f"token statistics of {shared} of its texts, which other benchmarks hold too")


def _add_model_files(removal: Removal, ledger: Ledger, paths: DataPaths) -> None:
    """Find what is kept by the fingerprints of a model, where no other name has them."""
    name, cards = removal.target.name, _read_cards(paths)
    by_name = _group_fingerprints(ledger, cards)
    own = by_name.pop(name, set())
    shared = own & {fingerprint for others in by_name.values() for fingerprint in others}
    for kind, fingerprint in sorted(own - shared):
        for what, places in _list_places(kind, fingerprint, paths).items():
            for place in places:
                removal.files[what] += _list_files_below(place) if place.is_dir() else [place] if place.exists() else []
    # They name the other fingerprints, and so they go last.
    removal.files["cards"] = removal.files.pop("cards", [])
    for kind, fingerprint in sorted(shared):
        if kind == "model":
            users = sorted(other for other, theirs in by_name.items() if (kind, fingerprint) in theirs)
            removal.kept.append(
                f"token statistics and card of {fingerprint}, which are those of {', '.join(users)} too"
            )
            card = paths.model_card(fingerprint)
            if cards.get(card, {}).get("name") == name:
                removal.renamed_cards[card] = users[0]


def _list_places(kind: str, fingerprint: str, paths: DataPaths) -> Mapping[str, list[Path]]:
    """The files and folders that are kept by a fingerprint of this kind."""
    if kind == "tokenizer":
        return {"converted tokenizers": [paths.kept_tokenizers(fingerprint)]}
    if kind == "weights":
        return {"converted weights": [conversion_folder(fingerprint, paths)]}
    if kind == "endpoint":
        return {"probes of endpoints": [paths.endpoint(fingerprint)]}
    suffix = paths.token_statistics("any", fingerprint).name
    caches = [folder for folder in list_cache_folders(paths) if folder.name == suffix]
    return {
        "token statistics": caches,
        "checks at loading": paths.load_checks(fingerprint),
        "cards": [paths.model_card(fingerprint)],
    }


def _group_fingerprints(ledger: Ledger, cards: Mapping[Path, Mapping[str, Any]]) -> dict[str, set[tuple[str, str]]]:
    """The fingerprints that the ledger and the cards name, each with its kind, by model."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for entry in ledger.entries:
        table = TABLES.get(entry.table)
        if table is not None and (name := _find_name(table, entry.partition, "model")) is not None:
            named = {"model": entry.model_fingerprint, "tokenizer": entry.tokenizer_fingerprint}
            found[name] |= {(kind, value) for kind, value in named.items() if value}
    keys = {"tokenizer": "tokenizer_fingerprint", "weights": "weights_digest", "endpoint": "endpoint"}
    for path, card in cards.items():
        named = {"model": path.stem, **{kind: card.get(key) for kind, key in keys.items()}}
        found[str(card.get("name"))] |= {(kind, str(value)) for kind, value in named.items() if value}
    return found


def _read_cards(paths: DataPaths) -> dict[Path, Mapping[str, Any]]:
    """The cards of all models, by path; raises DataError where one cannot be read."""
    found: dict[Path, Mapping[str, Any]] = {}
    for path in sorted(paths.model_card("any").parent.glob("*.json")):
        if path != paths.digest_cache:
            try:
                found[path] = dict(read_json(path))
            except (OSError, ValueError, TypeError) as error:
                raise DataError(
                    f"{path} cannot be read, and it decides what may be removed ({error}): move it away; the next "
                    "audit of its model writes it anew"
                ) from error
    return found


_FETCHING_JOB = "refresh_sources"
_UNFINISHED_BACKFILLS = {"REQUESTED", "CANCELING", "FAILING"}
_NAMED_RUNS = 3


@dataclass(frozen=True)
class Forgotten:
    """What went, or in a dry run would go, and what stays.

    ``had_partition``: whether Dagster knew it. ``configured``: whether the configuration still names it, None where
    that cannot be read.
    """

    target: RemovalTarget
    gone: Sequence[dict[str, Any]]
    kept: Sequence[str]
    had_partition: bool
    configured: bool | None
    dead_runs: Sequence[str] = ()


def plan_to_forget(named_target: RemovalTarget, paths: DataPaths) -> Forgotten:
    """Find what forgetting would remove; nothing is changed, no Dagster home is made.

    Raises AuditError for an unknown name.
    """
    partitions: Sequence[str] = ()
    home = dagster_home(paths)
    if (home / "dagster.yaml").exists():
        with open_existing_instance(home) as instance:
            partitions = instance.get_dynamic_partitions(named_target.dimension)
    return _describe_removal(find_removal(_resolve_target(named_target, partitions, paths), paths), partitions)


def forget(
    named_target: RemovalTarget, definitions: dg.Definitions, paths: DataPaths, on_step: Callable[[str], None]
) -> Forgotten:
    """Remove ``named_target``, then build warehouse and report again.

    Raises AuditError for an unknown name and, with everything as it was, while an audit is at work.
    """
    with hold_removal_lock(paths), open_instance(paths) as instance:
        dead_runs = mark_dead_runs_failed(instance, paths)
        partitions = instance.get_dynamic_partitions(named_target.dimension)
        target = _resolve_target(named_target, partitions, paths)
        _refuse_while_unfinished(target, instance)
        removal = find_removal(target, paths)
        forgotten = _describe_removal(removal, partitions, dead_runs)
        instance.delete_dynamic_partition(target.dimension, target.name)
        try:
            _refuse_while_unfinished(target, instance)
        except AuditError:
            # A run was requested just before the partition went.
            instance.add_dynamic_partitions(target.dimension, [target.name] if target.name in partitions else [])
            raise
        on_step(f"removing {target}")
        execute_removal(removal, paths)
        on_step("rebuilding warehouse and report")
        publish(definitions, paths, on_step, include_text=is_text_output_allowed())
        return forgotten


def _describe_removal(removal: Removal, partitions: Sequence[str], dead_runs: Sequence[str] = ()) -> Forgotten:
    target, entries = removal.target, _load_entries(removal.target)
    configured = None if entries is None else target.name in entries or entries.is_broken(target.name)
    return Forgotten(target, removal.measure(), removal.kept, target.name in partitions, configured, dead_runs)


def find_unfinished_runs(instance: dg.DagsterInstance) -> list[str]:
    """The unfinished runs and backfills that may read or write findings, in words: all but fetches of documents."""
    runs = [
        f"run {run.run_id} ({run.job_name}, {run.status.value.lower()})"
        for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED))
        if run.job_name != _FETCHING_JOB
    ]
    backfills = [
        f"backfill {backfill.backfill_id} ({backfill.status.value.lower()})"
        for backfill in instance.get_backfills()
        if backfill.status.value in _UNFINISHED_BACKFILLS
    ]
    return [*runs, *backfills]


def _refuse_while_unfinished(target: RemovalTarget, instance: dg.DagsterInstance) -> None:
    if runs := find_unfinished_runs(instance):
        more = f" and {len(runs) - _NAMED_RUNS} more" if len(runs) > _NAMED_RUNS else ""
        raise AuditError(
            f"{target} cannot be forgotten while an audit is unfinished: {', '.join(runs[:_NAMED_RUNS])}{more}. "
            "Wait for it or end it, then forget again; nothing was removed"
        )


def _resolve_target(named_target: RemovalTarget, partitions: Sequence[str], paths: DataPaths) -> RemovalTarget:
    """Return ``named_target`` by the name of its partition.

    A model may be given by a path that leads to it, the only benchmark of a family by the family's name.
    """
    dimension, name = named_target.dimension, named_target.name
    configured = _load_entries(named_target)
    in_entries = configured.names if configured is not None else ()
    known = sorted({*partitions, *list_stored_names(dimension, paths), *in_entries})
    if name in known:
        return named_target
    if dimension == "model" and (path := str(Path(name).expanduser().resolve())) in known:
        return RemovalTarget("model", path)
    if dimension == "benchmark" and list_family_partitions(name, known):
        return RemovalTarget("benchmark", resolve_partition(name, known))
    raise DataError(
        f"there is no {dimension} '{name}': not in config/{dimension}s.yaml, not among Dagster's partitions, and "
        f"nothing of it under {paths.root}; {did_you_mean(name, known)}"
    )


def _load_entries(target: RemovalTarget) -> Entries[Any] | None:
    try:
        return load_benchmarks() if target.dimension == "benchmark" else load_models()
    except ConfigError:
        return None
