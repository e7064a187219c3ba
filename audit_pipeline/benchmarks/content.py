"""What a benchmark's examples say, apart from what the benchmark and its texts are called here.

What belongs here: the names of documents and groups as they are handed on, and the digest by which the same examples
are known again under another name, in another order and from another place. What does not: what decides a benchmark's
examples before they are drawn (benchmark_digest, build.py), and files (handing_on/).
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from audit_pipeline.benchmarks.row_values import name_of
from audit_pipeline.catalogue.contracts import canonical_json, digest, digest_of_items, text_sha256

CONTENT_DIGEST = "content_digest"
"""The key of the manifest."""

SAID = ("text", "context", "label", "split", "published", "language", "collection")
"""The columns of EXAMPLES that the digest reads as they stand."""
PLACED = ("document_id", "group")
"""Those of which it reads only which texts share them, whatever their names are."""


def to_export_names(names: Iterable[str], family: str) -> list[str]:
    """The names of documents or groups as they are handed on, in order: a builder of rows reads them back as they are.

    Builders of rows put the family in front of each name (``family:name``): where all have it, it is taken away. A name
    that such a builder could not read as it stands (empty, white space around it, very long) is replaced by 16 digits
    of its sha256.
    """
    given, front = list(names), f"{family}:"
    if all(name.startswith(front) for name in given):
        given = [name.removeprefix(front) for name in given]
    return [name if name_of(name) == (name, None) else text_sha256(name)[:16] for name in given]


def content_digest(examples: pa.Table) -> str:
    """sha256 (hex) of what ``examples`` (schema EXAMPLES) say: texts, contexts, labels, splits, days, languages,
    collections, and which of them are of one document and of one group.

    It is that of a JSON list whose one item is a list with one list per example, in the order of their own JSON; the
    card of a benchmark that is handed on says the same in words. The order of rows and the names of benchmark, family,
    documents and groups change nothing.
    """
    columns: dict[str, list[object]] = {name: examples.column(name).to_pylist() for name in (*SAID, *PLACED)}
    texts = [digest(*both) for both in zip(columns["context"], columns["text"], strict=True)]
    for name in PLACED:
        first: dict[object, str] = {}
        for place, text in zip(columns[name], texts, strict=True):
            first[place] = min(first.get(place, text), text)
        columns[name] = [first[place] for place in columns[name]]
    rows = ([None if value is None else str(value) for value in row] for row in zip(*columns.values(), strict=True))
    return digest_of_items(sorted(rows, key=canonical_json))
