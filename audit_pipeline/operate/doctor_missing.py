"""The doctor's look for what is recorded and not there, each with the command that makes it again.

What belongs here: reading every record that names a product (lineage entries, what they say they were made of, the
other tables of a run, the warehouse's list of loaded files, manifests, scores beside the cache) and comparing it with
the data folder. What does not: damage in what is there (operate/doctor.py), making anything again.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, read_built
from audit_pipeline.catalogue import store
from audit_pipeline.catalogue.contracts import (
    LOADED_FILES,
    SCORES,
    TABLES,
    TOKEN_STATISTICS,
    Pair,
    build_model_inputs,
    text_sha256,
)
from audit_pipeline.catalogue.files import read_parquet
from audit_pipeline.catalogue.lineage import (
    LineageEntry,
    MissingFile,
    file_of,
    find_missing_files,
    pair_entries_with_files,
)
from audit_pipeline.catalogue.paths import DataPaths, name_from_path_segment
from audit_pipeline.errors import AuditError
from audit_pipeline.evidence.evaluate_options import build_evaluate_command
from audit_pipeline.models.config import load_models
from audit_pipeline.models.tokenized_model import TokenizedModel, is_tokenizer_kept, load_tokenizer
from audit_pipeline.operate.doctor_checks import DoctorCheck, Ending, HowEnded, Look, abbreviate_names
from audit_pipeline.operate.removal import list_unfinished_removals
from audit_pipeline.operate.stages.scores import SCORES_VERSION, statistics_version
from audit_pipeline.scoring.session import build_audit_session
from audit_pipeline.token_statistics.cache import list_parts
from audit_pipeline.warehouse.query import open_read_only


@dataclass(frozen=True)
class _MissingProduct:
    """A product that a record names and that is not there: the partition of a table that it belongs to, and who says
    that it was there."""

    table: str
    partition: str
    path: Path
    record: str


def examine_missing(
    paths: DataPaths,
    entries: Sequence[LineageEntry],
    how_ended: HowEnded,
    on_check: Look,
    *,
    deep: bool,
) -> Iterator[DoctorCheck]:
    """Whatever a record names and is not there; with ``deep`` every text's cached statistics, too.

    While a removal is half done, nothing is missed: it is named itself.
    """
    if list_unfinished_removals(paths):
        return
    records = _Records(entries)
    files = find_missing_files(pair_entries_with_files(entries, paths), Path.exists)
    by_words: dict[tuple[bool, str], list[Path]] = {}
    for missing in files:
        said = _explain_missing_file(missing, how_ended(missing.entry.run_id), records)
        if said is not None:
            by_words.setdefault(said, []).append(missing.path)
    for (ok, words), gone_files in by_words.items():
        yield DoctorCheck("lineage without files", ok, f"{abbreviate_names(gone_files)}: {words}")
    known = {(missing.path, missing.entry.table, missing.entry.partition) for missing in files}
    looks = [
        _find_missing_inputs(records, paths),
        _find_missing_last_tables(records, how_ended, paths),
        _find_missing_loaded_files(paths),
        _find_missing_cards(records, paths),
        _find_missing_published_files(paths),
        *([_find_missing_statistics(records, paths, on_check)] if deep else []),
    ]
    for gone in (gone for found in looks for gone in found):
        if (of := (gone.path, gone.table, gone.partition)) not in known:
            known.add(of)
            again = "corpus-audit report" if not gone.table else records.command(gone.table, gone.partition)
            yield DoctorCheck("missing", ok=False, words=f"{gone.path}: {gone.record}; make it again: {again}")


class _Records:
    """The lineage, looked up by what it says of a partition."""

    def __init__(self, entries: Iterable[LineageEntry]) -> None:
        self.versions: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.current: dict[tuple[str, str], LineageEntry] = {}
        self.steps: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(dict)
        for entry in sorted(entries, key=lambda entry: (entry.finished_at, entry.run_id)):
            of = entry.table, entry.partition
            self.versions[of].add(entry.data_version)
            self.current[of] = entry
            runs = self.steps[entry.asset_key, entry.partition]
            # The run that wrote last comes last.
            runs[entry.run_id] = runs.pop(entry.run_id, set()) | {entry.table}

    @cached_property
    def users(self) -> Mapping[tuple[str, str], list[LineageEntry]]:
        """The entries that count now by the partitions that they were made of, those of pairs first."""
        found: dict[tuple[str, str], list[LineageEntry]] = defaultdict(list)
        for entry in sorted(self.current.values(), key=lambda entry: "|" not in entry.partition):
            for name in entry.upstream:
                table, _, partition = name.partition("/")
                found[table, partition].append(entry)
        return found

    def command(self, table: str, partition: str) -> str:
        """What is typed to make a partition of a table again: what made it, or what makes it where it needs it."""
        if table not in TABLES:
            return "run again what made it, with the version of corpus-audit that knows it"
        per = TABLES[table].per
        if per in ("control", "study"):
            return shlex.join(["corpus-audit", per, partition])
        if per == "pair":
            return self._command_of_pair(table, partition)
        if per == "overlap":
            benchmark, _, corpus = partition.partition("|")
            return shlex.join(["corpus-audit", "overlap", "--benchmark", benchmark, "--corpus", corpus])
        pair = self._pair_made_of(table, partition)
        if pair is not None:
            return self._command_of_pair(SCORES.name, pair).removesuffix(" --again")
        made_of_it = (entry for entry in self.users[table, partition] if entry.table in TABLES)
        others = [self.command(entry.table, entry.partition) for entry in made_of_it if per == "source"]
        if per == "benchmark":
            others.append(shlex.join(["corpus-audit", "audit", "--model", "MODEL", "--benchmark", partition]))
        return others[0] if others else "the next audit that needs it does so"

    def _pair_made_of(self, table: str, partition: str) -> str | None:
        """A pair whose rows rest on the partition, be it through other tables."""
        seen, left = set[tuple[str, str]](), [(table, partition)]
        for of in left:
            for entry in self.users[of]:
                if entry.table in TABLES and TABLES[entry.table].per == "pair":
                    return entry.partition
                if (entry.table, entry.partition) not in seen:
                    seen.add((entry.table, entry.partition))
                    left.append((entry.table, entry.partition))
        return None

    def _command_of_pair(self, table: str, partition: str) -> str:
        pair = Pair(*partition.split("|", 1))
        of_both = ["--model", pair.model, "--benchmark", pair.benchmark]
        entry, scores = (self.current.get((name, partition)) for name in (table, SCORES.name))
        if entry is not None and entry.asset_key == "extraction":
            asked = [word for name, value in entry.options.items() for word in (f"--{name}", str(value))]
            return shlex.join(["corpus-audit", "extract", *of_both, *asked])
        if entry is not None and entry.asset_key == "unlearning":
            before = ["--before", "MODEL", "--after", pair.model, "--forget", pair.benchmark]
            return shlex.join(["corpus-audit", "compare", *before])
        if entry is not None and entry.asset_key == "corpus_test":
            return f"corpus-audit test, with {pair.model} on {pair.benchmark}"
        if scores is not None and scores.options:
            return shlex.join(build_evaluate_command(scores.options))
        return shlex.join(["corpus-audit", "audit", *of_both, "--again"])


def _explain_missing_file(
    missing_file: MissingFile, ending: Ending | None, records: _Records
) -> tuple[bool, str] | None:
    """Whether it is as it may be that a file is not there, and what became of it; None while it is being written.

    A run writes the entry first. So it may have died between the two: then it left no later entry, and either its
    temporary file lies there, or Dagster knows that it did not end well. Else the file was deleted.
    """
    entry = missing_file.entry
    if ending == "not yet":
        return None
    if missing_file.superseded:
        return True, "deleted: history is lost; what counts now, of a later run, is there"
    has_died = ending == "badly" or any(missing_file.path.parent.glob(f".{missing_file.path.name}.*.tmp"))
    is_used = bool(records.users[entry.table, entry.partition])
    if has_died and not missing_file.run_went_on and not is_used:
        return True, "never written: the run died behind its lineage entry, and it is made by the next one"
    became = "deleted since its run wrote it"
    if not (is_used or missing_file.run_went_on or ending == "well"):
        became = "deleted, or never written because the run died (how it ended was not recorded)"
    return False, f"{became}; make it again: {records.command(entry.table, entry.partition)}"


def _find_missing_inputs(records: _Records, paths: DataPaths) -> Iterator[_MissingProduct]:
    """What entries that count now say that their rows were made of: its entry may be gone with its file.

    Of other benchmarks and models, which a comparison reads, it may have been forgotten.
    """
    for (table, partition), users in records.users.items():
        declared = TABLES.get(table)
        if declared is None or not declared.has_files:
            continue
        entries = [
            entry for entry in users if declared.per not in ("benchmark", "pair") or _is_of_partition(entry, partition)
        ]
        if declared.append_only:
            known = records.versions[table, partition]
            entries = [entry for entry in entries if entry.upstream[f"{table}/{partition}"] not in known]
            lost = [file_of(paths, declared, partition, "any").parent]
        else:
            beside = [declared.manifest(paths, partition)] if declared.manifest is not None else []
            lost = [path for path in (file_of(paths, declared, partition, ""), *beside) if not path.exists()]
        for path in lost if entries else ():
            by = f"the lineage of {entries[0].table} of {entries[0].partition} says that they were made of it"
            yield _MissingProduct(table, partition, path, by)


def _is_of_partition(entry: LineageEntry, partition: str) -> bool:
    """Whether the entry is of the pair, or of the benchmark, that ``partition`` names."""
    return partition in (entry.partition, entry.partition.partition("|")[0])


def _find_missing_last_tables(records: _Records, how_ended: HowEnded, paths: DataPaths) -> Iterator[_MissingProduct]:
    """The table that a step is named after and writes last, where its latest run left only those before it."""
    for (asset_key, partition), runs in records.steps.items():
        declared, (run_id, tables) = TABLES.get(asset_key), list(runs.items())[-1]
        if (
            declared is None
            or not declared.has_files
            or asset_key in tables
            or how_ended(run_id) in ("badly", "not yet")
        ):
            continue
        by = f"run {run_id} wrote {', '.join(sorted(tables))}, and this last of all"
        yield _MissingProduct(asset_key, partition, file_of(paths, declared, partition, run_id), by)


def _find_missing_loaded_files(paths: DataPaths) -> Iterator[_MissingProduct]:
    """The files that the warehouse holds the rows of, but for parts of the cache, which are merged now and then."""
    if not paths.warehouse.exists():
        return
    try:
        with open_read_only(paths.warehouse) as connection:
            loaded = connection.execute(f'SELECT "table", path FROM {LOADED_FILES.name} ORDER BY path').fetchall()  # noqa: S608 - a declared name
    except (AuditError, duckdb.Error):
        # The look at the warehouse says what is wrong with it.
        return
    for name, file in loaded:
        path, table = paths.root / file, TABLES.get(name)
        if table is None or table.kept == "cache" or path.exists():
            continue
        partition = name_from_path_segment(path.parent.name.partition("=")[2])
        if table.per == "entry":
            of, _, partition = partition.partition(":")
            yield _MissingProduct(of, partition, path, "the warehouse holds it")
        else:
            yield _MissingProduct(name, partition, path, "the warehouse holds its rows")


def _find_missing_cards(records: _Records, paths: DataPaths) -> Iterator[_MissingProduct]:
    """The cards of the models that rows that count now were computed with."""
    for (table, partition), entry in records.current.items():
        card = paths.model_card(entry.model_fingerprint or "")
        if table == TOKEN_STATISTICS.name and entry.model_fingerprint is not None and not card.exists():
            yield _MissingProduct(table, partition, card, f"the lineage of {partition} names this model")


def _find_missing_published_files(paths: DataPaths) -> Iterator[_MissingProduct]:
    """Warehouse and report, where it is noted beside them that they were made."""
    for record, product in ((paths.warehouse_record, paths.warehouse), (paths.published, paths.report)):
        if record.exists() and not product.exists():
            yield _MissingProduct("", "", product, f"{record.name} says that it was made")


def _find_missing_statistics(records: _Records, paths: DataPaths, on_check: Look) -> Iterator[_MissingProduct]:
    """The cached statistics of the texts that have scores."""
    models: Mapping[str, TokenizedModel] | None = None
    for (table, partition), entry in records.current.items():
        scores = records.current.get((SCORES.name, partition))
        if table != TOKEN_STATISTICS.name or entry.model_fingerprint is None or scores is None:
            continue
        on_check(f"cached statistics of {partition}")
        pair = Pair(*partition.split("|", 1))
        try:
            benchmark = read_built(paths, pair.benchmark)
            if benchmark.digest != entry.benchmark_digest:
                continue
            texts = _scored_texts(scores, benchmark, paths)
        except AuditError:
            # Its examples or its scores are missing or damaged, and named as such.
            continue
        folder = paths.token_statistics("base", entry.model_fingerprint)
        lacking = len({*map(text_sha256, texts)} - _read_text_digests(folder))
        # Inventory for where there are scores: a data folder that was never made is not made for it.
        models = _load_known_models(paths) if models is None else models
        model = models.get(pair.model)
        if not lacking and model is not None and entry.data_version == statistics_version(model, benchmark.digest):
            # What detectors read besides: branches, sums, passes over changed texts.
            folder = paths.table(TOKEN_STATISTICS.name)
            lacking = build_audit_session(benchmark, model, paths).plan(texts).texts_to_run
        if lacking:
            by = f"{lacking} of {len(texts)} texts of {pair.benchmark} have scores and no statistics of {pair.model}"
            yield _MissingProduct(table, partition, folder, by)


def _scored_texts(scores: LineageEntry, benchmark: BuiltBenchmark, paths: DataPaths) -> list[str]:
    """The texts of a benchmark of which the run has any score; a server may have given none of others."""
    if scores.code_version != SCORES_VERSION:
        return []
    pair = Pair(*scores.partition.split("|", 1))
    rows = store.read(paths, SCORES, pair, run_id=scores.run_id, label=f"the scores of {scores.partition}")
    scored = pc.unique(rows.filter(pc.equal(rows.column("status"), "ok")).column("example_id"))
    examples = benchmark.examples
    return list(dict.fromkeys(build_model_inputs(examples.filter(pc.is_in(examples.column("example_id"), scored)))))


def _read_text_digests(folder: Path) -> set[str]:
    """The digests of the texts of which there are rows; the look at the cache names parts that cannot be read."""
    found: set[str] = set()
    for part in list_parts(folder):
        with suppress(pa.ArrowException, OSError):
            found.update(read_parquet(part, ["text_sha256"]).column("text_sha256").to_pylist())
    return found


def _load_known_models(paths: DataPaths) -> dict[str, TokenizedModel]:
    """The models of the configuration whose tokenizers are kept; of the others the texts' own statistics say enough."""
    found = {}
    with suppress(AuditError):
        for name, entry in load_models().items():
            with suppress(AuditError, OSError):
                if entry.host.is_here and is_tokenizer_kept(entry, paths):
                    found[name] = load_tokenizer(entry, paths)
    return found
