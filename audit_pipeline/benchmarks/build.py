"""The build of a benchmark: its examples, its digest and its manifest, from the inputs in the data folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.benchmarks.builder_interface import BuilderInputs, DrawnExamples, ReadDocuments, summarise_rows
from audit_pipeline.benchmarks.built_benchmark import CONTENT_DIGEST, compute_content_digest, read_built
from audit_pipeline.benchmarks.checks import BenchmarkCheck, run_checks
from audit_pipeline.benchmarks.config import BUILDERS
from audit_pipeline.benchmarks.row_settings import RowsSettings
from audit_pipeline.benchmarks.rows_origin import find_local_path
from audit_pipeline.benchmarks.settings import BenchmarkSpec
from audit_pipeline.errors import DataError
from audit_pipeline.sources.config import list_file_stamps
from audit_pipeline.store import store
from audit_pipeline.store.files import open_parquet, write_json
from audit_pipeline.store.ledger import LineageStep, is_latest_file_whole
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import read_documents
from audit_pipeline.tables import EXAMPLES, MEMBER, NON_MEMBER, digest

# The digest of a benchmark excludes these keys of its entry, because they change no example. Some are descriptions. In
# place of relative cutoffs and of the location of rows, the digest includes the resulting dates and the rows' version.
_NOT_IN_DIGEST = (
    "corpora",
    "title",
    "description",
    "licence",
    "date_kind",
    "path",
    "path_variable",
    "relative",
    "on_request",
    "extraction",
)
_SIDES = {MEMBER: "members", NON_MEMBER: "nonmembers", None: "unlabelled"}

VersionOf = Callable[[str], str]


@dataclass(frozen=True, kw_only=True)
class BenchmarkReport(DrawnExamples):
    """The result of a build: the drawn examples, their checks and the stored manifest."""

    checks: tuple[BenchmarkCheck, ...]
    manifest: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """Return the digest of the inputs."""
        return str(self.manifest["digest"])

    @property
    def counts(self) -> Mapping[str, Any]:
        """Return the counts of texts, as :func:`count_examples` computes them."""
        counts: Mapping[str, Any] = self.manifest["counts"]
        return counts

    @property
    def failed(self) -> tuple[BenchmarkCheck, ...]:
        """Return the blocking checks that failed. If any failed, numbers computed on the examples would be wrong."""
        return tuple(check for check in self.checks if check.blocking and not check.passed)


def compute_benchmark_digest(spec: BenchmarkSpec, source_versions: Mapping[str, str]) -> str:
    """Compute the sha256 (hex) of everything that determines a benchmark's examples.

    The digest includes the benchmark's configuration entry, its length, the version of its builder and the versions of
    its sources. It excludes the other lengths of the family, descriptions and the location of rows.
    """
    entry = {key: value for key, value in spec.describe_entry().items() if key not in _NOT_IN_DIGEST}
    return digest(entry, BUILDERS[spec.settings.builder].version, dict(source_versions))


def read_inputs(spec: BenchmarkSpec, paths: DataPaths, read: ReadDocuments | None = None) -> BuilderInputs[Any]:
    """Read the inputs of a benchmark.

    Args:
        spec: The benchmark.
        paths: The data folder.
        read: A function that reads the documents of a source. By default it reads the stored documents.

    Raises:
        DataError: If an input is not fetched or unreadable, or contains no usable row.
        SourceError: If a package is unreadable.
    """
    return BUILDERS[spec.settings.builder].read(spec, paths, read or partial(read_documents, paths))


def build(
    spec: BenchmarkSpec,
    paths: DataPaths,
    run_id: str,
    read: ReadDocuments | None = None,
    code_version: str = "1",
) -> BenchmarkReport:
    """Draw the examples of a benchmark, and write their table, its lineage and the manifest in this order.

    A failed check raises no error; see ``BenchmarkReport.failed``.

    Args:
        spec: The benchmark.
        paths: The data folder.
        run_id: The id of the run.
        read: A function that reads the documents of a source. By default it reads the stored documents.
        code_version: The version of the code, for the ledger.

    Raises:
        DataError: If there are no usable inputs or a side is empty. An earlier build is then unchanged.
        SourceError: If a package is unreadable. An earlier build is then unchanged.
    """
    step = LineageStep.now(run_id, "benchmark", code_version)
    inputs = read_inputs(spec, paths, read)
    drawn = BUILDERS[spec.settings.builder].draw(inputs.content, spec, run_id)
    checks = tuple(run_checks(drawn.examples, spec))
    manifest = _build_manifest(spec, inputs, drawn, checks, run_id)
    report = BenchmarkReport(**vars(drawn), checks=checks, manifest=manifest)
    upstream = {}
    for name, version in inputs.source_versions.items():
        if name in spec.sources:
            upstream[f"documents/{name}"] = version
        else:
            upstream[name] = version
    store.write(
        paths,
        step,
        EXAMPLES,
        spec.name,
        report.examples,
        data_version=report.digest,
        upstream=upstream,
        benchmark_digest=report.digest,
    )
    write_json(paths.benchmark_manifest(spec.name), report.manifest)
    return report


def compute_digest_from_inputs(spec: BenchmarkSpec, paths: DataPaths, version_of: VersionOf | None = None) -> str:
    """Compute the digest that a benchmark would have if it were built from the inputs as they are now.

    Args:
        spec: The benchmark.
        paths: The data folder.
        version_of: A function that returns the version of a source's documents. Callers with many benchmarks of one
            source pass a cached function.

    Raises:
        DataError: If a source is missing.
    """
    if version_of is not None and spec.sources:
        versions = dict(zip(spec.sources, map(version_of, spec.sources), strict=True))
        return compute_benchmark_digest(spec, versions)
    read_versions = BUILDERS[spec.settings.builder].read_versions
    if read_versions is not None:
        return compute_benchmark_digest(spec, read_versions(spec, paths))
    if isinstance(spec.settings, RowsSettings):
        file, _ = find_local_path(spec.settings)
        if file is not None and file.exists():
            row_versions = _read_row_versions(spec, paths, file, tuple(list_file_stamps(file)))
            return compute_benchmark_digest(spec, row_versions)
    return compute_benchmark_digest(spec, read_inputs(spec, paths).source_versions)


@lru_cache(maxsize=1024)
def _read_row_versions(
    spec: BenchmarkSpec, paths: DataPaths, file: Path, stamps: tuple[tuple[str, int, int], ...]
) -> Mapping[str, str]:
    """Return the version of the rows in a file or folder.

    All rows are read to compute the version, so the result is cached until the ``stamps`` of the files change. An audit
    calls this function about six times, and a sensor every half minute.
    """
    return read_inputs(spec, paths).source_versions


def count_examples(examples: pa.Table) -> dict[str, Any]:
    """Count the texts by side, in total, per split and per collection, and the groups and documents."""
    rows = examples.select(["label", "split", "collection"]).to_pylist()
    n_groups = pc.count_distinct(examples["group"], mode="all").as_py()
    n_documents = pc.count_distinct(examples["document_id"], mode="all").as_py()
    return {
        **_count_by_side(map(itemgetter("label"), rows)),
        "texts": len(rows),
        "groups": n_groups,
        "documents": n_documents,
        "by_split": _count_by_column(rows, "split"),
        "by_collection": _count_by_column(rows, "collection"),
    }


def _count_by_column(rows: Sequence[Mapping[str, Any]], column: str) -> dict[str, dict[str, int]]:
    labels: dict[str, list[int | None]] = {}
    for row in rows:
        labels.setdefault(row[column], []).append(row["label"])
    return {name: _count_by_side(labels[name]) for name in sorted(labels)}


def _count_by_side(labels: Iterable[int | None]) -> dict[str, int]:
    counted = Counter(labels)
    return {side: counted[label] for label, side in _SIDES.items()}


def _build_manifest(
    spec: BenchmarkSpec,
    inputs: BuilderInputs[Any],
    drawn: DrawnExamples,
    checks: tuple[BenchmarkCheck, ...],
    run_id: str,
) -> dict[str, Any]:
    (near_duplicates,) = (check for check in checks if check.name == "near_duplicates")
    return {
        "benchmark": spec.name,
        "family": spec.family,
        "description": spec.settings.description,
        "design": spec.design,
        "design_stated_by": spec.design_stated_by,
        "label_source": spec.label_source,
        "words": spec.words,
        "digest": compute_benchmark_digest(spec, inputs.source_versions),
        CONTENT_DIGEST: compute_content_digest(drawn.examples),
        "spec": spec.describe_entry(),
        "builder_version": BUILDERS[spec.settings.builder].version,
        "source_versions": dict(inputs.source_versions),
        "origin": inputs.origin,
        "provenance": list(map(dict, inputs.provenance)),
        "run_id": run_id,
        "counts": count_examples(drawn.examples),
        "documents_left_out": dict(drawn.documents_left_out),
        "texts_left_out": dict(drawn.texts_left_out),
        "skipped": summarise_rows(drawn.skipped),
        "near_duplicates": dict(near_duplicates.counts),
        "checks": list(map(asdict, checks)),
        **drawn.notes,
    }


def compute_wanted_digest(
    spec: BenchmarkSpec, known_digest: str | None, paths: DataPaths, version_of: VersionOf, *, ask_hub: bool = False
) -> str:
    """Compute the digest that the benchmark would have if it were built now.

    Args:
        spec: The benchmark.
        known_digest: The digest of the current build, or None if the benchmark is not built.
        paths: The data folder.
        version_of: A function that returns the version of a source's documents.
        ask_hub: True queries the hub for the version of hub rows. False uses the version of the current build.

    Raises:
        AuditError: If an input is missing or unreadable.
    """
    if has_remote_rows(spec) and not ask_hub:
        # Without a query of the hub, only the versions of the current build are known. Before the first build there are
        # none, so this digest differs from that of the first build.
        versions = {}
        if known_digest is not None:
            versions = read_built(paths, spec.name).manifest.get("source_versions", {})
        return compute_benchmark_digest(spec, versions)
    return compute_digest_from_inputs(spec, paths, version_of)


def read_built_digest(name: str, paths: DataPaths) -> str | None:
    """Return the digest of the current build, or None if its examples or its manifest are missing or corrupt."""
    examples = paths.examples(name)
    if not (examples.exists() and is_latest_file_whole(paths, "examples", name)):
        return None
    try:
        with open_parquet(examples) as file:
            # Examples with the columns of another version are built again.
            if file.schema_arrow.names != EXAMPLES.names:
                return None
            return read_built(paths, name).digest
    except (DataError, KeyError, pa.ArrowException, OSError):
        return None


def has_remote_rows(spec: BenchmarkSpec) -> bool:
    """Return True if the rows come from the hub or the package index, so that reading them needs the network."""
    return isinstance(spec.settings, RowsSettings) and find_local_path(spec.settings)[0] is None
