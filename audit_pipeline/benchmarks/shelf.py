"""Your own shelf: documents of which nobody knows whether a model has read them.

What belongs here: the pure path from a documents table to an examples table: audited texts without labels, and the
labelled ones that they are compared with. What does not: fetching documents (sources/), files (build.py), and what is
concluded of a group's scores (metrics/, evidence/).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from audit_pipeline.benchmarks.config import BenchmarkSpec, ShelfSettings
from audit_pipeline.benchmarks.drawn import Drawn, LabelledText, examples_table
from audit_pipeline.benchmarks.settings import KnownTexts
from audit_pipeline.benchmarks.words import WordUnit, word_unit
from audit_pipeline.catalogue.contracts import MEMBER, NON_MEMBER, digest
from audit_pipeline.errors import DataError

VERSION = 1


def draw_shelf(documents: pa.Table, spec: BenchmarkSpec, run_id: str) -> Drawn:
    """The examples of ``spec`` out of ``documents`` (schema DOCUMENTS, any order; several sources as one table).

    Windows of exactly ``spec.words`` words tile each document from its first word on, none overlapping another. Of
    more than windows_per_document so many are taken, by a hash of (seed, family, document, place), and put in the
    document's order. A document shorter than a window is left out, or with `short: keep` taken whole. Words behind the
    last whole window are in no text. A text that was met before, in the order of document ids, is not taken again.

    Texts of documents that the settings know as held out have the label 0, of known members 1, and are in the
    calibration split; documents of other sources than the shelf's that are neither are left out. All others are
    audited: no label, evaluation split. Raises DataError where nothing to audit, or no held-out text where some were
    named, is left, where a group is both held out and a member, or where a document id stands twice.
    """
    settings = spec.settings
    if not isinstance(settings, ShelfSettings):
        raise TypeError(f"{spec.name} is not a shelf")
    unit = word_unit(settings.unit)
    documents_left_out: Counter[str] = Counter()
    texts_left_out: Counter[str] = Counter()
    seen: set[str] = set()
    texts: list[LabelledText] = []
    rows = _by_id(documents)
    held_out, members = _known_groups(rows, settings.held_out), _known_groups(rows, settings.members)
    if both := sorted(held_out & members):
        raise DataError(f"{spec.name}: {both[0]} is named as held out and as a member; name it once")
    for document in rows:
        label = NON_MEMBER if document["group"] in held_out else MEMBER if document["group"] in members else None
        if label is None and document["source"] not in settings.sources:
            documents_left_out["of a source of known texts, but not known itself"] += 1
            continue
        if settings.language is not None and document["language"] != settings.language:
            documents_left_out[f"not in the language {settings.language}"] += 1
            continue
        windows = _windows(document, spec, settings, unit, texts_left_out)
        if not windows:
            documents_left_out[f"shorter than {spec.length} words"] += 1
        for text in windows:
            if text in seen:
                texts_left_out["the same as another"] += 1
            elif spec.is_exact and len(unit.split(text)) != spec.length:
                # Where words are a matter of context (jieba), the window by itself may be segmented otherwise.
                texts_left_out["another number of words when taken by itself"] += 1
            else:
                seen.add(text)
                texts.append(LabelledText.of(document, text, label, "evaluation" if label is None else "calibration"))
    if settings.held_out is not None and all(text.label != NON_MEMBER for text in texts):
        raise DataError(f"{spec.name}: no document is held out; correct held_out, or remove it and compare nothing")
    if all(text.label is not None for text in texts):
        reasons = "; ".join(
            f"{count} {reason}" for reason, count in sorted((documents_left_out + texts_left_out).items())
        )
        raise DataError(
            f"{spec.name}: no text is left to audit ({reasons or 'there is no document'}); "
            "shorten the windows, set short: keep, or add documents"
        )
    return Drawn(
        examples_table(texts, spec, run_id),
        dict(sorted(documents_left_out.items())),
        dict(sorted(texts_left_out.items())),
    )


def _known_groups(documents: Sequence[Mapping[str, Any]], known: KnownTexts | None) -> set[str]:
    """The groups of which every document is as ``known`` has it."""
    if known is None:
        return set()
    unknown = {document["group"] for document in documents if not _fits(document, known)}
    return {document["group"] for document in documents} - unknown


def _fits(document: Mapping[str, Any], known: KnownTexts) -> bool:
    day = document["published"]
    first = document["earliest"] or day
    return (
        (not known.sources or document["source"] in known.sources)
        and (not known.groups or document["group"] in known.groups)
        and (not known.collections or document["collection"] in known.collections)
        and (known.published_from is None or (first is not None and first >= known.published_from))
        and (known.published_before is None or (day is not None and day < known.published_before))
    )


def _by_id(documents: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = sorted(documents.to_pylist(), key=lambda row: str(row["document_id"]))
    for row, following in pairwise(rows):
        if row["document_id"] == following["document_id"]:
            raise DataError(f"the document id {row['document_id']} occurs twice; fetch its source again")
    return rows


def _windows(
    document: Mapping[str, Any], spec: BenchmarkSpec, settings: ShelfSettings, unit: WordUnit, left_out: Counter[str]
) -> list[str]:
    """The texts of a document in its order; none where it is shorter than a window and such are not kept."""
    words, length = unit.split(document["text"]), spec.length
    if len(words) < length:
        return [unit.join(words)] if words and settings.short == "keep" else []
    places = list(range(len(words) // length))
    if len(words) % length:
        left_out["words behind the last window, too few for another"] += 1
    if len(places) > settings.windows_per_document:
        left_out["over windows_per_document"] += len(places) - settings.windows_per_document
        seeded = (settings.seed, spec.family, "tile", document["document_id"])
        places.sort(key=lambda place: digest(*seeded, place))
        places = sorted(places[: settings.windows_per_document])
    return [unit.join(words[place * length : (place + 1) * length]) for place in places]
