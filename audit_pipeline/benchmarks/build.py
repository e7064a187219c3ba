"""Building a benchmark: its digest, its examples and its manifest, from what lies in the data folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa

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

# What changes no example: words about the benchmark, the words that a date was given in (the date itself is in), and
# where rows lie (their version says what they are).
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
    """What was built: what was drawn, the checks of it, and the manifest as written."""

    checks: tuple[BenchmarkCheck, ...]
    manifest: Mapping[str, Any]

    @property
    def digest(self) -> str:
        return str(self.manifest["digest"])

    @property
    def counts(self) -> Mapping[str, Any]:
        counts: Mapping[str, Any] = self.manifest["counts"]
        return counts

    @property
    def failed(self) -> tuple[BenchmarkCheck, ...]:
        """The blocking checks that did not pass: numbers computed on the examples would be wrong."""
        return tuple(check for check in self.checks if check.blocking and not check.passed)


def compute_benchmark_digest(spec: BenchmarkSpec, source_versions: Mapping[str, str]) -> str:
    """sha256 (hex) of all that decides a benchmark's examples.

    That is its own entry (at its one length: the family's other lengths are no part of it), the builder's version and
    the versions of its sources. Descriptions, and the place where rows lie, are not.
    """
    entry = {key: value for key, value in spec.describe_entry().items() if key not in _NOT_IN_DIGEST}
    return digest(entry, BUILDERS[spec.settings.builder].version, dict(source_versions))


def read_inputs(spec: BenchmarkSpec, paths: DataPaths, read: ReadDocuments | None = None) -> BuilderInputs[Any]:
    """What ``spec`` is built from; ``read`` gives a source's documents (by default those in the data folder).

    Raises DataError where it has not been fetched, cannot be read or holds no usable row, and SourceError for a package
    that cannot be read.
    """
    return BUILDERS[spec.settings.builder].read(spec, paths, read or partial(read_documents, paths))


def build(
    spec: BenchmarkSpec,
    paths: DataPaths,
    run_id: str,
    read: ReadDocuments | None = None,
    code_version: str = "1",
) -> BenchmarkReport:
    """Draw the examples of ``spec`` and write them with their lineage and their manifest, the table first.

    Raises DataError (SourceError) where there is nothing to draw from or one side is empty; what was there before is
    then left alone. A failed check raises nothing: see ``BenchmarkReport.failed``.
    """
    step = LineageStep.now(run_id, "benchmark", code_version)
    inputs = read_inputs(spec, paths, read)
    drawn = BUILDERS[spec.settings.builder].draw(inputs.content, spec, run_id)
    checks = tuple(run_checks(drawn.examples, spec))
    manifest = _build_manifest(spec, inputs, drawn, checks, run_id)
    report = BenchmarkReport(**vars(drawn), checks=checks, manifest=manifest)
    upstream = {
        f"documents/{name}" if name in spec.sources else name: version
        for name, version in inputs.source_versions.items()
    }
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
    """The digest that ``spec`` would have if it were built now; raises DataError where a source is not there.

    ``version_of`` gives the version of a source's documents, for a caller that asks for many benchmarks of one source.
    """
    if version_of is not None and spec.sources:
        return compute_benchmark_digest(spec, {source: version_of(source) for source in spec.sources})
    if (read_versions := BUILDERS[spec.settings.builder].read_versions) is not None:
        return compute_benchmark_digest(spec, read_versions(spec, paths))
    file = find_local_path(spec.settings)[0] if isinstance(spec.settings, RowsSettings) else None
    if file is not None and file.exists():
        return compute_benchmark_digest(spec, _read_row_versions(spec, paths, file, tuple(list_file_stamps(file))))
    return compute_benchmark_digest(spec, read_inputs(spec, paths).source_versions)


@lru_cache(maxsize=1024)
def _read_row_versions(
    spec: BenchmarkSpec, paths: DataPaths, file: Path, stamps: tuple[tuple[str, int, int], ...]
) -> Mapping[str, str]:
    """Return the version of the rows in a file or folder, read once for each state of its files.

    An audit asks half a dozen times, and a sensor every half minute. Every row is read for it.
    """
    return read_inputs(spec, paths).source_versions


def count_examples(examples: pa.Table) -> dict[str, Any]:
    """Texts by side: in all, by split and by collection, and the groups and documents they come from."""
    rows = examples.select(["label", "split", "collection", "group", "document_id"]).to_pylist()

    def by(column: str) -> dict[str, dict[str, int]]:
        names = sorted({row[column] for row in rows})
        return {name: _count_by_side(row["label"] for row in rows if row[column] == name) for name in names}

    return {
        **_count_by_side(row["label"] for row in rows),
        "texts": len(rows),
        "groups": len({row["group"] for row in rows}),
        "documents": len({row["document_id"] for row in rows}),
        "by_split": by("split"),
        "by_collection": by("collection"),
    }


def _count_by_side(labels: Iterable[int | None]) -> dict[str, int]:
    counted = Counter(labels)
    return {side: counted[label] for label, side in _SIDES.items()}


def _build_manifest(
    spec: BenchmarkSpec,
    inputs: BuilderInputs[Any],
    draw_result: DrawnExamples,
    checks: tuple[BenchmarkCheck, ...],
    run_id: str,
) -> dict[str, Any]:
    return {
        "benchmark": spec.name,
        "family": spec.family,
        "description": spec.settings.description,
        "design": spec.design,
        "design_stated_by": spec.design_stated_by,
        "label_source": spec.label_source,
        "words": spec.words,
        "digest": compute_benchmark_digest(spec, inputs.source_versions),
        CONTENT_DIGEST: compute_content_digest(draw_result.examples),
        "spec": spec.describe_entry(),
        "builder_version": BUILDERS[spec.settings.builder].version,
        "source_versions": dict(inputs.source_versions),
        "origin": inputs.origin,
        "provenance": [dict(entry) for entry in inputs.provenance],
        "run_id": run_id,
        "counts": count_examples(draw_result.examples),
        "documents_left_out": dict(draw_result.documents_left_out),
        "texts_left_out": dict(draw_result.texts_left_out),
        "skipped": summarise_rows(draw_result.skipped),
        "near_duplicates": next(dict(check.counts) for check in checks if check.name == "near_duplicates"),
        "checks": [asdict(check) for check in checks],
        **draw_result.notes,
    }


def compute_wanted_digest(
    spec: BenchmarkSpec, known_digest: str | None, paths: DataPaths, version_of: VersionOf, *, ask_hub: bool = False
) -> str:
    """The digest that the benchmark would have if it were built now.

    ``known_digest`` is the digest of what is built; ``version_of`` gives the version of a source's documents. Rows of
    the hub count as they were when last read, unless the hub is to be asked. Raises the AuditError of what is not there
    or cannot be read.
    """
    if has_remote_rows(spec) and not ask_hub:
        # Its digest holds the hub's answer, which only its build asks for: the entry replaces it once.
        versions = {} if known_digest is None else read_built(paths, spec.name).manifest.get("source_versions", {})
        return compute_benchmark_digest(spec, versions)
    return compute_digest_from_inputs(spec, paths, version_of)


def read_built_digest(name: str, paths: DataPaths) -> str | None:
    """The digest of the benchmark as it is built; None where its examples or its manifest are not there, or are not as
    they were written."""
    examples = paths.examples(name)
    if not (examples.exists() and is_latest_file_whole(paths, "examples", name)):
        return None
    try:
        with open_parquet(examples) as file:
            # Examples with the columns of another version are built again.
            return read_built(paths, name).digest if file.schema_arrow.names == EXAMPLES.names else None
    except (DataError, KeyError, pa.ArrowException, OSError):
        return None


def has_remote_rows(spec: BenchmarkSpec) -> bool:
    """Whether the benchmark's rows come from the hub or the package index: looking at them takes the network."""
    return isinstance(spec.settings, RowsSettings) and find_local_path(spec.settings)[0] is None
