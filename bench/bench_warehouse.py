"""Benchmark of the warehouse with ten million scores: the time of a build, and of a query of each view.

    python bench/bench_warehouse.py [--folder DIR] [--rows 10000000] [--runs 2]

The script writes the Parquet files of hundreds of audited pairs without running a model. By default these are 25 models
x 20 benchmarks x 1,000 texts x 10 settings x 2 runs, with all tables that an audit writes. Half of the rows are then
history. With --runs 1, every score is current.

Each table, view and macro is measured in three ways. Each query has a new connection, and the best of --repeats counts.

    computed    DuckDB computes and hashes every row and column
    fetched     every row and column is fetched as an Arrow batch, which is dropped
    one pair    the rows of one model on one benchmark are fetched

A build reads all files and compares each file with its ledger entry. There are --builds builds, and one more build
after one pair was audited again.

The script prints PASS if a build takes at most 20 s, every view is computed in under 2 s, and every view with at most a
million rows is fetched in under 2 s. (Fetching more rows means copying a gigabyte of text.) Otherwise it ends with exit
code 1. Correctness is tested in tests/warehouse.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from audit_pipeline.detectors.registry import is_default
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.store.files import write_json, write_parquet
from audit_pipeline.store.integrity import file_sha256, package_versions
from audit_pipeline.store.ledger import read_ledger
from audit_pipeline.store.ledger_records import format_line, parse_lines
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import (
    DOCUMENTS,
    EXAMPLES,
    TABLES,
    TOKEN_STATISTICS,
    Pair,
    canonical_json,
    digest,
    example_id,
    text_sha256,
)
from audit_pipeline.warehouse.build import WarehouseReport
from audit_pipeline.warehouse.query import open_read_only
from audit_pipeline.warehouse.schema import VIEWS, list_tables

MOST_SECONDS = 2.0
MOST_SECONDS_OF_A_BUILD = 20.0
MANY_ROWS = 1_000_000
DAY = datetime(2026, 1, 1, tzinfo=UTC)
GROUPS, COLLECTIONS, WORDS, TOKENS = 100, 5, 50, 8
SINGLE = ("loss", "zlib", "lowercase", "reference", "neighbour", "infilling")
DEFAULTS = (*((name, "{}") for name in SINGLE), ("min_k", '{"k":0.2}'), ("min_k_plus_plus", '{"k":0.2}'))
GRID = tuple(
    (name, canonical_json({"k": k / 10})) for name in ("min_k", "min_k_plus_plus") for k in (1, 3, 4, 5, 6, 7, 8, 9, 10)
)
METRICS = ("auroc", "tpr_at_5_fpr", "tpr_at_1_fpr", "tpr_at_01_fpr", "fpr_at_95_tpr", "auroc_margin")
RULES = (("largest_accuracy", None), ("marginal", 0.05), ("certified", 0.05))
VOCABULARY = ("query", "parser", "cache", "session", "handler", "warning", "option", "backend", "migration", "raises")


@dataclass(frozen=True)
class Plan:
    """The numbers of the written data.

    Attributes:
        models: Names of the models.
        benchmarks: Names of the benchmarks.
        texts: Number of texts per benchmark.
        runs: Number of runs per pair.
        settings: Detectors and their parameters as JSON.
    """

    models: Sequence[str]
    benchmarks: Sequence[str]
    texts: int
    runs: int
    settings: Sequence[tuple[str, str]]

    @property
    def pairs(self) -> list[Pair]:
        return [Pair(benchmark, model) for benchmark in self.benchmarks for model in self.models]

    def run_id(self, pair: Pair, run: int) -> str:
        return f"{digest(pair.partition, run)[:8]}-0000-4000-8000-{digest(run, pair.partition)[:12]}"

    def finished(self, pair: Pair, run: int) -> datetime:
        place = self.benchmarks.index(pair.benchmark) * len(self.models) + self.models.index(pair.model)
        return DAY + timedelta(days=7 * run, minutes=place)


def build_plan(rows: int, models: int, benchmarks: int, texts: int, runs: int) -> Plan:
    """Build the plan with about ``rows`` scores, by choosing the number of settings.

    Raises:
        SystemExit: If this number of settings does not exist.
    """
    settings = rows // (models * benchmarks * texts * runs)
    known = [*DEFAULTS, *GRID]
    if not 0 < settings <= len(known):
        raise SystemExit(
            f"{rows:,} rows require {settings} settings per text, but there are 1 to {len(known)} settings. Change "
            "--rows, --models, --benchmarks, --texts or --runs."
        )
    return Plan(
        [f"family-{number // 5}-{number % 5 + 1}b-instruct" for number in range(models)],
        [f"benchmark_{number}_64" for number in range(benchmarks)],
        texts,
        runs,
        known[:settings],
    )


class DataFolderWriter:
    """A writer of a data folder that has the same files as after audits, with random numbers."""

    def __init__(self, plan: Plan, paths: DataPaths) -> None:
        self.plan, self.paths = plan, paths
        self.random = np.random.default_rng(7)
        self.ids: dict[str, pa.Array] = {}
        self.sha256: dict[str, list[str]] = {}
        self.last_digest: str | None = None

    def write_all(self) -> None:
        for benchmark in self.plan.benchmarks:
            self.write_benchmark(benchmark)
        for place, model in enumerate(self.plan.models):
            self.write_model(model, place)
        for pair in self.plan.pairs:
            for run in range(self.plan.runs):
                self.write_run(pair, run)

    def draw_texts(self, benchmark: str) -> list[str]:
        words = np.array(VOCABULARY)[self.random.integers(0, len(VOCABULARY), (self.plan.texts, WORDS))]
        return [f"{benchmark} {place} {' '.join(row)}" for place, row in enumerate(words)]

    def write_benchmark(self, benchmark: str) -> None:
        texts, n = self.draw_texts(benchmark), self.plan.texts
        group = np.arange(n) % GROUPS
        named = [f"{benchmark}:{place}" for place in range(GROUPS)]
        documents = [f"source_{benchmark}:collection:{name}" for name in named]
        ids = [example_id(benchmark, documents[place], text) for place, text in zip(group, texts, strict=True)]
        self.ids[benchmark] = pa.array(ids)
        self.sha256[benchmark] = [text_sha256(text) for text in texts]
        label = group % 2
        days = [date(2019, 1, 1), date(2025, 6, 1)]
        collection = pa.array([f"collection {place % COLLECTIONS}" for place in range(GROUPS)])
        columns = {
            "example_id": self.ids[benchmark],
            "benchmark": repeat_value(benchmark, n),
            "document_id": pa.array(documents).take(pa.array(group)),
            "text": pa.array(texts),
            "context": pa.nulls(n, pa.string()),
            "messages": pa.nulls(n, pa.string()),
            "scored_part": pa.nulls(n, pa.string()),
            "label": pa.array(label, pa.int8()),
            "split": pa.array(["evaluation", "calibration"]).take(pa.array((group % 5 == 4).astype(int))),
            "published": pa.array(days).take(pa.array(1 - label)),
            "words": pa.array(np.full(n, WORDS), pa.int32()),
            "language": repeat_value("en", n),
            "collection": collection.take(pa.array(group)),
            "group": pa.array(named).take(pa.array(group)),
            "run_id": repeat_value("built", n),
        }
        built = write(self.paths.examples(benchmark), pa.table(columns, schema=EXAMPLES.schema))
        source = f"source_{benchmark}"
        rows = [
            {
                **{"document_id": document, "source": source, "collection": "collection", "group": name},
                **{"title": f"Book {name}", "text": " ".join(VOCABULARY) * 20, "published": days[1 - place % 2]},
                **{"date_kind": "release", "earliest": None, "retrieved_at": DAY, "language": "en"},
                **{"licence": "CC0-1.0", "url": "made-up:", "sha256": digest(document), "run_id": "fetched"},
            }
            for place, (document, name) in enumerate(zip(documents, named, strict=True))
        ]
        fetched = write(self.paths.documents(source), pa.Table.from_pylist(rows, schema=DOCUMENTS.schema))
        manifest = {"benchmark": benchmark, "digest": digest(benchmark), "design": "temporal", "words": 64}
        write_json(self.paths.benchmark_manifest(benchmark), manifest)
        self.write_split_quality(benchmark)
        self.write_lineage("documents", source, "fetched", DAY, "d1", {}, file_sha256=fetched)
        self.write_lineage(
            "examples",
            benchmark,
            "built",
            DAY,
            digest(benchmark),
            {f"documents/{source}": "d1"},
            benchmark_digest=digest(benchmark),
            file_sha256=built,
        )

    def write_split_quality(self, benchmark: str) -> None:
        controls = ("words", "characters", "length", "dates")
        measures = [("blind_auroc", control) for control in controls]
        measures += [("worst_blind_auroc", "dates"), *(("years_mentioned", str(year)) for year in range(1900, 2026))]
        rows = [
            {
                **{"benchmark": benchmark, "measure": measure, "part": part, "side": "both", "value": 0.6},
                **{"ci_low": 0.5, "ci_high": 0.7, "n": self.plan.texts, "method": "made up", "verdict": None},
                **{"split_verdict": "undetermined", "run_id": "assessed"},
            }
            for measure, part in measures
        ]
        table = pa.Table.from_pylist(rows, schema=TABLES["split_quality"].schema)
        file, made = write(self.paths.split_quality(benchmark), table), digest(benchmark)
        self.write_lineage(
            "split_quality", benchmark, "assessed", DAY, made, {}, benchmark_digest=made, file_sha256=file
        )

    def write_model(self, model: str, place: int) -> None:
        fingerprint = digest(model)
        day = date(2018 + place // 4, 1 + place % 12, 1)
        card = {"fingerprint": fingerprint, "name": model, "release_date": day.isoformat(), "parameters": 10**9}
        write_json(self.paths.model_card(fingerprint), card)
        texts = [sha for benchmark in self.plan.benchmarks for sha in self.sha256[benchmark]]
        n = len(texts)
        offsets = pa.array(np.arange(n + 1) * TOKENS, pa.int32())
        numbers = self.random.normal(-3, 1, n * TOKENS).astype(np.float32)
        counts = np.tile(np.arange(TOKENS, dtype=np.int32), n)

        def column(field: pa.Field) -> pa.Array:
            if field.name == "key":
                return pa.array([digest(model, sha) for sha in texts])
            if field.name == "text_sha256":
                return pa.array(texts)
            values = numbers if pa.types.is_floating(field.type.value_type) else counts
            return pa.ListArray.from_arrays(offsets, pa.array(values), type=field.type)

        table = pa.table([column(field) for field in TOKEN_STATISTICS.schema], schema=TOKEN_STATISTICS.schema)
        part = self.paths.token_statistics("base", fingerprint) / "part-0.parquet"
        part.rename(part.with_stem(f"part-0-{write(part, table)[:32]}"))

    def write_run(self, pair: Pair, run: int) -> None:
        """Write all tables of an audit of one pair, with their ledger entries."""
        run_id, finished = self.plan.run_id(pair, run), self.plan.finished(pair, run)
        examples = {f"examples/{pair.benchmark}": digest(pair.benchmark)}
        statistics = {f"token_statistics/{pair.partition}": digest(pair.model, pair.benchmark)[:16]}
        scores = {f"scores/{pair.partition}": digest("scores", run_id)[:16]}
        times = [finished - timedelta(minutes=minutes) for minutes in (3, 2, 0)]
        self.write_pair_lineage("token_statistics", pair, run_id, times[0], next(iter(statistics.values())), examples)
        file = write(self.paths.run_file("scores", pair.partition, run_id), self.draw_scores(pair, run_id))
        scores_version = next(iter(scores.values()))
        self.write_pair_lineage("scores", pair, run_id, times[1], scores_version, examples | statistics, file)
        for name, columns in self.build_finding_keys(pair).items():
            n = len(columns["detector"] if "detector" in columns else columns["test"])
            own = {"model": pair.model, "benchmark": pair.benchmark, "run_id": run_id}
            filled = [
                repeat_value(own[field.name], n)
                if field.name in own
                else pa.array(columns[field.name], field.type)
                if field.name in columns
                else self.draw_column(field, n)
                for field in TABLES[name].schema
            ]
            file = write(
                self.paths.run_file(name, pair.partition, run_id), pa.table(filled, schema=TABLES[name].schema)
            )
            upstream = examples | statistics | scores
            self.write_pair_lineage(name, pair, run_id, times[2], digest(name, run_id)[:16], upstream, file)

    def draw_scores(self, pair: Pair, run_id: str) -> pa.Table:
        settings, texts = len(self.plan.settings), self.plan.texts
        n = settings * texts
        place, setting = np.repeat(np.arange(texts), settings), pa.array(np.tile(np.arange(settings), texts))
        refused = self.random.random(n) < 0.005
        columns = {
            "example_id": self.ids[pair.benchmark].take(pa.array(place)),
            "model": repeat_value(pair.model, n),
            "benchmark": repeat_value(pair.benchmark, n),
            "detector": pa.array([detector for detector, _ in self.plan.settings]).take(setting),
            "parameters": pa.array([parameters for _, parameters in self.plan.settings]).take(setting),
            "is_default": pa.array([is_default(*one) for one in self.plan.settings]).take(setting),
            "score": pa.array(self.random.normal(size=n), mask=refused),
            "status": pa.array(["ok", "not_applicable"]).take(pa.array(refused.astype(int))),
            "reason": pa.array(["the text has no cased characters", None]).take(pa.array(1 - refused.astype(int))),
            "run_id": repeat_value(run_id, n),
        }
        return pa.table(columns, schema=TABLES["scores"].schema)

    def build_finding_keys(self, pair: Pair) -> Mapping[str, Mapping[str, Sequence[object]]]:
        """Return the columns that identify the rows of each table of findings. The other columns are random."""
        named = [f"{pair.benchmark}:{place}" for place in range(GROUPS)]
        defaults = [one for one in self.plan.settings if one in DEFAULTS]
        units = [
            *(("group", name) for name in named),
            *(("collection", f"collection {place}") for place in range(COLLECTIONS)),
            ("benchmark", pair.benchmark),
        ]
        blind = ("blind_control", "{}")
        return {
            "evaluations": transpose_rows(
                ("detector", "parameters", "is_default", "metric"),
                [
                    (*one, one in (*DEFAULTS, blind), metric)
                    for one in (*self.plan.settings, blind)
                    for metric in METRICS
                ],
            ),
            "decisions": transpose_rows(
                ("detector", "parameters", "is_default", "rule", "alpha"),
                [(*one, True, *rule) for one in defaults for rule in RULES],
            ),
            "group_tests": transpose_rows(
                ("detector", "parameters", "is_default", "group", "collection"),
                [
                    (*one, one in DEFAULTS, name, f"collection {place % COLLECTIONS}")
                    for one in self.plan.settings
                    for place, name in enumerate(named)
                ],
            ),
            "contamination_rates": transpose_rows(
                ("detector", "parameters", "is_default", "rule", "alpha", "unit", "name"),
                [(*one, True, *rule, *unit) for one in defaults for rule in RULES for unit in units],
            ),
            "comparisons": transpose_rows(
                ("detector", "parameters", "other", "other_parameters"),
                [(*one, *other) for one in defaults[:1] for other in (*defaults[1:], blind)],
            ),
            "calibration_checks": transpose_rows(
                ("detector", "parameters", "rule", "alpha"),
                [
                    (*one, rule, alpha)
                    for one in defaults
                    for rule in ("marginal", "certified")
                    for alpha in (0.05, 0.1)
                ],
            ),
            "corpus_tests": {"test": ["dataset_inference"]},
            "highlights": {
                "detector": ["min_k"] * 10,
                "parameters": ['{"k":0.2}'] * 10,
                "example_id": self.ids[pair.benchmark].slice(0, 10).to_pylist(),
                "pieces": [list(VOCABULARY) * 5] * 10,
                "token_scores": [[-1.5] * 50] * 10,
                "counted": [[True] * 50] * 10,
            },
        }

    def draw_column(self, field: pa.Field, n: int) -> pa.Array:
        if field.name in {"status", "reason", "claim_level", "split_verdict"}:
            known = {"status": "ok", "claim_level": "screening only", "split_verdict": "undetermined"}
            return repeat_value(known[field.name], n) if field.name in known else pa.nulls(n, pa.string())
        if pa.types.is_floating(field.type):
            return pa.array(self.random.random(n))
        if pa.types.is_integer(field.type):
            return pa.array(self.random.integers(0, 2, n)).cast(field.type)
        return repeat_value(f"made up: {field.name}", n)

    def write_pair_lineage(
        self,
        table: str,
        pair: Pair,
        run_id: str,
        finished: datetime,
        version: str,
        upstream: Mapping[str, str],
        file_sha256: str | None = None,
    ) -> None:
        self.write_lineage(
            table,
            pair.partition,
            run_id,
            finished,
            version,
            upstream,
            model_fingerprint=digest(pair.model),
            tokenizer_fingerprint=digest("tokenizer"),
            benchmark_digest=digest(pair.benchmark),
            file_sha256=file_sha256,
        )

    def write_lineage(
        self,
        table: str,
        partition: str,
        run_id: str,
        finished: datetime,
        version: str,
        upstream: Mapping[str, str],
        **more: str | None,
    ) -> None:
        fields = {
            **{"table": table, "partition": partition, "run_id": run_id, "asset_key": table, "code_version": "1"},
            **{"data_version": version, "upstream": dict(upstream), "packages": dict(package_versions())},
            **{name: value for name, value in more.items() if value is not None},
            **{"started_at": (finished - timedelta(minutes=1)).isoformat(), "finished_at": finished.isoformat()},
        }
        if more.get("file_sha256") is not None and (written := TABLES[table].file_of(self.paths, partition, run_id)):
            fields["rows"] = pq.read_metadata(written).num_rows
        file = self.paths.ledger_file
        file.parent.mkdir(parents=True, exist_ok=True)
        if self.last_digest is None:
            self.last_digest = read_ledger(self.paths).head
        line = format_line(self.last_digest, fields)
        self.last_digest = parse_lines(line)[0].digest
        with file.open("ab") as ledger:
            ledger.write(line)


def transpose_rows(names: Sequence[str], rows: Sequence[Sequence[object]]) -> Mapping[str, Sequence[object]]:
    """Return the columns of rows, by their names."""
    return dict(zip(names, (list(column) for column in zip(*rows, strict=True)), strict=True))


def repeat_value(value: str, n: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), n)


def write(path: Path, table: pa.Table) -> str:
    """Write a table and return the sha256 of the file. Unlike an audit, do not wait until it is flushed to disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_parquet(path, table)
    return file_sha256(path)


