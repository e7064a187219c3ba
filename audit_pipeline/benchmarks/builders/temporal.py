"""Members and non-members by date: windows of documents published before one day, or from another day on.

The sides may differ in more than membership (the blind control, splits/): a split by date never makes them
exchangeable.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import date
from operator import itemgetter
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from audit_pipeline.benchmarks.allocation import compute_even_quotas
from audit_pipeline.benchmarks.builder_interface import (
    MATCHED,
    Builder,
    DrawnExamples,
    LabelledText,
    build_examples_table,
    drop_repeated_texts,
    format_left_out,
    read_documents_of,
    sort_by_id,
    sort_nonzero_counts,
)
from audit_pipeline.benchmarks.settings import BenchmarkSpec, Count, DocumentsSettings, FamilySettings, LabelSource
from audit_pipeline.benchmarks.words import WordUnit, get_word_unit
from audit_pipeline.config.validation import StrictSettings
from audit_pipeline.errors import DataError
from audit_pipeline.tables import MEMBER, NON_MEMBER, digest


def draw_window_starts(n_words: int, length: int, count: int, seed: int) -> list[int]:
    """The first words of up to ``count`` windows of ``length`` words, none overlapping another, in random order.

    There are min(count, n_words // length) of them. Every set of positions that does not overlap is equally likely:
    k gaps are chosen among the words that no window covers and the k windows themselves, and widened to windows. Their
    order is random too, so that the first few are not the document's beginning.

    Only ``random.Random.random`` is drawn from: its values for a seed never change from one Python to another.
    """
    count = min(count, n_words // length)
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    slots = n_words - count * (length - 1)
    # Floyd's algorithm: every subset of `count` slots with the same probability.
    chosen: set[int] = set()
    for last in range(slots - count, slots):
        slot = int(draw.random() * (last + 1))
        chosen.add(last if slot in chosen else slot)
    starts = [slot + place * (length - 1) for place, slot in enumerate(sorted(chosen))]
    order = sorted((draw.random(), start) for start in starts)
    return [start for _, start in order]


_SIDES = {MEMBER: "member", NON_MEMBER: "non-member"}


class Match(StrictSettings):
    """Of all texts, those that are hard to separate without a model (matching.py)."""

    per_side: Count = Field(description="how many texts of each side are taken")


class TemporalSettings(DocumentsSettings):
    """Members are windows of documents published before one date, non-members of those from another date on."""

    added: ClassVar[frozenset[str]] = FamilySettings.added | {"match"}
    design_follows: ClassVar[bool] = True
    labels_from: ClassVar[LabelSource] = "dates"
    cutoffs: ClassVar[Mapping[str, date]] = {"member_before": date.min, "nonmember_from": date.max}

    builder: Literal["temporal"]
    member_before: date = Field(
        description="members are published before this day: a date, or words such as 2 years before today"
    )
    nonmember_from: date = Field(
        description="non-members are published on this day or later: a date, or words such as 90 days before today"
    )
    per_side: Count | None = Field(
        default=None, description="at most so many members, and as many non-members; None: all"
    )
    balance: Literal["collection", "none"] = Field(
        default="collection",
        description="collection: as many members as non-members of each project, series or folder; none: as they come",
    )
    match: Match | None = Field(default=None, description="so many per side that resemble each other; None: all")
    design: Literal["temporal"] = "temporal"

    @property
    def cutoff_dates(self) -> tuple[date, date]:
        return self.member_before, self.nonmember_from

    @property
    def is_balanced(self) -> bool:
        # Matched sides are chosen out of balanced ones, whatever their collections.
        return self.balance == "collection" and self.match is None

    @model_validator(mode="after")
    def _require_sides_apart(self) -> Self:
        if self.nonmember_from < self.member_before:
            raise ValueError(
                f"nonmember_from {self.nonmember_from} is before member_before {self.member_before}: "
                "a document could be on both sides"
            )
        return self


def draw_temporal_windows(documents: pa.Table, spec: BenchmarkSpec, run_id: str) -> DrawnExamples:
    """The examples of ``spec`` out of ``documents`` (schema DOCUMENTS, any order; several sources as one table).

    Up to windows_per_document windows of exactly ``spec.words`` words are drawn from every dated document, at positions
    that depend on nothing but (seed, family, document_id) and the document. A text that was drawn twice on one side is
    kept once, one that was drawn on both sides on neither. Then sides are evened out within each collection, and cut
    to per_side with collections kept as even as they can be; documents take turns, so that no second window of a
    document is taken before the first of all others. Where the entry asks for matched sides, these are chosen out of
    what is left then, and ``notes`` says under ``matched`` what that achieved.

    Raises DataError where a side is left empty, or too small to be matched, or if a document id occurs twice.
    """
    settings = spec.require_settings(TemporalSettings)
    documents_left_out: Counter[str] = Counter()
    texts_left_out: Counter[str] = Counter()
    unit = get_word_unit(settings.unit)

    windows: list[LabelledText] = []
    for document in sort_by_id(documents):
        label, reason = _label_document(document, settings)
        if reason is None:
            words = unit.split(document["text"])
            if len(words) < spec.length:
                reason = f"{_SIDES[label]}, shorter than {spec.length} words"
        if reason is not None:
            documents_left_out[reason] += 1
            continue
        windows += _draw_document_windows(document, label, words, spec, settings, unit, texts_left_out)

    kept = drop_repeated_texts(windows, texts_left_out, "on both sides", "the same as another on its side")
    labels = {window.label for window in kept}
    if missing := [side for label, side in _SIDES.items() if label not in labels]:
        reasons = format_left_out(documents_left_out + texts_left_out)
        raise DataError(
            f"{spec.name}: no {missing[0]} text is left{f' (left out: {reasons})' if reasons else ''}; "
            "move the cutoff, shorten the windows or add documents"
        )
    chosen = _select_windows(kept, spec, settings, texts_left_out)
    if not chosen:
        raise DataError(
            f"{spec.name}: no collection has texts on both sides, so nothing is left once they are balanced; "
            "set balance: none, or add documents"
        )
    notes: dict[str, Any] = {}
    if settings.match is not None:
        pool = len(chosen)
        chosen, notes[MATCHED] = _match_pool(chosen, settings.match.per_side, spec, settings)
        texts_left_out["not matched"] += pool - len(chosen)
    return DrawnExamples(
        build_examples_table(chosen, spec, run_id),
        sort_nonzero_counts(documents_left_out),
        sort_nonzero_counts(texts_left_out),
        notes=notes,
    )


def _match_pool(
    pool: Sequence[LabelledText], per_side: int, spec: BenchmarkSpec, settings: TemporalSettings
) -> tuple[list[LabelledText], dict[str, Any]]:
    """The texts of ``pool`` that are hard to separate, and what choosing them achieved, as JSON values."""
    # A second of importing, for what few entries ask for.
    from audit_pipeline.splits.matching import match_sides  # noqa: PLC0415

    languages = Counter(text.language for text in pool)
    try:
        matched = match_sides(
            [text.text for text in pool],
            [int(text.label == MEMBER) for text in pool],
            [text.group for text in pool],
            per_side,
            settings.seed,
            max(sorted(languages), key=lambda language: languages[language]),
        )
    except DataError as error:
        raise DataError(f"{spec.name}: {error}") from error
    measured = {name: getattr(matched, name) for name in ("before", "at_random", "after", "after_by_all")}
    achieved = {
        name: {
            "blind_auroc": control.value,
            "ci_low": control.interval.low,
            "ci_high": control.interval.high,
            "n": control.n,
            "method": control.method,
        }
        for name, control in measured.items()
    }
    return [pool[index] for index in matched.indices], {
        "per_side": per_side,
        "texts_to_choose_from": len(pool),
        "pairs_beyond_caliper": matched.beyond_caliper,
        "achieved": achieved,
    }


def _label_document(document: Mapping[str, Any], settings: TemporalSettings) -> tuple[int, str | None]:
    """The document's label and None; or any label and the reason why it is on neither side."""
    published: date | None = document["published"]
    if settings.language is not None and document["language"] != settings.language:
        return NON_MEMBER, f"not in the language {settings.language}"
    if published is None:
        return NON_MEMBER, "undated"
    if published < settings.member_before:
        return MEMBER, None
    # What was written before it was published may have been known before: the earliest day decides.
    if (document["earliest"] or published) >= settings.nonmember_from:
        return NON_MEMBER, None
    return NON_MEMBER, "published between the cutoffs"


def _draw_document_windows(
    document: Mapping[str, Any],
    label: int,
    words: Sequence[str],
    spec: BenchmarkSpec,
    settings: TemporalSettings,
    unit: WordUnit,
    left_out_counts: Counter[str],
) -> list[LabelledText]:
    """The document's windows in the random order of their drawing."""
    seed = int(digest(settings.seed, spec.family, "windows", document["document_id"]), 16)
    windows: list[LabelledText] = []
    for start in draw_window_starts(len(words), spec.length, settings.windows_per_document, seed):
        text = unit.join(words[start : start + spec.length])
        # Where words are a matter of context (jieba), the window by itself may be segmented otherwise.
        if len(unit.split(text)) != spec.length:
            left_out_counts["another number of words when taken by itself"] += 1
            continue
        windows.append(LabelledText.from_row(document, text, label))
    return windows


def _select_windows(
    windows: Sequence[LabelledText], spec: BenchmarkSpec, settings: TemporalSettings, left_out_counts: Counter[str]
) -> list[LabelledText]:
    """The windows that stay: members first, by collection, documents taking turns in seeded order."""
    ranks: Counter[str] = Counter()
    turns: list[tuple[int, str]] = []
    for window in windows:
        turns.append((ranks[window.document_id], digest(settings.seed, spec.family, "turn", window.document_id)))
        ranks[window.document_id] += 1
    heaps: dict[tuple[int | None, str], list[LabelledText]] = defaultdict(list)
    for _, window in sorted(zip(turns, windows, strict=True), key=itemgetter(0)):
        heaps[window.label, window.collection].append(window)
    collections = sorted({collection for _, collection in heaps})
    sizes = {side: {name: len(heaps[side, name]) for name in collections} for side in _SIDES}
    if settings.balance == "collection":
        both = {name: min(sizes[side][name] for side in _SIDES) for name in collections}
        left_out_counts["more than the other side has of the collection"] += len(windows) - 2 * sum(both.values())
        sizes = dict.fromkeys(_SIDES, both)

    chosen: list[LabelledText] = []
    for side in _SIDES:
        available = sum(sizes[side].values())
        quotas = compute_even_quotas(sizes[side], available if settings.per_side is None else settings.per_side)
        left_out_counts["over per_side"] += available - sum(quotas.values())
        for name in collections:
            chosen += heaps[side, name][: quotas[name]]
    return chosen


BUILDER = Builder(1, TemporalSettings, read_documents_of, draw_temporal_windows)
