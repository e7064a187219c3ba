"""The shelf builder: documents of unknown membership, such as a user's own books."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from audit_pipeline.benchmarks import builder_interface
from audit_pipeline.benchmarks.builder_interface import Builder, DrawnExamples, LabelledText
from audit_pipeline.benchmarks.settings import BenchmarkSpec, DocumentsSettings, LabelSource, WordUnit, get_word_unit
from audit_pipeline.config.entries import EntryReference
from audit_pipeline.config.validation import StrictSettings, Text
from audit_pipeline.errors import DataError
from audit_pipeline.splits.shared_text import build_comparison_key
from audit_pipeline.tables import MEMBER, NON_MEMBER, Split, digest


class KnownTexts(StrictSettings):
    """Criteria of documents with known membership, for the comparison with a shelf's documents.

    A document must meet all criteria. A group is known only if all its documents are known.
    """

    sources: tuple[Text, ...] = Field(default=(), description="only documents of these sources; empty: all sources")
    groups: tuple[Text, ...] = Field(default=(), description="only these groups (books, patents); empty: all groups")
    collections: tuple[Text, ...] = Field(default=(), description="only these collections; empty: all collections")
    published_from: date | None = Field(
        default=None, description="only documents dated on this day or later; None: any date"
    )
    published_before: date | None = Field(
        default=None, description="only documents dated before this day; None: any date"
    )

    @model_validator(mode="after")
    def _require_criterion(self) -> Self:
        if self == type(self).model_construct():
            raise ValueError("there is no criterion. Set sources, groups, collections or a date.")
        return self


class ShelfSettings(DocumentsSettings):
    """Settings of texts of unknown membership: consecutive windows of each document.

    Documents in ``held_out`` cannot be in the training data. Documents in ``members`` certainly are. The windows of
    both have labels, calibrate thresholds and p-values, and are not audited. With ``evaluates: known`` the benchmark
    consists of these labelled windows only.
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
        default="drop",
        description="treatment of documents that are shorter than a window; drop: skip and count them; keep: use each "
        "as one text",
    )
    held_out: KnownTexts | None = Field(
        default=None,
        description="documents that the model cannot have been trained on, to compare the audited documents with; "
        "None: no comparison",
    )
    members: KnownTexts | None = Field(
        default=None, description="documents that the model was certainly trained on; required for corrected rates"
    )
    evaluates: Literal["unknown", "known"] = Field(
        default="unknown",
        description="documents to evaluate; unknown: the documents of unknown membership; known: members and held_out",
    )
    calibration_fraction: Literal[0] = 0
    design: Literal["unlabelled", "temporal", "exchangeable", "selected", "unstated"] = Field(
        default="unlabelled",
        description="how the held-out documents were chosen. unlabelled: there are none; temporal: by their date; "
        "exchangeable: by chance alone; selected: by another rule, such as unpublished documents; unstated: the rule "
        "is unknown. It is required if held_out is set",
    )

    @property
    def source_names(self) -> tuple[str, ...]:
        """Return the sources of the audited documents, then the sources of known documents."""
        names = list(self.sources)
        if self.held_out is not None:
            names += self.held_out.sources
        if self.members is not None:
            names += self.members.sources
        return tuple(dict.fromkeys(names))

    @property
    def requires_exact_length(self) -> bool:
        """Return True if every text has exactly the benchmark's number of words: short documents are then skipped."""
        return self.short == "drop"

    @model_validator(mode="after")
    def _require_known_sides(self) -> Self:
        if self.evaluates == "known" and (self.held_out is None or self.members is None):
            raise ValueError(
                "'evaluates: known' compares members with held_out documents. Set both members and held_out."
            )
        return self

    @model_validator(mode="after")
    def _check_held_out_design(self) -> Self:
        if self.held_out is None and self.design != "unlabelled":
            raise ValueError(
                f"'design: {self.design}' describes held_out documents, but held_out is not set. "
                "Remove design, or set held_out."
            )
        if self.held_out is not None and self.design == "unlabelled":
            raise ValueError(
                "key 'design' is missing. It states how the held_out documents were chosen: temporal (they are newer), "
                "exchangeable (by chance alone), selected (by another rule) or unstated. The strongest possible claim "
                "depends on it."
            )
        return self


