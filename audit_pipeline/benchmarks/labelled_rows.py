"""Rows of a table that this project did not make: which of them can be used, and their labelled texts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from audit_pipeline.benchmarks.builder_interface import (
    UNDATED,
    BuilderInputs,
    DrawnExamples,
    LabelledText,
    Provenance,
    build_examples_table,
    summarise_rows,
)
from audit_pipeline.benchmarks.row_settings import GroupedRowsSettings, RowsSettings
from audit_pipeline.benchmarks.rows_origin import read_origin
from audit_pipeline.benchmarks.settings import BenchmarkSpec
from audit_pipeline.benchmarks.words import WordUnit, get_word_unit
from audit_pipeline.errors import DataError
from audit_pipeline.readers.dates import UnreadableDateError, parse_dating
from audit_pipeline.readers.labels import shorten_spelling
from audit_pipeline.readers.text_rows import (
    Row,
    RowFile,
    Skipped,
    UnusableRowError,
    column_names,
    explain_unusable_text,
)
from audit_pipeline.splits.shared_text import build_comparison_key, find_texts_on_both_sides, normalise_text
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import MEMBER, NON_MEMBER, digest, text_sha256

_LONGEST_NAME = 200


def parse_name(value: object) -> str | None:
    """The name (of a group, of a document); None where ``explain_unusable_text`` says why the value is none.

    A whole text that serves as a name, such as the passage of several questions, is named by its sha256 (16 digits).
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or explain_unusable_text(value) is not None:
        return None
    name = value.strip()
    return text_sha256(name)[:16] if len(name) > _LONGEST_NAME else name


NOT_CHOSEN = "not what `where` asks for"

_GROUP_WORDS = 32
_BY_CHANCE = ("randomised", "exchangeable")


@dataclass(frozen=True)
class LabelledRows:
    """The rows of one length that can be used, in their order, and those that cannot.

    ``origin`` says where they were read; ``version`` is a digest of their content, the same wherever they are stored.
    ``left_out`` counts usable rows that the entry does not select, by reason. ``undated`` are usable rows whose date is
    left out: it cannot be read, or it is a month or a year, which no column of the examples can hold.
    """

    texts: tuple[LabelledText, ...]
    skipped: tuple[Skipped, ...]
    origin: str
    version: str
    left_out: Mapping[str, int] = field(default_factory=dict)
    undated: tuple[Skipped, ...] = ()


@dataclass(frozen=True)
class Reading:
    """How a builder reads a row: its text, its label, and what else must be true. All raise UnusableRowError.

    ``place`` is what a row itself says of where its text belongs, by fields of LabelledText (context, split,
    collection, language); the benchmark's entry says for all rows what it does not say. None: no row says anything.
    ``columns`` are those that some row must have. ``lengths`` are the accepted numbers of words, None: any.
    ``beginning`` is the number of words that say which document a row without an id is of; None: all of them.
    ``has_splits``: the rows name their splits, as those of a finished benchmark do. Such a benchmark is read back with
    the texts that it has, so only case and white space are levelled before its texts are compared.
    """

    text: Callable[[Row], str]
    label: Callable[[Row], int | None]
    place: Callable[[Row], Mapping[str, Any]] | None = None
    columns: tuple[str | None, ...] = ()
    lengths: Sequence[int] | None = None
    most_words: int | None = None
    beginning: int | None = _GROUP_WORDS
    has_splits: bool = False

    def build_key(self, text: str) -> str:
        """Return what texts share if they are one text on both sides."""
        return normalise_text(text) if self.has_splits else build_comparison_key(text)


def build_rows_inputs(
    spec: BenchmarkSpec, rows: LabelledRows, provenance: Sequence[Provenance]
) -> BuilderInputs[LabelledRows]:
    """Rows as what a benchmark is built from: their version under the name of where they come from."""
    settings = spec.require_settings(RowsSettings)
    kind = settings.date_kind if isinstance(settings, GroupedRowsSettings) else None
    name = settings.hub or (settings.package.distribution if settings.package else spec.family)
    entries = tuple({**entry, "kind of date": kind or "not dated"} for entry in provenance)
    return BuilderInputs(rows, {name: rows.version}, entries, rows.origin)


def read_rows_inputs(spec: BenchmarkSpec, paths: DataPaths, reading: Reading) -> BuilderInputs[LabelledRows]:
    """The rows of ``spec`` that ``reading`` can use, from the place that its environment variable names, else its path,
    hub or package.

    Raises DataError (SourceError) where they cannot be read, where a column is missing altogether, and where no row can
    be used.
    """
    settings = spec.require_settings(RowsSettings)
    found = read_origin(settings, next(iter(settings.parts), None), spec.words, paths.downloads)
    return build_rows_inputs(spec, build_labelled_rows(found.file, found.origin, spec, reading), (found.provenance,))


