"""Benchmark of 100 models on 50 benchmarks: the time of UI pages, sensor ticks, the warehouse and the report.

    python bench/many_partitions.py [--models 100] [--benchmarks 50] [--no-services]

The script creates 5,000 audited pairs without running a model. It builds the benchmarks from random texts. The models
are five tiny models under many names. Scores, evaluations, lineage and outcomes are random, with one file per pair, as
after audits. Dagster receives events for each pair's token statistics, scores and evaluations, with pictures of a
realistic size. All files are in memory if the machine has enough memory.

The exit code is 1 if a tick takes ten seconds or more, or if the report takes more than a minute or has more than 20
MB. Correctness is tested in tests/.
"""

from __future__ import annotations

import argparse
import base64
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import dagster as dg
import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from automation import Automation
from live_workspace import LiveWorkspace, family, graphql, make

from audit_pipeline.benchmarks.build import build
from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.definitions import defs
from audit_pipeline.detectors.registry import is_default, select_detectors
from audit_pipeline.models.config import load_models
from audit_pipeline.models.tokenized_model import load_tokenized, write_card
from audit_pipeline.pipeline.dagster import partitions
from audit_pipeline.pipeline.dagster.instance import ensure_dagster_home
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.report.files import build_reports
from audit_pipeline.sources.config import load_source_settings
from audit_pipeline.sources.store import refresh_source
from audit_pipeline.store import store
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.store.ledger import LineageStep, RowOrigin, record_entry, record_outcome
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import EVALUATIONS, SCORES, TOKEN_STATISTICS, Pair, canonical_json, digest
from audit_pipeline.warehouse.query import query_warehouse

TICK_SECONDS, REPORT_SECONDS, REPORT_BYTES = 10.0, 60.0, 20e6
WORDS = (8, 12, 16, 24, 32)
REAL_MODELS = 5
METRICS = ("auroc", "tpr_at_5_fpr", "fpr_at_95_tpr", "auroc_margin")
PICTURES: Mapping[str, Mapping[str, int]] = {
    "token_statistics": {},
    "scores": {"score histograms": 15_000},
    "evaluations": {"ROC curves": 19_000},
}
FAILED_EVERY = 50
PAIR_ASSETS = ("token_statistics", "scores", "evaluations")

T = TypeVar("T")
Row = Mapping[str, object]


