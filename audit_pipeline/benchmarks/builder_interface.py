"""The builder interface: settings, inputs and drawn examples of a benchmark.

All builders share the allocation of texts: quotas per collection, and the calibration and evaluation splits of groups.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from itertools import pairwise
from typing import Any, Generic, TypeVar, get_args

import pyarrow as pa

from audit_pipeline.benchmarks.settings import BenchmarkSpec, FamilySettings, get_word_unit
from audit_pipeline.errors import DataError
from audit_pipeline.readers.conversations import ScoredPart
from audit_pipeline.readers.text_rows import Skipped
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import compute_documents_version
from audit_pipeline.tables import EXAMPLES, Split, digest, example_id

MATCHED = "matched"
"""The manifest key whose presence means that the sides were chosen to be hard to separate without a model."""
UNDATED = "undated"
"""The manifest key for rows whose date is not used, because it is unreadable or not a single day."""
_MAX_NAMED_ROWS = 20


@dataclass(frozen=True)
class LabelledText:
    """One text with its label, before it becomes an example.

    Attributes:
        label: 1 for a member, 0 for a non-member, None if membership is unknown.
        context: The preceding text, which the model reads and no detector scores.
        messages: The conversation that context and text are parts of, as in the table examples, or None.
        scored_part: The scored part of the conversation, or None.
        split: The split, if the builder chooses it. If it is None, the entry's ``calibration_fraction`` decides.
    """

    document_id: str
    group: str
    collection: str
    text: str
    label: int | None
    published: date | None
    language: str
    context: str | None = None
    messages: str | None = None
    scored_part: ScoredPart | None = None
    split: Split | None = None

    @property
    def content(self) -> str:
        """Return the content that distinguishes the text from others: the messages of a conversation, or the text."""
        return self.messages or self.text

    @classmethod
    def from_row(cls, row: Mapping[str, Any], text: str, label: int | None, split: Split | None = None) -> LabelledText:
        """Build a labelled text with the ids, date and language of a document, or of a row with the same columns."""
        return cls(
            document_id=row["document_id"],
            group=row["group"],
            collection=row["collection"],
            text=text,
            label=label,
            published=row["published"],
            language=row["language"],
            split=split,
        )


@dataclass(frozen=True)
class DrawnExamples:
    """The examples of a benchmark, and the counts of skipped documents, texts and rows.

    Attributes:
        examples: The examples (schema EXAMPLES).
        documents_left_out: The number of skipped documents by reason.
        texts_left_out: The number of skipped texts by reason.
        skipped: The unusable rows.
        notes: Further entries of the manifest, as JSON values.
    """

    examples: pa.Table
    documents_left_out: Mapping[str, int]
    texts_left_out: Mapping[str, int]
    skipped: tuple[Skipped, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)


def drop_repeated_texts(
    texts: Sequence[LabelledText], left_out_counts: Counter[str], on_both_sides: str, repeated: str
) -> list[LabelledText]:
    """Return the distinct texts in order, without texts that have two labels.

    Args:
        texts: The texts.
        left_out_counts: The counter of dropped texts by reason. The function updates it.
        on_both_sides: The reason for texts with two labels.
        repeated: The reason for repeated texts.
    """
    labels: dict[str, set[int | None]] = defaultdict(set)
    for text in texts:
        labels[text.text].add(text.label)
    distinct: dict[str, LabelledText] = {}
    for text in texts:
        if len(labels[text.text]) > 1:
            left_out_counts[on_both_sides] += 1
        elif text.text in distinct:
            left_out_counts[repeated] += 1
        else:
            distinct[text.text] = text
    return list(distinct.values())


def summarise_rows(rows: Sequence[Skipped]) -> dict[str, Any]:
    """Return the number of rows and the first 20 with their reasons, for the manifest."""
    first_rows = [{"row": row.location, "reason": row.reason} for row in rows[:_MAX_NAMED_ROWS]]
    return {"rows": len(rows), "first": first_rows}


def build_examples_table(texts: Iterable[LabelledText], spec: BenchmarkSpec, run_id: str) -> pa.Table:
    """Return the texts as an examples table, in order. Each group is in one split.

    The column ``words`` holds the number of words of each text.
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
    rows = []
    for text in texts:
        # Builders of exact lengths have counted the words. Segmentation is slow, so it is not repeated.
        n_words = spec.length if spec.has_exact_length else len(split_words(text.text))
        row = {
            "example_id": example_id(spec.name, text.document_id, text.content),
            "benchmark": spec.name,
            "document_id": text.document_id,
            "text": text.text,
            "context": text.context,
            "messages": text.messages,
            "scored_part": text.scored_part,
            "label": text.label,
            "split": text.split or splits[text.group],
            "published": text.published,
            "words": n_words,
            "language": text.language,
            "collection": text.collection,
            "group": text.group,
            "run_id": run_id,
        }
        rows.append(row)
    return table_from_rows(rows, EXAMPLES)