def draw_shelf(documents: pa.Table, spec: BenchmarkSpec, run_id: str) -> DrawnExamples:
    """Draw the examples of a shelf.

    Each document is cut into consecutive windows of exactly ``spec.words`` words. If a document has more than
    windows_per_document windows, a hash of (seed, family, document, position) selects that many. Words after the last
    whole window are not used. A document shorter than a window is skipped, or used whole with `short: keep`. If a text
    occurs several times, only its first occurrence in the order of document ids is used. Spelling does not matter in
    this comparison. A text on two sides is used on neither side.

    Held-out texts have the label 0, known members the label 1, and both are in the calibration split. All other texts
    have no label and are in the evaluation split. Documents that are neither held out nor known members are skipped if
    the entry's ``sources`` does not name their source. With ``evaluates: known`` they are always skipped, and the
    labelled texts are in the evaluation split.

    Args:
        documents: The documents of all sources (schema DOCUMENTS, in any order).
        spec: The benchmark.
        run_id: The id of the run.

    Raises:
        DataError: If no text remains to evaluate, held_out is set but no text is held out, a group is both held out and
            a member, or a document id occurs twice.
    """
    settings = spec.require_settings(ShelfSettings)
    rows = builder_interface.sort_by_id(documents)
    labels_of_groups = _label_known_groups(rows, spec, settings)
    documents_left_out: Counter[str] = Counter()
    texts_left_out: Counter[str] = Counter()
    texts = _draw_texts(rows, labels_of_groups, spec, settings, documents_left_out, texts_left_out)
    _require_evaluated_texts(texts, spec, settings, documents_left_out + texts_left_out)
    return DrawnExamples(
        builder_interface.build_examples_table(texts, spec, run_id),
        builder_interface.sort_nonzero_counts(documents_left_out),
        builder_interface.sort_nonzero_counts(texts_left_out),
    )


def _label_known_groups(
    documents: Sequence[Mapping[str, Any]], spec: BenchmarkSpec, settings: ShelfSettings
) -> dict[str, int]:
    held_out = _find_known_groups(documents, settings.held_out)
    members = _find_known_groups(documents, settings.members)
    on_both_sides = sorted(held_out & members)
    if on_both_sides:
        raise DataError(
            f"{spec.name}: the group {on_both_sides[0]} is in held_out and in members. Remove the group from one of "
            "the two keys."
        )
    return {**dict.fromkeys(members, MEMBER), **dict.fromkeys(held_out, NON_MEMBER)}


def _draw_texts(
    documents: Sequence[Mapping[str, Any]],
    labels_of_groups: Mapping[str, int],
    spec: BenchmarkSpec,
    settings: ShelfSettings,
    documents_left_out: Counter[str],
    texts_left_out: Counter[str],
) -> list[LabelledText]:
    """Return the texts of all documents that are on one side only. The function updates both counters."""
    unit = get_word_unit(settings.unit)
    labels_of_text: dict[str, set[int | None]] = {}
    texts: dict[str, LabelledText] = {}
    for document in documents:
        label = labels_of_groups.get(document["group"])
        reason = _find_exclusion_reason(document, label, settings)
        if reason is not None:
            documents_left_out[reason] += 1
            continue
        split: Split = "calibration"
        if label is None or settings.evaluates == "known":
            split = "evaluation"
        windows = _cut_windows(document, spec, settings, unit, texts_left_out)
        if not windows:
            documents_left_out[f"shorter than {spec.length} words"] += 1
        for window in windows:
            key = build_comparison_key(window)
            if key in labels_of_text:
                labels_of_text[key].add(label)
                texts_left_out["the same as another text"] += 1
            elif spec.has_exact_length and len(unit.split(window)) != spec.length:
                # jieba depends on context. It may segment the window alone into other words.
                texts_left_out["with another number of words when segmented alone"] += 1
            else:
                labels_of_text[key] = {label}
                texts[key] = LabelledText.from_row(document, window, label, split)
    on_one_side = [text for key, text in texts.items() if len(labels_of_text[key]) == 1]
    if len(on_one_side) < len(texts):
        texts_left_out["on both sides"] += len(texts) - len(on_one_side)
    return on_one_side


