"""The temporal builder: members and non-members by the dates of their documents.

The sides may differ in more than membership, because texts of different dates differ. The blind controls in splits/
measure these differences.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import date
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from audit_pipeline.benchmarks import builder_interface
from audit_pipeline.benchmarks.builder_interface import (
    MATCHED,
    Builder,
    DrawnExamples,
    LabelledText,
    compute_even_quotas,
)
from audit_pipeline.benchmarks.settings import (
    BenchmarkSpec,
    Count,
    DocumentsSettings,
    FamilySettings,
    LabelSource,
    WordUnit,
    get_word_unit,
)
from audit_pipeline.config.validation import StrictSettings
from audit_pipeline.errors import DataError
from audit_pipeline.tables import MEMBER, NON_MEMBER, digest


def draw_window_starts(n_words: int, length: int, count: int, seed: int) -> list[int]:
    """Draw the positions of up to ``count`` non-overlapping windows of ``length`` words in a document.

    There are k = min(count, n_words // length) windows. Every set of non-overlapping positions is equally likely. To
    achieve this, the document is shortened so that each window has one word. Then k positions are drawn without
    replacement, and each position becomes the start of a window again. The order is random, too, so that the first
    windows are not always from the beginning of the document.

    Only ``random.Random.random`` is used, because its values for a seed are the same in all versions of Python.

    Args:
        n_words: The number of words of the document.
        length: The length of a window in words.
        count: Maximum number of windows.
        seed: The seed.

    Returns:
        The position of the first word of each window, in random order.
    """
    count = min(count, n_words // length)
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    n_slots = n_words - count * (length - 1)
    # Floyd's algorithm draws every subset of `count` slots with the same probability.
    chosen: set[int] = set()
    for last in range(n_slots - count, n_slots):
        slot = int(draw.random() * (last + 1))
        chosen.add(last if slot in chosen else slot)
    order = []
    for index, slot in enumerate(sorted(chosen)):
        order.append((draw.random(), slot + index * (length - 1)))
    return list(map(itemgetter(1), sorted(order)))


_SIDES = {MEMBER: "member", NON_MEMBER: "non-member"}


class Match(StrictSettings):
    """Settings of matching: the choice of texts that are hard to separate without a model (splits/matching.py)."""

    per_side: Count = Field(description="number of texts to choose from each side")


class TemporalSettings(DocumentsSettings):
    """Settings of windows of documents: members are published before one date, non-members on or after another date."""

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
    per_side: Count | None = Field(default=None, description="maximum number of members, and of non-members; None: all")
    balance: Literal["collection", "none"] = Field(
        default="collection",
        description="collection: as many members as non-members of each project, series or folder; none: all texts",
    )
    match: Match | None = Field(
        default=None, description="choose texts of the two sides that resemble each other; None: all texts"
    )
    design: Literal["temporal"] = "temporal"

    @property
    def cutoff_dates(self) -> tuple[date, date]:
        """Return two days: members are published before the first, non-members on the second or later."""
        return self.member_before, self.nonmember_from

    @property
    def is_balanced(self) -> bool:
        """Return True if every collection has as many members as non-members.

        Matching chooses from balanced sides without regard to collections, so matched sides are not balanced.
        """
        return self.balance == "collection" and self.match is None

    @model_validator(mode="after")
    def _require_sides_apart(self) -> Self:
        if self.nonmember_from < self.member_before:
            raise ValueError(
                f"nonmember_from {self.nonmember_from} is before member_before {self.member_before}: "
                "a document could be on both sides. Set a later nonmember_from or an earlier member_before."
            )
        return self


def draw_temporal_windows(documents: pa.Table, spec: BenchmarkSpec, run_id: str) -> DrawnExamples:
    """Draw the examples of a temporal benchmark.

    1. Every dated document yields up to windows_per_document windows of exactly ``spec.words`` words. Their positions
       depend only on (seed, family, document_id) and the document.
    2. A text that is drawn twice on one side is used once. A text that is drawn on both sides is not used.
    3. If ``balance`` is set, the sides are balanced within each collection.
    4. The sides are cut to per_side, with collections as even as possible. Documents take turns, so that a second
       window of a document is used only after the first windows of all others.
    5. If the entry requests matched sides, they are chosen from these texts. ``notes`` holds the effect under
       ``matched``.

    Args:
        documents: The documents of all sources (schema DOCUMENTS, in any order).
        spec: The benchmark.
        run_id: The id of the run.

    Raises:
        DataError: If a side is empty or too small for matching, or if a document id occurs twice.
    """
    settings = spec.require_settings(TemporalSettings)
    documents_left_out: Counter[str] = Counter()
    texts_left_out: Counter[str] = Counter()
    windows = _draw_all_windows(
        builder_interface.sort_by_id(documents), spec, settings, documents_left_out, texts_left_out
    )
    distinct = builder_interface.drop_repeated_texts(
        windows, texts_left_out, "on both sides", "the same as another text on its side"
    )
    labels = {window.label for window in distinct}
    for label, side in _SIDES.items():
        if label not in labels:
            reasons = builder_interface.format_left_out(documents_left_out + texts_left_out)
            suffix = ""
            if reasons:
                suffix = f" (skipped: {reasons})"
            raise DataError(
                f"{spec.name}: no {side} text remains{suffix}. Move the cutoff, shorten the windows or add documents."
            )
    chosen = _select_windows(distinct, spec, settings, texts_left_out)
    if not chosen:
        raise DataError(
            f"{spec.name}: no collection has texts on both sides, so balancing removes all texts. "
            "Set balance: none, or add documents."
        )
    notes: dict[str, Any] = {}
    if settings.match is not None:
        n_before = len(chosen)
        chosen, notes[MATCHED] = _match_texts(chosen, settings.match.per_side, spec, settings)
        texts_left_out["not matched"] += n_before - len(chosen)
    return DrawnExamples(
        builder_interface.build_examples_table(chosen, spec, run_id),
        builder_interface.sort_nonzero_counts(documents_left_out),
        builder_interface.sort_nonzero_counts(texts_left_out),
        notes=notes,
    )


def _draw_all_windows(
    documents: Sequence[Mapping[str, Any]],
    spec: BenchmarkSpec,
    settings: TemporalSettings,
    documents_left_out: Counter[str],
    texts_left_out: Counter[str],
) -> list[LabelledText]:
    """Draw the windows of all documents. The function updates both counters."""
    unit = get_word_unit(settings.unit)
    windows: list[LabelledText] = []
    for document in documents:
        label, reason = _label_document(document, settings)
        if reason is not None:
            documents_left_out[reason] += 1
            continue
        words = unit.split(document["text"])
        if len(words) < spec.length:
            documents_left_out[f"{_SIDES[label]}, shorter than {spec.length} words"] += 1
            continue
        windows += _draw_document_windows(document, label, words, spec, settings, unit, texts_left_out)
    return windows


def _match_texts(
    pool: Sequence[LabelledText], per_side: int, spec: BenchmarkSpec, settings: TemporalSettings
) -> tuple[list[LabelledText], dict[str, Any]]:
    """Choose ``per_side`` texts of each side that are hard to separate.

    Returns:
        The chosen texts, and the effect of the choice as JSON values for the manifest.
    """
    # The import is local because it takes a second and few entries request matching.
    from audit_pipeline.splits.matching import match_sides  # noqa: PLC0415

    texts = []
    labels = []
    groups = []
    for text in pool:
        texts.append(text.text)
        labels.append(int(text.label == MEMBER))
        groups.append(text.group)
    languages = Counter(map(attrgetter("language"), pool))
    main_language = max(sorted(languages), key=lambda language: languages[language])
    try:
        matched = match_sides(texts, labels, groups, per_side, settings.seed, main_language)
    except DataError as error:
        raise DataError(f"{spec.name}: {error}") from error
    achieved = {}
    for name in ("before", "at_random", "after", "after_by_all"):
        control = getattr(matched, name)
        achieved[name] = {
            "blind_auroc": control.value,
            "ci_low": control.interval.low,
            "ci_high": control.interval.high,
            "n": control.n,
            "method": control.method,
        }
    return [pool[index] for index in matched.indices], {
        "per_side": per_side,
        "texts_to_choose_from": len(pool),
        "pairs_beyond_caliper": matched.beyond_caliper,
        "achieved": achieved,
    }


def _label_document(document: Mapping[str, Any], settings: TemporalSettings) -> tuple[int, str | None]:
    """Return the label of a document and None, or any label and the reason why the document is on neither side."""
    published: date | None = document["published"]
    if settings.language is not None and document["language"] != settings.language:
        return NON_MEMBER, f"not in the language {settings.language}"
    if published is None:
        return NON_MEMBER, "undated"
    if published < settings.member_before:
        return MEMBER, None
    # The model may have read a text before its publication if the text existed earlier. So the earliest day decides.
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
    """Draw the windows of a document. They are in random order."""
    seed = int(digest(settings.seed, spec.family, "windows", document["document_id"]), 16)
    windows: list[LabelledText] = []
    for start in draw_window_starts(len(words), spec.length, settings.windows_per_document, seed):
        text = unit.join(words[start : start + spec.length])
        # jieba depends on context. It may segment the window alone into other words.
        if len(unit.split(text)) != spec.length:
            left_out_counts["with another number of words when segmented alone"] += 1
            continue
        windows.append(LabelledText.from_row(document, text, label))
    return windows


def _select_windows(
    windows: Sequence[LabelledText], spec: BenchmarkSpec, settings: TemporalSettings, left_out_counts: Counter[str]
) -> list[LabelledText]:
    """Select the windows of both sides, members first, by collection.

    Documents take turns in an order that depends on the seed.
    """
    collections = sorted({window.collection for window in windows})
    queues = _queue_windows(windows, spec, settings)
    sizes: dict[int, dict[str, int]] = {}
    for label in _SIDES:
        sizes[label] = {name: len(queues[label, name]) for name in collections}
    if settings.balance == "collection":
        smaller = {name: min(sizes[MEMBER][name], sizes[NON_MEMBER][name]) for name in collections}
        left_out_counts["more than the other side has in the collection"] += len(windows) - 2 * sum(smaller.values())
        sizes = dict.fromkeys(_SIDES, smaller)

    chosen: list[LabelledText] = []
    for label in _SIDES:
        available = sum(sizes[label].values())
        per_side = settings.per_side
        if per_side is None:
            per_side = available
        quotas = compute_even_quotas(sizes[label], per_side)
        left_out_counts["beyond the limit per_side"] += available - sum(quotas.values())
        for name in collections:
            chosen += queues[label, name][: quotas[name]]
    return chosen


def _queue_windows(
    windows: Sequence[LabelledText], spec: BenchmarkSpec, settings: TemporalSettings
) -> dict[tuple[int | None, str], list[LabelledText]]:
    """Return the windows by label and collection, in the order in which documents take turns."""
    ranks: Counter[str] = Counter()
    turns: list[tuple[int, str]] = []
    for window in windows:
        turns.append((ranks[window.document_id], digest(settings.seed, spec.family, "turn", window.document_id)))
        ranks[window.document_id] += 1
    queues: dict[tuple[int | None, str], list[LabelledText]] = defaultdict(list)
    for _, window in sorted(zip(turns, windows, strict=True), key=itemgetter(0)):
        queues[window.label, window.collection].append(window)
    return queues


BUILDER = Builder(1, TemporalSettings, builder_interface.read_source_documents, draw_temporal_windows)