class Stopwatch:
    """A stopwatch that prints each time and keeps it by name, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, what: str, run: Callable[[], T]) -> T:
        started = time.perf_counter()
        result = run()
        self.seconds[what] = time.perf_counter() - started
        print(f"{what:<72} {self.seconds[what]:8.2f} s", flush=True)
        return result


def make_site(root: Path, models: int, benchmarks: int) -> LiveWorkspace:
    """Create a workspace with configuration, texts and models, and set the environment of this process to it."""
    site = make(root, models=REAL_MODELS, documents=80)
    real = list(site.read("models")["models"].values())
    entries = {}
    for number in range(models):
        folder = root / "models" / f"model-{number:03}"
        folder.symlink_to(real[number % REAL_MODELS]["path"])
        entries[folder.name] = {"path": str(folder), "release_date": "2024-06-01"}
    site.write("models", {"models": entries})
    families = {
        f"made_{number:02}": family(list(WORDS), windows_per_document=1, seed=number)
        for number in range(-(-benchmarks // len(WORDS)))
    }
    site.write("benchmarks", {"benchmarks": families})
    os.environ.update({key: value for key, value in site.environment.items() if value != os.environ.get(key)})
    return site


def build_all(paths: DataPaths) -> None:
    refresh_source("local_files", paths, "fetched", load_source_settings())
    for spec in load_benchmarks().values():
        build(spec, paths, "built")


def list_settings() -> list[tuple[str, str, bool]]:
    """Return each detector with its parameters at every setting of its grid. The flag is True for the default."""
    return [
        (detector.name, canonical_json(dict(one)), is_default(detector.name, canonical_json(dict(one))))
        for detector, grid in select_detectors(grid=True)
        for one in grid
    ]


class FindingsWriter:
    """A writer of random findings of every pair, in the files that an audit writes."""

    def __init__(self, paths: DataPaths) -> None:
        self.paths = paths
        self.settings = list_settings()
        self.random = np.random.default_rng(0)

    def write_all(self, models: list[str], benchmarks: list[str]) -> int:
        """Write the findings of all pairs. Return the number of failed pairs, which have only an outcome."""
        identities = {name: self._identity(name) for name in models}
        failed = 0
        for benchmark in benchmarks:
            benchmark_built = read_built(self.paths, benchmark)
            examples, built = benchmark_built.examples, benchmark_built.digest
            for model in models:
                pair, run_id = Pair(benchmark, model), digest(benchmark, model)[:32]
                if int(run_id[:8], 16) % FAILED_EVERY == 0:
                    record_outcome(self.paths, pair, "token_statistics", "failed", "the device is missing", run_id)
                    failed += 1
                else:
                    self._write_pair(pair, run_id, examples, built, identities[model])
        return failed

    def _identity(self, model: str) -> tuple[str, str]:
        tokenized = load_tokenized(load_models()[model], self.paths)
        write_card(tokenized, self.paths, parameters=1_000_000)
        return tokenized.identity.model_fingerprint, tokenized.identity.tokenizer_fingerprint

    def _write_pair(self, pair: Pair, run_id: str, examples: pa.Table, built: str, identity: tuple[str, str]) -> None:
        rows_of = {
            TOKEN_STATISTICS: None,
            SCORES: self._scores(pair, run_id, examples),
            EVALUATIONS: table_from_rows(self._evaluations(pair, run_id), EVALUATIONS),
        }
        origin: RowOrigin = {
            "model_fingerprint": identity[0],
            "tokenizer_fingerprint": identity[1],
            "benchmark_digest": built,
        }
        upstream = {f"examples/{pair.benchmark}": built}
        for table, rows in rows_of.items():
            step = LineageStep.now(run_id, table.name, "1")
            if rows is None:
                record_entry(self.paths, step, table, pair, data_version=built, upstream=upstream, **origin)
            else:
                store.write(self.paths, step, table, pair, rows, data_version=built, upstream=upstream, **origin)

    def _scores(self, pair: Pair, run_id: str, examples: pa.Table) -> pa.Table:
        texts, several = len(examples), len(self.settings)
        rows = texts * several
        members = np.tile(examples.column("label").to_numpy(), several)
        columns = {
            "example_id": pa.concat_arrays([examples.column("example_id").combine_chunks()] * several),
            "model": pa.repeat(pair.model, rows),
            "benchmark": pa.repeat(pair.benchmark, rows),
            "detector": pa.array([name for name, _, _ in self.settings for _ in range(texts)]),
            "parameters": pa.array([parameters for _, parameters, _ in self.settings for _ in range(texts)]),
            "is_default": pa.array([default for _, _, default in self.settings for _ in range(texts)]),
            "score": pa.array(self.random.normal(0.5 * members, 1.0)),
            "status": pa.repeat("ok", rows),
            "reason": pa.nulls(rows, pa.string()),
            "run_id": pa.repeat(run_id, rows),
        }
        return pa.table(columns).select(SCORES.names).cast(SCORES.schema)

    def _evaluations(self, pair: Pair, run_id: str) -> Iterator[Row]:
        for detector, parameters, default in [*self.settings, ("blind_control", "{}", True)]:
            for metric in METRICS[: 3 if detector == "blind_control" else 4]:
                value = float(self.random.uniform(0.4, 0.7))
                yield {
                    "model": pair.model,
                    "benchmark": pair.benchmark,
                    "detector": detector,
                    "parameters": parameters,
                    "is_default": default,
                    "n_members": 40,
                    "n_nonmembers": 40,
                    "n_groups": 80,
                    "n_not_scored": 0,
                    "metric": metric,
                    "value": value,
                    "ci_low": value - 0.1,
                    "ci_high": value + 0.1,
                    "method": "made up",
                    "split_verdict": "undetermined",
                    "claim_level": "screening only",
                    "run_id": run_id,
                }


def report_to_dagster(instance: dg.DagsterInstance, models: list[str], benchmarks: list[str]) -> None:
    """Report materialisations of every pair to Dagster, without runs."""
    partitions.register_partitions(instance, models=models, benchmarks=benchmarks)
    noise = random.Random(0)
    for asset in PAIR_ASSETS:
        pictures = {
            name: dg.MetadataValue.md(f"![](data:image/png;base64,{base64.b64encode(noise.randbytes(size)).decode()})")
            for name, size in PICTURES[asset].items()
        }
        for benchmark in benchmarks:
            for model in models:
                instance.report_runless_asset_event(
                    dg.AssetMaterialization(
                        asset,
                        partition=dg.MultiPartitionKey({"benchmark": benchmark, "model": model}),
                        metadata={"dagster/row_count": 1760, "status": "ok", **pictures},
                    )
                )


def time_ticks(watch: Stopwatch, site: LiveWorkspace, instance: dg.DagsterInstance) -> None:
    """Time the ticks of both sensors, and the automation of the reports.

    The sensors run for the first time, without a change, and after a change of one entry.
    """
    automation = Automation(instance)

    def time_change(file: str, changed: Mapping[str, object]) -> None:
        before = site.read(file)
        site.write(file, {file: changed})
        watch.time(f"tick of observe_inputs, {file} changed", automation.observe)
        runs = watch.time(f"tick of audit_what_changed, {file} changed", automation.evaluate)
        assert runs, f"no run was requested after the change of {file}"
        site.write(file, before)
        automation.observe()
        automation.evaluate()

    for which in ("first tick", "without a change"):
        watch.time(f"tick of observe_inputs, {which}", automation.observe)
        runs = watch.time(f"tick of audit_what_changed, {which}", automation.evaluate)
        assert not runs, runs
    models, benchmarks = site.read("models")["models"], site.read("benchmarks")["benchmarks"]
    time_change("models", {**models, "one-more": models["model-000"]})
    name, fields = next(iter(benchmarks.items()))
    time_change("benchmarks", {**benchmarks, name: {**fields, "member_before": "2021-06-01"}})

    reports = dg.AssetSelection.groups("5_reports")
    first = watch.time(
        "automation of the reports, first evaluation",
        lambda: dg.evaluate_automation_conditions(defs(), instance, asset_selection=reports),
    )
    watch.time(
        "automation of the reports, without a change",
        lambda: dg.evaluate_automation_conditions(defs(), instance, asset_selection=reports, cursor=first.cursor),
    )


PAGES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "asset graph": (
        """{ assetNodes { id groupName opNames assetKey { path } dependencyKeys { path } dependedByKeys { path }
        isPartitioned } }""",
        {},
    ),
    "asset graph, live: partitions and latest events of every asset": (
        """{ assetNodes { id partitionStats { numMaterialized numMaterializing numPartitions numFailed }
        assetMaterializations(limit: 1) { timestamp runId } freshnessInfo { currentMinutesLate } } }""",
        {},
    ),
    "asset graph, live: stale assets": ("{ assetNodes { id staleStatus } }", {}),
    "partition grid of evaluations": (
        """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
        partitionKeysByDimension { name partitionKeys type }
        assetPartitionStatuses { __typename
          ... on MultiPartitionStatuses { primaryDimensionName ranges { primaryDimStartKey primaryDimEndKey
            secondaryDim { __typename
              ... on DefaultPartitionStatuses { materializedPartitions failedPartitions materializingPartitions }
        } } } } } } }""",
        {"key": {"path": ["evaluations"]}},
    ),
    "one partition of evaluations, with pictures": (
        """query($key: AssetKeyInput!, $partition: String!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
        assetMaterializations(partitions: [$partition], limit: 1) { timestamp metadataEntries { label
          ... on MarkdownMetadataEntry { mdStr } ... on TextMetadataEntry { text } } } } } }""",
        {"key": {"path": ["evaluations"]}},
    ),
    "latest 100 events of evaluations, with pictures": (
        """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
        assetMaterializations(limit: 100) { timestamp partition metadataEntries { label
          ... on MarkdownMetadataEntry { mdStr } } } } } }""",
        {"key": {"path": ["evaluations"]}},
    ),
    "dialogue that launches a backfill: all partitions of evaluations": (
        """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
        partitionKeys partitionStats { numPartitions numMaterialized } } } }""",
        {"key": {"path": ["evaluations"]}},
    ),
}


def time_pages(watch: Stopwatch, site: LiveWorkspace, pair: Pair) -> None:
    """Time the queries of the UI's pages, twice each, because the second query may use a cache."""
    with site.services() as address:
        for name, (asked, variables) in PAGES.items():
            given = {**variables, "partition": pair.partition} if "$partition" in asked else variables
            for when in ("", ", again"):
                answer = watch.time(f"page: {name}{when}", partial(graphql, address, asked, **given))
                assert all(answer.values()), f"{name}: the response is empty"
            print(f"{'':<8}{len(str(answer)):,} characters", flush=True)


