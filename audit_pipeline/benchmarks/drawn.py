"""What a builder hands back, and the rows of the examples table.

What belongs here: the types that all builders share. What does not: how any of them chooses its texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pyarrow as pa

from audit_pipeline.benchmarks.spec import BenchmarkSpec
from audit_pipeline.benchmarks.splits import Placed, split_groups
from audit_pipeline.benchmarks.words import word_unit
from audit_pipeline.catalogue.contracts import EXAMPLES, Split, example_id
from audit_pipeline.catalogue.tables import table_from_rows
from audit_pipeline.fetch.rows import Skipped

MATCHED = "matched"
"""The note, and so the key of the manifest, of sides that were chosen to be hard to tell apart without a model."""


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
class Drawn:
    """A benchmark's examples and all that did not become one.

    ``documents_left_out`` and ``texts_left_out`` count by reason, ``skipped`` names rows that cannot be used.
    ``notes`` is what else the builder has to say, as JSON values, for the manifest.
    """

    examples: pa.Table
    documents_left_out: Mapping[str, int]
    texts_left_out: Mapping[str, int]
    skipped: tuple[Skipped, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)


def examples_table(texts: Iterable[LabelledText], spec: BenchmarkSpec, run_id: str) -> pa.Table:
    """The texts as the examples table, each group in one split, in the order given.

    ``words`` is each text's own number of words.
    """
    texts = list(texts)
    settings = spec.settings
    split_words = word_unit(settings.unit).split
    splits = split_groups(
        (Placed(text.group, text.collection, text.label) for text in texts if text.split is None),
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
            "words": spec.length if spec.is_exact else len(split_words(text.text)),
            "language": text.language,
            "collection": text.collection,
            "group": text.group,
            "run_id": run_id,
        }
        for text in texts
    )
    return table_from_rows(rows, EXAMPLES)
