"""Which digest a benchmark should have, and which one the built one has.

What belongs here: these two, and whether looking takes the network. What does not: comparing them
(operate/plan.py), how a digest comes about (build.py).
"""

from __future__ import annotations

import pyarrow as pa

from audit_pipeline.benchmarks.build import VersionOf, benchmark_digest, current_digest
from audit_pipeline.benchmarks.built import read_built
from audit_pipeline.benchmarks.row_settings import RowsSettings
from audit_pipeline.benchmarks.rows_origin import local_place
from audit_pipeline.benchmarks.spec import BenchmarkSpec
from audit_pipeline.catalogue.contracts import EXAMPLES
from audit_pipeline.catalogue.lineage import latest_is_whole
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.tables import open_parquet
from audit_pipeline.errors import DataError


def wanted_digest(
    spec: BenchmarkSpec, built: str | None, paths: DataPaths, version_of: VersionOf, *, ask_hub: bool = False
) -> str:
    """The digest that the benchmark would have if it were built now.

    ``built`` is the digest of what is built; ``version_of`` gives the version of a source's documents. Rows of the hub
    count as they were when last read, unless the hub is to be asked. Raises the AuditError of what is not there or
    cannot be read.
    """
    if is_on_hub(spec) and not ask_hub:
        # Its digest holds the hub's answer, which only its build asks for: the entry stands for it once.
        versions = {} if built is None else read_built(paths, spec.name).manifest.get("source_versions", {})
        return benchmark_digest(spec, versions)
    return current_digest(spec, paths, version_of)


def built_digest(spec: BenchmarkSpec, paths: DataPaths) -> str | None:
    """The digest of the benchmark as it is built; None where it is not, or its manifest cannot be read."""
    if not _is_built(spec, paths):
        return None
    try:
        return read_built(paths, spec.name).digest
    except (DataError, KeyError):
        return None


def is_on_hub(spec: BenchmarkSpec) -> bool:
    """Whether the benchmark's rows come from the hub or the package index: looking at them takes the network."""
    return isinstance(spec.settings, RowsSettings) and local_place(spec.settings)[0] is None


def _is_built(spec: BenchmarkSpec, paths: DataPaths) -> bool:
    """Whether the benchmark's examples, with the columns of this release, and their manifest are there.

    Examples that are not as they were written are not: they are built again.
    """
    examples = paths.examples(spec.name)
    if not (examples.exists() and paths.benchmark_manifest(spec.name).exists()):
        return False
    if not latest_is_whole(paths, "examples", spec.name):
        return False
    try:
        with open_parquet(examples) as file:
            return bool(file.schema_arrow.names == EXAMPLES.names)
    except (pa.ArrowException, OSError):
        # A damaged file is for whoever reads it to tell.
        return True