@contextmanager
def create_folder_in_memory() -> Iterator[Path]:
    """Yield a temporary folder, in memory if 8 GB of memory are free."""
    memory = Path("/dev/shm")
    at = memory if memory.is_dir() and shutil.disk_usage(memory).free > 8 << 30 else None
    with tempfile.TemporaryDirectory(prefix="many-partitions-", dir=at) as folder:
        yield Path(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--benchmarks", type=int, default=50)
    parser.add_argument("--no-services", action="store_true", help="Do not measure the pages of the UI.")
    parser.add_argument("--only-reports", action="store_true", help="Measure only the warehouse and the report.")
    given = parser.parse_args()
    watch = Stopwatch()
    with create_folder_in_memory() as root:
        site = make_site(root / "site", given.models, given.benchmarks)
        paths = DataPaths(site.data)
        models, benchmarks = list(load_models()), list(load_benchmarks())
        watch.time(f"(preparation) {len(benchmarks)} benchmarks built", lambda: build_all(paths))
        failed = watch.time(
            f"(preparation) findings of {len(models) * len(benchmarks)} pairs",
            lambda: FindingsWriter(paths).write_all(models, benchmarks),
        )
        if not given.only_reports:
            ensure_dagster_home(paths)
            with dg.DagsterInstance.get() as instance:
                watch.time("(preparation) events in Dagster", lambda: report_to_dagster(instance, models, benchmarks))
                time_ticks(watch, site, instance)
        built = watch.time("warehouse", lambda: build_warehouse(paths))
        report = watch.time("report", lambda: build_reports(paths.warehouse, paths.reports))
        watch.time("SQL: FROM leaderboard", lambda: query_warehouse(paths.warehouse, "FROM leaderboard"))
        watch.time("SQL: FROM coverage", lambda: query_warehouse(paths.warehouse, "FROM coverage"))
        assert report.pairs == len(models) * len(benchmarks) - failed, report
        print(
            f"{built.rows['scores']:,} scores, warehouse {built.bytes / 1e6:.0f} MB, report {report.bytes / 1e6:.1f} MB"
        )
        if not given.no_services and not given.only_reports:
            time_pages(watch, site, Pair(benchmarks[1], models[1]))
    slow = [
        what
        for what, seconds in watch.seconds.items()
        if (what.startswith("tick") and seconds >= TICK_SECONDS) or (what == "report" and seconds >= REPORT_SECONDS)
    ]
    if report.bytes > REPORT_BYTES:
        slow.append(f"the report with {report.bytes / 1e6:.1f} MB")
    print(f"too slow or too large: {', '.join(slow) or 'nothing'}")
    sys.exit(1 if slow else 0)


if __name__ == "__main__":
    main()
