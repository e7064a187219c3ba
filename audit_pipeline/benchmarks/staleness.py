"""Whether a built benchmark is still what its entry and its sources would give now.

What belongs here: comparing the digest of what was built with that of what there is. What does not: the digest itself
(build.py), and what is done about a stale benchmark (operate/dagster/).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pyarrow as pa

from audit_pipeline.benchmarks.build import (
    VersionOf,
    benchmark_digest,
    current_digest,
    version_of_source,
)
from audit_pipeline.benchmarks.built import read_built
from audit_pipeline.benchmarks.row_settings import RowsSettings
from audit_pipeline.benchmarks.rows_origin import local_place
from audit_pipeline.benchmarks.spec import BenchmarkSpec
from audit_pipeline.catalogue.contracts import EXAMPLES
from audit_pipeline.catalogue.lineage import latest_is_whole
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.tables import open_parquet
from audit_pipeline.errors import AuditError


def is_stale(spec: BenchmarkSpec, paths: DataPaths, version_of: VersionOf | None = None) -> bool:
    """Whether the benchmark is missing, or was built from another entry or other documents than there are now.

    ``version_of`` as in :func:`current_digest`. Raises DataError where a source is not there.
    """
    if not is_built(spec, paths):
        return True
    manifest = read_built(paths, spec.name).manifest
    digest, source_versions = manifest.get("digest"), manifest.get("source_versions", {})
    if is_on_hub(spec):
        # What lies elsewhere is looked at again when the user asks for it (--refresh), not for every audit.
        return bool(digest != benchmark_digest(spec, source_versions))
    return bool(digest != current_digest(spec, paths, version_of))


def is_on_hub(spec: BenchmarkSpec) -> bool:
    """Whether the benchmark's rows come from the hub or the package index: looking at them takes the network."""
    return isinstance(spec.settings, RowsSettings) and local_place(spec.settings)[0] is None


def is_built(spec: BenchmarkSpec, paths: DataPaths) -> bool:
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


def up_to_date(specs: Iterable[BenchmarkSpec], paths: DataPaths) -> dict[str, bool | None]:
    """For each benchmark, by name: whether it is built and not stale.

    None where that cannot be told: it was never built, or a source or its manifest is not there or cannot be read.
    Each source is read once, however many benchmarks are drawn from it.
    """
    version_of = cache(lambda source: version_of_source(source, paths))
    return {spec.name: _is_up_to_date(spec, paths, version_of) for spec in specs}


def _is_up_to_date(spec: BenchmarkSpec, paths: DataPaths, version_of: VersionOf) -> bool | None:
    if not is_built(spec, paths):
        return None
    try:
        return not is_stale(spec, paths, version_of)
    except AuditError:
        return None
