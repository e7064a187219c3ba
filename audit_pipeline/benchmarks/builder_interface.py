"""What a builder is: what an entry may say, what it reads, how it draws examples, and what it hands back."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from typing import Any, Generic, TypeVar, get_args

import pyarrow as pa

from audit_pipeline.benchmarks.allocation import SplitUnit, assign_splits
from audit_pipeline.benchmarks.settings import BenchmarkSpec, FamilySettings
from audit_pipeline.benchmarks.words import get_word_unit
from audit_pipeline.errors import DataError
from audit_pipeline.readers.text_rows import Skipped
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import compute_documents_version
from audit_pipeline.tables import EXAMPLES, Split, example_id

MATCHED = "matched"
"""The note, and so the key of the manifest, of sides that were chosen to be hard to separate without a model."""
UNDATED = "undated"
"""The note, and so the key of the manifest, of rows whose date is left out."""
_NAMED_ROWS = 20


@dataclass(frozen=True)
class LabelledText:
    """One text with its label (1 member, 0 non-member, None unknown), on its way to being an example.

    ``split`` where the builder has chosen it; else groups are divided by the benchmark's calibration_fraction.
    """

    document_id: str
    group: str
    collection: str
    text: str
    label: int | None
    published: date | None
    language: str
    context: str | None = None
    split: Split | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any], text: str, label: int | None, split: Split | None = None) -> LabelledText:
        """A text out of a document, or of another row that says where it comes from as documents do."""
        places = {name: row[name] for name in ("document_id", "group", "collection", "published", "language")}
        return cls(text=text, label=label, split=split, **places)


@dataclass(frozen=True)
class DrawnExamples:
    """A benchmark's examples and all that did not become one.

    ``documents_left_out`` and ``texts_left_out`` count by reason, ``skipped`` names rows that cannot be used.
    ``notes`` is what else the builder has to say, as JSON values, for the manifest.
    """

    examples: pa.Table
    documents_left_out: Mapping[str, int]
    texts_left_out: Mapping[str, int]
    skipped: tuple[Skipped, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)


def drop_repeated_texts(
    texts: Sequence[LabelledText], left_out_counts: Counter[str], on_both_sides: str, repeated: str
) -> list[LabelledText]:
    """The texts in their order, each once, without those that have two labels; the others are counted by reason."""
    labels: dict[str, set[int | None]] = defaultdict(set)
    for text in texts:
        labels[text.text].add(text.label)
    kept: dict[str, LabelledText] = {}
    for text in texts:
        if len(labels[text.text]) > 1:
            left_out_counts[on_both_sides] += 1
        elif text.text in kept:
            left_out_counts[repeated] += 1
        else:
            kept[text.text] = text
    return list(kept.values())


def summarise_rows(rows: Sequence[Skipped]) -> dict[str, Any]:
    """Return the number of rows and the first 20 with their reasons, for the manifest."""
    first = [{"row": row.location, "reason": row.reason} for row in rows[:_NAMED_ROWS]]
    return {"rows": len(rows), "first": first}


def build_examples_table(texts: Iterable[LabelledText], spec: BenchmarkSpec, run_id: str) -> pa.Table:
    """The texts as the examples table, each group in one split, in the order given.

    ``words`` is each text's own number of words.
    """
    texts = list(texts)
    settings = spec.settings
    split_words = get_word_unit(settings.unit).split
    splits = assign_splits(
        (SplitUnit(text.group, text.collection, text.label) for text in texts if text.split is None),
        fraction=settings.calibration_fraction,
        seed=settings.seed,
        family=spec.family,
    )
    rows = (
        {
            "example_id": example_id(spec.name, text.document_id, text.text),
            "benchmark": spec.name,
            "document_id": text.document_id,
            "text": text.text,
            "context": text.context,
            "label": text.label,
            "split": text.split or splits[text.group],
            "published": text.published,
            # Builders of exact lengths have counted: nothing is segmented twice.
            "words": spec.length if spec.has_exact_length else len(split_words(text.text)),
            "language": text.language,
            "collection": text.collection,
            "group": text.group,
            "run_id": run_id,
        }
        for text in texts
    )
    return table_from_rows(rows, EXAMPLES)


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
    and the run's id. ``read_versions`` gives the versions that ``read`` gives, without reading any text (None: they
    are known by reading alone). All raise DataError (SourceError) where there is nothing to build from.
    """

    version: int
    settings: type[FamilySettings]
    read: Callable[[BenchmarkSpec, DataPaths, ReadDocuments], BuilderInputs[Content]]
    draw: Callable[[Content, BenchmarkSpec, str], DrawnExamples]
    read_versions: Callable[[BenchmarkSpec, DataPaths], Mapping[str, str]] | None = None

    @property
    def name(self) -> str:
        """What entries call it."""
        (name,) = get_args(self.settings.model_fields["builder"].annotation)
        return str(name)


def read_documents_of(spec: BenchmarkSpec, paths: DataPaths, read: ReadDocuments) -> BuilderInputs[pa.Table]:
    """The documents of all sources of ``spec`` as one table (schema DOCUMENTS)."""
    tables = {source: read(source) for source in spec.sources}
    versions = {source: compute_documents_version(table) for source, table in tables.items()}
    provenance = tuple(_build_provenance(source, table, versions[source]) for source, table in tables.items())
    return BuilderInputs(pa.concat_tables(tables.values()), versions, provenance)


def sort_by_id(documents: pa.Table) -> list[dict[str, Any]]:
    """The documents (schema DOCUMENTS) as rows in the order of their ids; raises DataError where one occurs twice."""
    rows: list[dict[str, Any]] = sorted(documents.to_pylist(), key=lambda row: str(row["document_id"]))
    for row, following in pairwise(rows):
        if row["document_id"] == following["document_id"]:
            raise DataError(
                f"the document id {row['document_id']} occurs twice. Give each document of its source a name of its "
                "own, or fetch the source again with audit --refresh."
            )
    return rows


def sort_nonzero_counts(counts: Counter[str]) -> dict[str, int]:
    """What was left out, by reason, in the order of reasons."""
    return {reason: count for reason, count in sorted(counts.items()) if count}


def format_left_out(counts: Counter[str]) -> str:
    """What was left out in words: ``2 undated; 1 the same as another``."""
    return "; ".join(f"{count} {reason}" for reason, count in sort_nonzero_counts(counts).items())


def _build_provenance(source: str, table: pa.Table, version: str) -> Provenance:
    retrieved = [str(day.date()) for day in table.column("retrieved_at").to_pylist()]
    return {
        "source": source,
        "version": version,
        "documents": table.num_rows,
        "licences": _count_values(table, "licence"),
        "kinds of date": _count_values(table, "date_kind"),
        "retrieved": {"first": min(retrieved, default=None), "last": max(retrieved, default=None)},
    }


def _count_values(table: pa.Table, column: str) -> dict[str, int]:
    return dict(sorted(Counter(table.column(column).to_pylist()).items()))