def time_scan(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[int, float]:
    """Fetch all rows of a query. Return their number and the time in seconds."""
    started = time.perf_counter()
    rows = sum(batch.num_rows for batch in connection.sql(sql).to_arrow_reader(100_000))
    return rows, time.perf_counter() - started


def time_best_scan(warehouse: Path, repeats: int, sql: str) -> tuple[int, float]:
    """Return the number of rows of a query and the shortest time of several scans in seconds."""
    found = []
    for _ in range(repeats):
        with open_read_only(warehouse) as connection:
            found.append(time_scan(connection, sql))
    return min(found, key=lambda one: one[1])


def iterate_queries(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the name and the SQL of each query: all tables and views, and the macros with typical arguments."""
    yield from ((table.name, f"FROM {table.name}") for table in list_tables(include_text=True))
    yield from ((view.name, f"FROM {view.name}") for view in VIEWS)
    moment = "TIMESTAMPTZ '2026-01-05 00:00Z'"
    for name in ("evaluations", "group_tests", "contamination_rates", "leaderboard"):
        yield f"{name}_as_of", f"FROM {name}_as_of({moment})"
    yield "changes_since", f"FROM changes_since({moment})"


def peak_megabytes() -> float:
    """Return the peak memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def print_time(what: str, do: Callable[[], object]) -> object:
    started = time.perf_counter()
    done = do()
    print(f"{what}: {time.perf_counter() - started:.1f} s", flush=True)
    return done


def main() -> None:
    """Write the data folder if it is missing, build the warehouse, query each view, and print the verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="Data folder. An existing folder is used again.")
    parser.add_argument("--rows", type=int, default=10_000_000, help="Approximate number of scores.")
    parser.add_argument("--models", type=int, default=25)
    parser.add_argument("--benchmarks", type=int, default=20)
    parser.add_argument("--texts", type=int, default=1_000, help="Number of texts per benchmark.")
    parser.add_argument("--runs", type=int, default=2, help="Number of runs per pair. Only the last run is current.")
    parser.add_argument("--builds", type=int, default=1, help="Number of builds. The fastest build counts.")
    parser.add_argument("--repeats", type=int, default=3, help="Number of queries per view. The fastest query counts.")
    parser.add_argument("--only", nargs="*", help="Names of the views to measure. Default: all views.")
    given = parser.parse_args()
    plan = build_plan(given.rows, given.models, given.benchmarks, given.texts, given.runs)
    with tempfile.TemporaryDirectory(prefix="bench-warehouse-") as temporary:
        slow = measure(plan, DataPaths((given.folder or Path(temporary)) / "data"), given)
    print(f"FAIL: too slow: {', '.join(slow)}" if slow else f"PASS: every view takes less than {MOST_SECONDS:g} s")
    sys.exit(1 if slow else 0)


@dataclass(frozen=True)
class TimedBuild:
    """The report of a build, and its processor time in seconds."""

    report: WarehouseReport
    processor_seconds: float

    def __str__(self) -> str:
        return f"{self.report.seconds:.1f} s ({self.processor_seconds:.1f} s of processor time)"


def time_build(paths: DataPaths, config: Path) -> TimedBuild:
    """Build the warehouse and measure the time."""
    started = time.process_time()
    report = build_warehouse(paths, config=config)
    return TimedBuild(report, time.process_time() - started)


def audit_again(plan: Plan, paths: DataPaths) -> None:
    """Write the tables of one more audit of a pair."""
    pair = plan.pairs[len(plan.pairs) // 3]
    writer = DataFolderWriter(plan, paths)
    writer.ids[pair.benchmark] = pq.read_table(paths.examples(pair.benchmark), partitioning=None)["example_id"]
    n_runs = len(list(paths.run_file("scores", pair.partition, "any").parent.glob("*.parquet")))
    writer.write_run(pair, n_runs)


def measure(plan: Plan, paths: DataPaths, given: argparse.Namespace) -> list[str]:
    """Measure the build and all queries. Return the names and times of those that were too slow."""
    slow: list[str] = []
    if not paths.table("scores").exists():
        print_time("data folder written", DataFolderWriter(plan, paths).write_all)
    files = list(paths.root.rglob("*.parquet"))
    size = sum(path.stat().st_size for path in files)
    print(f"{len(files):,} Parquet files, {size / 1e6:,.0f} MB; {len(os.sched_getaffinity(0))} CPUs")
    if not paths.warehouse.exists() or not given.only:
        empty = paths.root / "config"
        empty.mkdir(exist_ok=True)
        builds = [time_build(paths, empty) for _ in range(given.builds)]
        audit_again(plan, paths)
        later = time_build(paths, empty)
        whole = min(builds, key=lambda build: build.report.seconds)
        filled = whole.report
        print(f"built in {whole}: {filled.rows['scores']:,} scores, {whole.report.bytes / 1e6:,.0f} MB")
        print(f"built after one more audit in {later}; peak memory {peak_megabytes():,.0f} MB", flush=True)
        if whole.report.seconds > MOST_SECONDS_OF_A_BUILD:
            slow.append(f"built in {whole}")
        print(f"rows: {dict(filled.rows)}; doubled keys: {dict(filled.doubled)}; skipped files: {len(filled.left_out)}")
    pair = plan.pairs[len(plan.pairs) // 2]
    print(f"seconds per query\n{'':28} {'rows':>11} {'computed':>9} {'fetched':>9} {'one pair':>9}")
    for name, sql in iterate_queries(plan):
        if given.only and name not in given.only:
            continue
        rows, fetched = time_best_scan(paths.warehouse, given.repeats, sql)
        hash_sql = f"SELECT count(*), bit_xor(hash(*COLUMNS(*))) {sql}"
        _, computed = time_best_scan(paths.warehouse, given.repeats, hash_sql)
        with open_read_only(paths.warehouse) as connection:
            columns = set(connection.sql(sql).columns)
        of_pair = ""
        if {"model", "benchmark"} <= columns:
            where = f"{sql} WHERE model = '{pair.model}' AND benchmark = '{pair.benchmark}'"
            of_pair = f"{time_best_scan(paths.warehouse, given.repeats, where)[1]:.2f}"
        print(f"{name:28} {rows:>11,} {computed:>9.2f} {fetched:>9.2f} {of_pair:>9}", flush=True)
        seconds = computed if rows > MANY_ROWS else max(computed, fetched)
        if seconds >= MOST_SECONDS:
            slow.append(f"{name} {seconds:.1f} s")
    return slow


if __name__ == "__main__":
    main()