Content = TypeVar("Content")
Provenance = Mapping[str, object]
ReadDocuments = Callable[[str], pa.Table]


@dataclass(frozen=True)
class BuilderInputs(Generic[Content]):
    """The inputs of a benchmark.

    Attributes:
        content: The documents or rows.
        source_versions: The version of each source.
        provenance: One entry per source or file, with ids, versions, licences and kinds of date.
        origin: A description of the location of rows. It is None for documents, because their sources have names.
    """

    content: Content
    source_versions: Mapping[str, str]
    provenance: tuple[Provenance, ...]
    origin: str | None = None


@dataclass(frozen=True)
class Builder(Generic[Content]):
    """The declaration of a builder of benchmarks: its settings, and its functions for reading and drawing.

    Attributes:
        version: The version. A change of the code that yields other examples from the same inputs increases it.
        settings: The class of the settings of an entry. Its field ``builder`` accepts only the builder's name.
        read: A function that reads the inputs. It receives the benchmark, the data folder and a function that reads the
            documents of a source.
        draw: A function that draws the examples. It receives the content of the inputs, the benchmark and the run id.
        read_versions: A function that returns the versions of the inputs without reading any text. It is None if only
            ``read`` can determine them.

    All three functions raise DataError (or SourceError) if there are no usable inputs.
    """

    version: int
    settings: type[FamilySettings]
    read: Callable[[BenchmarkSpec, DataPaths, ReadDocuments], BuilderInputs[Content]]
    draw: Callable[[Content, BenchmarkSpec, str], DrawnExamples]
    read_versions: Callable[[BenchmarkSpec, DataPaths], Mapping[str, str]] | None = None

    @property
    def name(self) -> str:
        """Return the name of the builder in config/benchmarks.yaml."""
        (name,) = get_args(self.settings.model_fields["builder"].annotation)
        return str(name)


def read_source_documents(spec: BenchmarkSpec, paths: DataPaths, read: ReadDocuments) -> BuilderInputs[pa.Table]:
    """Read the documents of all sources of a benchmark as one table (schema DOCUMENTS)."""
    tables = []
    versions = {}
    provenance = []
    for source in spec.sources:
        table = read(source)
        tables.append(table)
        versions[source] = compute_documents_version(table)
        provenance.append(_build_provenance(source, table, versions[source]))
    return BuilderInputs(pa.concat_tables(tables), versions, tuple(provenance))


def sort_by_id(documents: pa.Table) -> list[dict[str, Any]]:
    """Return the documents (schema DOCUMENTS) as rows, sorted by id.

    Raises:
        DataError: If an id occurs twice.
    """
    rows: list[dict[str, Any]] = sorted(documents.to_pylist(), key=lambda row: str(row["document_id"]))
    for row, following in pairwise(rows):
        if row["document_id"] == following["document_id"]:
            raise DataError(
                f"the document id {row['document_id']} occurs twice. Give each document of the source its own name, or "
                "fetch the source again with corpus-audit audit --refresh."
            )
    return rows


def sort_nonzero_counts(counts: Counter[str]) -> dict[str, int]:
    """Return the counts above 0, sorted by reason."""
    return {reason: count for reason, count in sorted(counts.items()) if count}


