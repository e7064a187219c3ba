"""Your own shelf: documents of unknown membership."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from audit_pipeline.benchmarks.builder_interface import (
    Builder,
    DrawnExamples,
    LabelledText,
    build_examples_table,
    format_left_out,
    read_documents_of,
    sort_by_id,
    sort_nonzero_counts,
)
from audit_pipeline.benchmarks.settings import BenchmarkSpec, DocumentsSettings, LabelSource
from audit_pipeline.benchmarks.words import WordUnit, get_word_unit
from audit_pipeline.config.entries import EntryReference
from audit_pipeline.config.validation import StrictSettings, Text
from audit_pipeline.errors import DataError
from audit_pipeline.splits.shared_text import build_comparison_key
from audit_pipeline.tables import MEMBER, NON_MEMBER, Split, digest


class KnownTexts(StrictSettings):
    """Documents whose side is known, to compare a shelf's own with: a document fits if every line does.

    A group is known only if all its documents are.
    """

    sources: tuple[Text, ...] = Field(default=(), description="only documents of these sources; empty: of all")
    groups: tuple[Text, ...] = Field(default=(), description="only these groups (books, patents); empty: all")
    collections: tuple[Text, ...] = Field(default=(), description="only these collections; empty: all")
    published_from: date | None = Field(default=None, description="only documents dated on that day or later")
    published_before: date | None = Field(default=None, description="only documents dated before that day")

    @model_validator(mode="after")
    def _require_criterion(self) -> Self:
        if self == type(self).model_construct():
            raise ValueError("says of no document that it is known: name sources, groups, collections or a date")
        return self


class ShelfSettings(DocumentsSettings):
    """Texts of unknown membership: windows that tile each document.

    ``held_out`` are documents that the model cannot have read, and ``members`` documents that it is known to have
    read: their windows are labelled, calibrate thresholds and p-values, and are not audited themselves. Where a shelf
    ``evaluates`` what is known, they are the whole of it: a labelled benchmark.
    """

    added: ClassVar[frozenset[str]] = DocumentsSettings.added | {"held_out", "members", "evaluates"}
    labels_from: ClassVar[LabelSource] = "configuration"
    references: ClassVar[tuple[EntryReference, ...]] = (
        *DocumentsSettings.references,
        EntryReference(("held_out", "sources"), "source"),
        EntryReference(("members", "sources"), "source"),
    )

    builder: Literal["shelf"]
    short: Literal["drop", "keep"] = Field(
        default="drop", description="documents shorter than a window: left out and counted, or taken whole"
    )
    held_out: KnownTexts | None = Field(
        default=None,
        description="documents that the model cannot have been trained on, to compare the audited documents with",
    )
    members: KnownTexts | None = Field(
        default=None, description="documents that the model was certainly trained on; corrected rates need them"
    )
    evaluates: Literal["unknown", "known"] = Field(
        default="unknown",
        description="what is evaluated: unknown, documents of unknown membership; known, members against held_out",
    )
    calibration_fraction: Literal[0] = 0
    design: Literal["unlabelled", "temporal", "exchangeable", "selected", "unstated"] = Field(
        default="unlabelled",
        description="how the held-out documents were chosen: temporal, by their date; exchangeable, by chance alone; "
        "selected, by another rule, such as that they are unpublished; unstated, nobody states how",
    )

    @property
    def source_names(self) -> tuple[str, ...]:
        """The sources of the audited documents, then those of known documents."""
        known = [name for texts in (self.held_out, self.members) if texts is not None for name in texts.sources]
        return tuple(dict.fromkeys([*self.sources, *known]))

    @property
    def every_length_exact(self) -> bool:
        return self.short == "drop"

    @model_validator(mode="after")
    def _require_known_sides(self) -> Self:
        if self.evaluates == "known" and (self.held_out is None or self.members is None):
            raise ValueError("evaluates: known compares members with held_out documents: name both")
        return self

    @model_validator(mode="after")
    def _check_held_out_design(self) -> Self:
        if self.held_out is None and self.design != "unlabelled":
            raise ValueError(
                f"design: {self.design} describes held_out documents, and there are none: "
                "take design out, or name held_out documents"
            )
        if self.held_out is not None and self.design == "unlabelled":
            raise ValueError(
                "key 'design' is missing: it says how held_out documents differ from audited documents, and what may "
                "be claimed depends on it: temporal (they are newer), exchangeable (chance alone decided which "
                "documents were held out), selected (by another rule) or unstated"
            )
        return self


def draw_shelf(documents: pa.Table, spec: BenchmarkSpec, run_id: str) -> DrawnExamples:
    """The examples of ``spec`` out of ``documents`` (schema DOCUMENTS, any order; several sources as one table).

    Windows of exactly ``spec.words`` words tile each document from its first word on, none overlapping another. Of
    more than windows_per_document so many are taken, by a hash of (seed, family, document, place), and put in the
    document's order. A document shorter than a window is left out, or with `short: keep` taken whole. Words after the
    last whole window are in no text. A text that occurred before, in the order of document ids, is not taken again,
    whatever its spelling. A text that occurs on two sides is on none.

    Texts of documents that the settings know as held out have the label 0, of known members 1, and are in the
    calibration split; documents of other sources than the shelf's that are neither are left out. All others are
    audited: no label, evaluation split. Of a shelf that evaluates what is known, the others are left out and the known
    ones are in the evaluation split. Raises DataError if no text to evaluate is left, or no held-out text although
    held_out is set, if a group is both held out and a member, or if a document id occurs twice.
    """
    settings = spec.require_settings(ShelfSettings)
    unit = get_word_unit(settings.unit)
    documents_left_out: Counter[str] = Counter()
    texts_left_out: Counter[str] = Counter()
    labels_of_text: dict[str, set[int | None]] = {}
    texts: list[LabelledText] = []
    rows = sort_by_id(documents)
    knows = settings.evaluates == "known"
    held_out, members = _find_known_groups(rows, settings.held_out), _find_known_groups(rows, settings.members)
    if both := sorted(held_out & members):
        raise DataError(f"{spec.name}: {both[0]} is named as held out and as a member; name it once")
    for document in rows:
        label = NON_MEMBER if document["group"] in held_out else MEMBER if document["group"] in members else None
        if (why := _find_exclusion_reason(document, label, settings)) is not None:
            documents_left_out[why] += 1
            continue
        windows = _cut_windows(document, spec, settings, unit, texts_left_out)
        if not windows:
            documents_left_out[f"shorter than {spec.length} words"] += 1
        for text in windows:
            key = build_comparison_key(text)
            if key in labels_of_text:
                labels_of_text[key].add(label)
                texts_left_out["the same as another"] += 1
            elif spec.has_exact_length and len(unit.split(text)) != spec.length:
                # Where words are a matter of context (jieba), the window by itself may be segmented otherwise.
                texts_left_out["another number of words when taken by itself"] += 1
            else:
                labels_of_text[key] = {label}
                split: Split = "evaluation" if knows or label is None else "calibration"
                texts.append(LabelledText.from_row(document, text, label, split))
    on_one_side = [text for text in texts if len(labels_of_text[build_comparison_key(text.text)]) == 1]
    if len(on_one_side) < len(texts):
        texts_left_out["on both sides"] += len(texts) - len(on_one_side)
        texts = on_one_side
    if settings.held_out is not None and all(text.label != NON_MEMBER for text in texts):
        raise DataError(f"{spec.name}: no document is held out; correct held_out, or remove it and compare nothing")
    if knows and all(text.label != MEMBER for text in texts):
        raise DataError(f"{spec.name}: no document is a known member; correct members, or evaluate what is unknown")
    if not knows and all(text.label is not None for text in texts):
        reasons = format_left_out(documents_left_out + texts_left_out) or "there is no document"
        raise DataError(
            f"{spec.name}: no text is left to audit ({reasons}); shorten the windows, set short: keep, or add documents"
        )
    left_out = sort_nonzero_counts(documents_left_out), sort_nonzero_counts(texts_left_out)
    return DrawnExamples(build_examples_table(texts, spec, run_id), *left_out)


def _find_exclusion_reason(document: Mapping[str, Any], label: int | None, settings: ShelfSettings) -> str | None:
    if label is None and document["source"] not in settings.sources:
        return "of a source of known texts, but not known itself"
    if label is None and settings.evaluates == "known":
        return "not known to be on either side"
    if settings.language is not None and document["language"] != settings.language:
        return f"not in the language {settings.language}"
    return None


def _find_known_groups(documents: Sequence[Mapping[str, Any]], criteria: KnownTexts | None) -> set[str]:
    """The groups whose documents all meet the ``criteria``; none without criteria."""
    if criteria is None:
        return set()
    unknown = {document["group"] for document in documents if not _is_known_document(document, criteria)}
    return {document["group"] for document in documents} - unknown


def _is_known_document(document: Mapping[str, Any], criteria: KnownTexts) -> bool:
    day = document["published"]
    first = document["earliest"] or day
    return (
        (not criteria.sources or document["source"] in criteria.sources)
        and (not criteria.groups or document["group"] in criteria.groups)
        and (not criteria.collections or document["collection"] in criteria.collections)
        and (criteria.published_from is None or (first is not None and first >= criteria.published_from))
        and (criteria.published_before is None or (day is not None and day < criteria.published_before))
    )


def _cut_windows(
    document: Mapping[str, Any],
    spec: BenchmarkSpec,
    settings: ShelfSettings,
    unit: WordUnit,
    left_out_counts: Counter[str],
) -> list[str]:
    """The texts of a document in its order; none if it is shorter than a window and short documents are dropped."""
    words, length = unit.split(document["text"]), spec.length
    if len(words) < length:
        return [unit.join(words)] if words and settings.short == "keep" else []
    places = list(range(len(words) // length))
    if len(words) % length:
        left_out_counts["words after the last window, too few for another"] += 1
    if len(places) > settings.windows_per_document:
        left_out_counts["over windows_per_document"] += len(places) - settings.windows_per_document
        seeded = (settings.seed, spec.family, "tile", document["document_id"])
        places.sort(key=lambda place: digest(*seeded, place))
        places = sorted(places[: settings.windows_per_document])
    return [unit.join(words[place * length : (place + 1) * length]) for place in places]


BUILDER = Builder(1, ShelfSettings, read_documents_of, draw_shelf)