def examples_from_rows(rows: LabelledRows, spec: BenchmarkSpec, run_id: str) -> DrawnExamples:
    """The examples of ``spec``: every usable row once.

    Raises DataError where all labelled rows have the same label: no metric would be defined. Rows of which none is
    labelled are fine, and so are unlabelled rows among labelled ones, or together with rows for calibration only.
    """
    refuse_single_class(rows, spec)
    reasons = Counter(skipped.reason for skipped in rows.skipped) + Counter(rows.left_out)
    notes = {UNDATED: summarise_rows(rows.undated)} if rows.undated else {}
    return DrawnExamples(
        build_examples_table(rows.texts, spec, run_id), {}, dict(sorted(reasons.items())), rows.skipped, notes
    )


def refuse_single_class(rows: LabelledRows, spec: BenchmarkSpec) -> None:
    """Raise DataError if rows are labelled, and all of them the same.

    Known texts for calibration may all have one label: unlabelled texts are compared with them, as those of a shelf.
    """
    labelled = [text for text in rows.texts if text.label is not None]
    if len(labelled) < len(rows.texts) and all(text.split == "calibration" for text in labelled):
        return
    labels = Counter(text.label for text in labelled)
    if len(labels) == 1:
        ((label, count),) = labels.items()
        side = "members" if label == MEMBER else "non-members"
        unlabelled = spec.require_settings(RowsSettings).may_be_unlabelled
        raise DataError(
            f"{spec.name}: all {count} labelled rows of {rows.origin} are {side}, so no metric would be defined; "
            "add rows of the other side"
            + (", or set label_column: null to have them scored without labels" if unlabelled else "")
        )


def build_labelled_rows(file: RowFile, origin: str, spec: BenchmarkSpec, reading: Reading) -> LabelledRows:
    """The rows that ``reading`` can use and the settings' ``where`` asks for; each text once.

    Without an id column, texts that begin with the same 32 words are of one document, and without a group column a
    document is a group of its own: so rows of different lengths that were cut from one article share it. A text that
    occurs twice (after the same context) with one label is kept once, one that has different labels not at all: equal
    after levelling case and white space, and where chance decides the labels nearly equal, too. Which of two is kept
    depends on nothing but what they say, and where they say the same on their order.

    Raises DataError where a column is missing altogether, and where no row can be used.
    """
    settings = spec.require_settings(RowsSettings)
    columns = column_names(file.rows)
    grouped = settings if isinstance(settings, GroupedRowsSettings) else None
    names = (settings.id_column, *((grouped.group_column, grouped.date_column) if grouped else ()))
    for column in (*reading.columns, *names, *(column for column, _ in settings.where)):
        if column is not None and column not in columns:
            raise DataError(f"{origin}: no column '{column}'; the columns are: {', '.join(columns) or 'none'}")
    selected = [row for row in file.rows if all(_has_value(row, column, value) for column, value in settings.where)]
    unit = get_word_unit(settings.unit)
    found: list[tuple[Row, LabelledText]] = []
    unusable: list[Skipped] = []
    undated: list[Skipped] = []
    for row in selected:
        published, problem = _read_day(row, grouped.date_column if grouped else None)
        try:
            found.append((row, _build_labelled_text(row, spec, reading, unit, published)))
        except UnusableRowError as error:
            unusable.append(Skipped(row.location, row.index, str(error)))
            continue
        if problem is not None:
            undated.append(Skipped(row.location, row.index, problem))
    placed, twice = _drop_repeated_texts(found, reading)
    texts, both = _drop_conflicting_texts(placed, spec, unit, reading)
    skipped = sorted([*file.skipped, *twice, *both, *unusable], key=lambda entry: entry.index)
    left_out = {NOT_CHOSEN: len(file.rows) - len(selected)} if len(selected) < len(file.rows) else {}
    if not texts:
        first = f"; the first, {skipped[0].location}: {skipped[0].reason}" if skipped else ""
        others = f"; {left_out[NOT_CHOSEN]} others are {NOT_CHOSEN}" if left_out else ""
        raise DataError(f"{origin}: none of its {len(skipped)} rows can be used{first}{others}")
    says: list[object] = [[[text.text, text.label] for text in texts], [[row.index, row.reason] for row in skipped]]
    if any(name is not None for name in names):
        says.append([[text.document_id, text.group, str(text.published)] for text in texts])
    if reading.place is not None:
        says.append([[text.context, text.split, text.collection, text.language] for text in texts])
    return LabelledRows(tuple(texts), tuple(skipped), origin, digest(*says), left_out, tuple(undated))


def parse_label_column(row: Row, column: str | None, meanings: Mapping[str, int]) -> int | None:
    """The label in a row's column; unknown without a column, or where it is null or empty. Raises UnusableRowError.

    ``meanings`` says which values mean which label; without any, 0 and 1 do, as numbers, as floats (a column with
    nulls) and as strings (.csv, where an empty field is null).
    """
    if column is None:
        return None
    if column not in row.values:
        raise UnusableRowError(f"no column '{column}'")
    value = row.values[column]
    plain = value.strip() if isinstance(value, str) else value
    if plain is None or plain == "":
        return None
    if meanings and str(plain) in meanings:
        return meanings[str(plain)]
    if not meanings and plain in (MEMBER, str(MEMBER), NON_MEMBER, str(NON_MEMBER)):
        return MEMBER if plain in (MEMBER, str(MEMBER)) else NON_MEMBER
    # Cut: with shifted columns it may be a whole text.
    spelt = repr(shorten_spelling(value)) if isinstance(value, str) else shorten_spelling(repr(value))
    raise UnusableRowError(f"its label is {spelt}, not {', '.join(meanings or ('0', '1'))} or null")