def _require_evaluated_texts(
    texts: Sequence[LabelledText], spec: BenchmarkSpec, settings: ShelfSettings, left_out: Counter[str]
) -> None:
    labels = {text.label for text in texts}
    if settings.held_out is not None and NON_MEMBER not in labels:
        raise DataError(
            f"{spec.name}: no document matches held_out. Correct held_out, or remove it to audit without a comparison."
        )
    if settings.evaluates == "known" and MEMBER not in labels:
        raise DataError(f"{spec.name}: no document matches members. Correct members, or set evaluates: unknown.")
    if settings.evaluates == "unknown" and None not in labels:
        reasons = builder_interface.format_left_out(left_out) or "there is no document"
        raise DataError(
            f"{spec.name}: no text remains to audit ({reasons}). Shorten the windows, set short: keep, or "
            "add documents."
        )


def _find_exclusion_reason(document: Mapping[str, Any], label: int | None, settings: ShelfSettings) -> str | None:
    if label is None and document["source"] not in settings.sources:
        return "of a source of known texts, but not known itself"
    if label is None and settings.evaluates == "known":
        return "not known to be on either side"
    if settings.language is not None and document["language"] != settings.language:
        return f"not in the language {settings.language}"
    return None


def _find_known_groups(documents: Sequence[Mapping[str, Any]], criteria: KnownTexts | None) -> set[str]:
    """Return the groups whose documents all meet the criteria. Without criteria, no group is known."""
    if criteria is None:
        return set()
    groups = set()
    unknown_groups = set()
    for document in documents:
        groups.add(document["group"])
        if not _is_known_document(document, criteria):
            unknown_groups.add(document["group"])
    return groups - unknown_groups


def _is_known_document(document: Mapping[str, Any], criteria: KnownTexts) -> bool:
    published = document["published"]
    earliest = document["earliest"] or published
    if criteria.published_from is not None and (earliest is None or earliest < criteria.published_from):
        return False
    if criteria.published_before is not None and (published is None or published >= criteria.published_before):
        return False
    return (
        (not criteria.sources or document["source"] in criteria.sources)
        and (not criteria.groups or document["group"] in criteria.groups)
        and (not criteria.collections or document["collection"] in criteria.collections)
    )


def _cut_windows(
    document: Mapping[str, Any],
    spec: BenchmarkSpec,
    settings: ShelfSettings,
    unit: WordUnit,
    left_out_counts: Counter[str],
) -> list[str]:
    """Return the windows of a document in order.

    The result is empty if the document is shorter than a window and short documents are skipped.
    """
    words = unit.split(document["text"])
    length = spec.length
    if len(words) < length:
        if words and settings.short == "keep":
            return [unit.join(words)]
        return []
    positions = list(range(len(words) // length))
    if len(words) % length:
        left_out_counts["remainders of documents that are too short for a window"] += 1
    if len(positions) > settings.windows_per_document:
        left_out_counts["beyond the limit windows_per_document"] += len(positions) - settings.windows_per_document
        seeds = (settings.seed, spec.family, "tile", document["document_id"])
        positions.sort(key=lambda position: digest(*seeds, position))
        positions = sorted(positions[: settings.windows_per_document])
    return [unit.join(words[position * length : (position + 1) * length]) for position in positions]


BUILDER = Builder(1, ShelfSettings, builder_interface.read_source_documents, draw_shelf)
