"""What a builder is: what an entry may say, how it reads what a benchmark is made of, and how it draws the examples.

What belongs here: the types of that, and reading documents, which several builders share. What does not: any one
builder (builders/).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar, get_args

import pyarrow as pa

from audit_pipeline.benchmarks.drawn import Drawn
from audit_pipeline.benchmarks.family import FamilySettings
from audit_pipeline.benchmarks.spec import BenchmarkSpec
from audit_pipeline.catalogue.documents import documents_version
from audit_pipeline.catalogue.paths import DataPaths

Content = TypeVar("Content")
Provenance = Mapping[str, object]
ReadDocuments = Callable[[str], pa.Table]


@dataclass(frozen=True)
class BuilderInputs(Generic[Content]):
    """What a benchmark is built from, read: its content, the versions of where it came from, and what is known of that.

    ``origin`` says in words where rows were read; None for documents, whose sources have names. ``provenance`` has an
    entry per source or place: ids, versions, licences, kinds of date.
    """

    content: Content
    source_versions: Mapping[str, str]
    provenance: tuple[Provenance, ...]
    origin: str | None = None


@dataclass(frozen=True)
class Builder(Generic[Content]):
    """A way of building benchmarks. ``version`` changes when the same input would give other examples.

    ``settings`` is what an entry may say; its field ``builder`` has the builder's name as the only value. ``read``
    takes the benchmark, the data folder and what gives a source's documents; ``draw`` takes what it read, the benchmark
    and the run's id. Both raise DataError (SourceError) where there is nothing to build from.
    """

    version: int
    settings: type[FamilySettings]
    read: Callable[[BenchmarkSpec, DataPaths, ReadDocuments], BuilderInputs[Content]]
    draw: Callable[[Content, BenchmarkSpec, str], Drawn]

    @property
    def name(self) -> str:
        """What entries call it."""
        (name,) = get_args(self.settings.model_fields["builder"].annotation)
        return str(name)


def read_documents_of(spec: BenchmarkSpec, paths: DataPaths, read: ReadDocuments) -> BuilderInputs[pa.Table]:
    """The documents of all sources of ``spec`` as one table (schema DOCUMENTS)."""
    tables = {source: read(source) for source in spec.sources}
    versions = {source: documents_version(table) for source, table in tables.items()}
    provenance = tuple(_provenance(source, table, versions[source]) for source, table in tables.items())
    return BuilderInputs(pa.concat_tables(tables.values()), versions, provenance)


def _provenance(source: str, table: pa.Table, version: str) -> Provenance:
    retrieved = [str(day.date()) for day in table.column("retrieved_at").to_pylist()]
    return {
        "source": source,
        "version": version,
        "documents": table.num_rows,
        "licences": _counts(table, "licence"),
        "kinds of date": _counts(table, "date_kind"),
        "retrieved": {"first": min(retrieved, default=None), "last": max(retrieved, default=None)},
    }


def _counts(table: pa.Table, column: str) -> dict[str, int]:
    return dict(sorted(Counter(table.column(column).to_pylist()).items()))