def _has_value(row: Row, column: str, value: object) -> bool:
    cell = row.values.get(column)
    # Or as text, which is how a .csv file spells it.
    return cell == value or str(cell) == str(value)


def _drop_conflicting_texts(
    rows_with_texts: Sequence[tuple[Row, LabelledText]], spec: BenchmarkSpec, unit: WordUnit, reading: Reading
) -> tuple[list[LabelledText], list[Skipped]]:
    """Return the texts that are on one side only, in their order, and the rows of the others.

    If chance decides the labels, claims rest on nothing else differing: near-duplicates on both sides are dropped, too.
    """
    threshold = spec.settings.near_duplicate_threshold if spec.design in _BY_CHANCE else 1.0
    texts = [f"{text.context or ''}{text.text}" for _, text in rows_with_texts]
    labels = [text.label for _, text in rows_with_texts]
    both = {*find_texts_on_both_sides(texts, [""] * len(texts), labels, threshold, unit.split, reading.build_key)}
    why = "the same text, or nearly, occurs elsewhere with another label"
    skipped = [Skipped(row.location, row.index, why) for place, (row, _) in enumerate(rows_with_texts) if place in both]
    return [text for place, (_, text) in enumerate(rows_with_texts) if place not in both], skipped


def _drop_repeated_texts(
    rows_with_texts: Sequence[tuple[Row, LabelledText]], reading: Reading
) -> tuple[list[tuple[Row, LabelledText]], list[Skipped]]:
    """Return each text once, with its row, in the order of the rows, and the rows that repeat a text.

    A text in another spelling is the same text, but not in a finished benchmark, which has its texts as they are.
    """
    keys = [(text.context or "", text.text) for _, text in rows_with_texts]
    if not reading.has_splits:
        keys = [(build_comparison_key(context), build_comparison_key(text)) for context, text in keys]
    labels: dict[tuple[str, str], set[int | None]] = defaultdict(set)
    kept: dict[tuple[str, str], tuple[str, str, str, int]] = {}
    for read, (row, text) in zip(keys, rows_with_texts, strict=True):
        labels[read].add(text.label)
        rank = (text.document_id, text.group, str(text.published), row.index)
        kept[read] = min(kept.get(read, rank), rank)
    texts: list[tuple[Row, LabelledText]] = []
    twice: list[Skipped] = []
    for read, (row, text) in zip(keys, rows_with_texts, strict=True):
        *_, index = kept[read]
        if len(labels[read]) > 1:
            twice.append(Skipped(row.location, row.index, "the same text occurs elsewhere with another label"))
        elif index == row.index:
            texts.append((row, text))
        else:
            which = "an earlier" if index < row.index else "a later"
            twice.append(Skipped(row.location, row.index, f"the same as {which} row"))
    return texts, twice


def _read_day(row: Row, column: str | None) -> tuple[date | None, str | None]:
    """Return the day in ``column`` and None, or None and the reason why a date that is there is left out."""
    try:
        dating = None if column is None else parse_dating(row.values.get(column))
    except UnreadableDateError as error:
        return None, f"column '{column}': {error}"
    if dating is not None and dating.earliest is not None:
        return None, f"column '{column}': {row.values.get(column or '')!r} is more than one day"
    return None if dating is None else dating.published, None


def _build_labelled_text(
    row: Row, spec: BenchmarkSpec, reading: Reading, unit: WordUnit, published: date | None
) -> LabelledText:
    """Raises UnusableRowError."""
    settings = spec.require_settings(RowsSettings)
    text = reading.text(row)
    words = unit.split(text)
    if reading.lengths is not None and len(words) not in reading.lengths:
        raise UnusableRowError(f"has {len(words)} words, not {' or '.join(map(str, reading.lengths))}")
    if reading.most_words is not None and len(words) > reading.most_words:
        raise UnusableRowError(f"has {len(words)} words, more than {reading.most_words}")
    label = reading.label(row)
    if settings.id_column is None:
        document = text_sha256(unit.join(words[: reading.beginning]))[:16]
    else:
        document = _parse_name_column(row, settings.id_column)
    group = document
    if isinstance(settings, GroupedRowsSettings) and settings.group_column is not None:
        group = _parse_name_column(row, settings.group_column)
    place: dict[str, Any] = {"collection": spec.family, "language": settings.language}
    if reading.place is not None:
        place |= reading.place(row)
    return LabelledText(
        document_id=f"{spec.family}:{document}",
        group=f"{spec.family}:{group}",
        text=text,
        label=label,
        published=published,
        **place,
    )


def _parse_name_column(row: Row, column: str) -> str:
    name = parse_name(row.values.get(column))
    if name is None:
        raise UnusableRowError(f"column '{column}' {explain_unusable_text(row.values.get(column))}")
    return name