def format_left_out(counts: Counter[str]) -> str:
    """Format the counts of skipped documents or texts by reason, as in ``2 undated; 1 the same as another``."""
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


def compute_even_quotas(sizes: Mapping[str, int], total: int) -> dict[str, int]:
    """Compute how many texts to take from each collection, as evenly as possible and at most ``total`` in all.

    The numbers differ by at most one text. A collection with too few texts contributes all its texts.

    Args:
        sizes: The number of available texts of each collection.
        total: Maximum number of texts in all.
    """
    quotas = dict.fromkeys(sorted(sizes), 0)
    remaining = min(total, sum(sizes.values()))
    while remaining:
        for name in quotas:
            if remaining and quotas[name] < sizes[name]:
                quotas[name] += 1
                remaining -= 1
    return quotas


def compute_proportional_quotas(sizes: Mapping[str, int], fraction: float) -> dict[str, int]:
    """Compute how many texts make up ``fraction`` of each collection, by the largest-remainder method.

    The sum of the numbers is ``fraction`` of all texts, rounded half up. Of collections with equal remainders, the
    first by name gets the additional text.
    """
    quotas = {name: int(fraction * size) for name, size in sizes.items()}
    remaining = int(fraction * sum(sizes.values()) + 0.5) - sum(quotas.values())
    by_remainder = sorted(sizes, key=lambda name: (quotas[name] - fraction * sizes[name], name))
    for name in by_remainder[:remaining]:
        quotas[name] += 1
    return quotas


@dataclass(frozen=True)
class SplitUnit:
    """The properties of a text that determine whether it is in the calibration or the evaluation split."""

    group: str
    collection: str
    label: int | None


def assign_splits(texts: Iterable[SplitUnit], *, fraction: float, seed: int, family: str) -> dict[str, Split]:
    """Assign every group to a split.

    About ``fraction`` of the texts of each label and collection are in the calibration split. Whole groups can make
    the fraction inexact. Groups are chosen in the order of a hash of (seed, family, group), so the order of texts does
    not matter. An added or removed group moves only the last chosen groups of its own label and collection. A
    group with several labels or collections counts only with other groups of the same labels and collections.

    Args:
        texts: The texts of all groups.
        fraction: The share of the texts that are in the calibration split.
        seed: The seed of the hash.
        family: The family of the benchmark.

    Returns:
        The split of each group.
    """
    sizes: Counter[str] = Counter()
    labels: dict[str, set[str]] = defaultdict(set)
    collections: dict[str, set[str]] = defaultdict(set)
    for text in texts:
        sizes[text.group] += 1
        labels[text.group].add(str(text.label))
        collections[text.group].add(text.collection)

    # There are few combinations of collections and many groups, so the digest of each combination is cached.
    digest_collections = cache(lambda *names: digest(list(names)))
    strata: dict[tuple[str, ...], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for group in sizes:
        stratum = strata[tuple(sorted(labels[group]))]
        stratum[digest_collections(*sorted(collections[group]))].append(group)

    splits: dict[str, Split] = dict.fromkeys(sizes, "evaluation")
    for by_collection in strata.values():
        totals = {}
        for name, groups in by_collection.items():
            totals[name] = sum(sizes[group] for group in groups)
        quotas = compute_proportional_quotas(totals, fraction)
        for name, groups in by_collection.items():
            order = sorted(groups, key=lambda group: digest(seed, family, "split", group))
            for group in _fill_quota(order, sizes, quotas[name]):
                splits[group] = "calibration"
    return splits


def _fill_quota(order: list[str], sizes: Mapping[str, int], quota: int) -> list[str]:
    """Return groups that together have about ``quota`` texts.

    A group is taken, in the given order, if the total does not exceed the quota. Then one more group is added if that
    brings the total nearer to the quota.
    """
    chosen: dict[str, None] = {}
    remaining = quota
    for group in order:
        if sizes[group] <= remaining:
            chosen[group] = None
            remaining -= sizes[group]
    for group in order:
        if group not in chosen and sizes[group] < 2 * remaining:
            return [*chosen, group]
    return list(chosen)
