"""The conversion of published rows to labelled texts: the selection of usable rows, and their labels."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from audit_pipeline.benchmarks import builder_interface
from audit_pipeline.benchmarks.builder_interface import UNDATED, BuilderInputs, DrawnExamples, LabelledText, Provenance
from audit_pipeline.benchmarks.conversation_rows import render_without_system
from audit_pipeline.benchmarks.row_settings import GroupedRowsSettings, RowsSettings, Where
from audit_pipeline.benchmarks.rows_origin import read_origin
from audit_pipeline.benchmarks.settings import BenchmarkSpec, WordUnit, get_word_unit
from audit_pipeline.errors import DataError
from audit_pipeline.readers.dates import UnreadableDateError, parse_dating
from audit_pipeline.readers.labels import shorten_spelling
from audit_pipeline.readers.text_rows import (
    Row,
    RowFile,
    Skipped,
    UnusableRowError,
    explain_unusable_text,
    list_columns,
)
from audit_pipeline.splits.shared_text import build_comparison_key, find_texts_on_both_sides, normalise_text
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import MEMBER, NON_MEMBER, digest, text_sha256

_MAX_NAME_LENGTH = 200


def parse_name(value: object) -> str | None:
    """Return the name of a group or document, or None if the value is no name (see ``explain_unusable_text``).

    A long text that serves as a name, such as the passage of several questions, is replaced by 16 digits of its sha256.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or explain_unusable_text(value) is not None:
        return None
    name = value.strip()
    if len(name) > _MAX_NAME_LENGTH:
        return text_sha256(name)[:16]
    return name


NOT_CHOSEN = "not selected by `where`"

_ID_WORDS = 32
_CHANCE_DESIGNS = ("randomised", "exchangeable")


@dataclass(frozen=True)
class LabelledRows:
    """The usable and the unusable rows of one length.

    Attributes:
        texts: The texts of the usable rows, in order.
        skipped: The unusable rows.
        origin: The location that the rows were read from.
        version: A digest of the content of the rows. It does not depend on the location.
        left_out: The number of usable rows that the entry does not select, by reason.
        undated: Usable rows whose date is omitted, because it is unreadable, or because it is a month or year and not a
            day.
    """

    texts: tuple[LabelledText, ...]
    skipped: tuple[Skipped, ...]
    origin: str
    version: str
    left_out: Mapping[str, int] = field(default_factory=dict)
    undated: tuple[Skipped, ...] = ()


@dataclass(frozen=True)
class RowReader:
    """The functions and rules by which a builder reads rows. The functions raise UnusableRowError for unusable rows.

    Attributes:
        read_text: A function that returns the text of a row.
        read_label: A function that returns the label of a row.
        read_assignment: A function that returns fields of LabelledText (such as context, split and language) from a
            row. It is None if the benchmark's entry determines these fields for all rows.
        columns: The columns that at least one row must have.
        lengths: The accepted numbers of words, or None for any length.
        max_words: Maximum number of words, or None.
        beginning: The number of words that identify the document of a row without an id, or None for all words.
        has_splits: True if the rows are those of a finished benchmark with splits. Its texts must be read back
            unchanged. So two texts count as equal only if they differ in nothing but case and white space.
    """

    read_text: Callable[[Row], str]
    read_label: Callable[[Row], int | None]
    read_assignment: Callable[[Row], Mapping[str, Any]] | None = None
    columns: tuple[str | None, ...] = ()
    lengths: Sequence[int] | None = None
    max_words: int | None = None
    beginning: int | None = _ID_WORDS
    has_splits: bool = False

    def build_key(self, text: str) -> str:
        """Return the key by which a text is compared with texts of the other side. Equal texts have the same key."""
        if self.has_splits:
            return normalise_text(text)
        return build_comparison_key(text)


def build_rows_inputs(
    spec: BenchmarkSpec, rows: LabelledRows, provenance: Sequence[Provenance]
) -> BuilderInputs[LabelledRows]:
    """Return rows as the inputs of a benchmark. Their version is stored under the name of their origin."""
    settings = spec.require_settings(RowsSettings)
    date_kind = None
    if isinstance(settings, GroupedRowsSettings):
        date_kind = settings.date_kind
    name = settings.hub or spec.family
    if settings.hub is None and settings.package is not None:
        name = settings.package.distribution
    entries = tuple({**entry, "kind of date": date_kind or "not dated"} for entry in provenance)
    return BuilderInputs(rows, {name: rows.version}, entries, rows.origin)


def read_rows_inputs(spec: BenchmarkSpec, paths: DataPaths, reader: RowReader) -> BuilderInputs[LabelledRows]:
    """Read the usable rows of a benchmark from its environment variable, path, hub or package.

    Raises:
        DataError: If the rows are unreadable, a column is missing in all rows, or no row is usable.
        SourceError: If the package that holds the rows is unreadable.
    """
    settings = spec.require_settings(RowsSettings)
    part = next(iter(settings.parts), None)
    origin_rows = read_origin(settings, part, spec.words, paths.downloads)
    rows = build_labelled_rows(origin_rows.file, origin_rows.origin, spec, reader)
    return build_rows_inputs(spec, rows, (origin_rows.provenance,))


def build_examples_from_rows(rows: LabelledRows, spec: BenchmarkSpec, run_id: str) -> DrawnExamples:
    """Return every usable row once as an example.

    Rows may be labelled, unlabelled, or a mixture of both. In a mixture, all labelled rows may be for calibration.

    Raises:
        DataError: If all labelled rows have the same label, so that no metric would be defined.
    """
    refuse_single_class(rows, spec)
    reasons = Counter(skipped.reason for skipped in rows.skipped) + Counter(rows.left_out)
    notes = {}
    if rows.undated:
        notes[UNDATED] = builder_interface.summarise_rows(rows.undated)
    return DrawnExamples(
        builder_interface.build_examples_table(rows.texts, spec, run_id),
        {},
        dict(sorted(reasons.items())),
        rows.skipped,
        notes,
    )


def refuse_single_class(rows: LabelledRows, spec: BenchmarkSpec) -> None:
    """Raise DataError if there are labelled rows and all have the same label.

    The same label is allowed if all labelled rows are for calibration and others are unlabelled. The unlabelled texts
    are then compared with the labelled texts, as in a shelf.
    """
    labelled = [text for text in rows.texts if text.label is not None]
    if len(labelled) < len(rows.texts) and all(text.split == "calibration" for text in labelled):
        return
    labels = {text.label for text in labelled}
    if len(labels) != 1:
        return
    side = "members" if MEMBER in labels else "non-members"
    advice = "Add rows of the other side"
    if spec.require_settings(RowsSettings).may_be_unlabelled:
        advice += ", or set label_column: null to score the rows without labels"
    raise DataError(
        f"{spec.name}: all {len(labelled)} labelled rows of {rows.origin} are {side}, so no metric would be defined. "
        f"{advice}."
    )


def build_labelled_rows(file: RowFile, origin: str, spec: BenchmarkSpec, reader: RowReader) -> LabelledRows:
    """Return the usable rows that the settings' ``where`` selects, each text once.

    Without an id column, texts with the same first 32 words belong to one document. Without a group column, each
    document is its own group. So rows of different lengths that were cut from one article share a group.

    A text that occurs twice after the same context is used once if both rows have the same label, else not at all. The
    comparison ignores differences in spelling. If chance decides the labels, nearly equal texts count as equal, too.
    The content of the rows decides which of several equal texts is used. If the rows are equal, the first is used.

    Args:
        file: The rows.
        origin: The location of the rows, for messages.
        spec: The benchmark.
        reader: The functions and rules for reader a row.

    Raises:
        DataError: If a column is missing in all rows, or if no row is usable.
    """
    settings = spec.require_settings(RowsSettings)
    group_column = None
    date_column = None
    if isinstance(settings, GroupedRowsSettings):
        group_column = settings.group_column
        date_column = settings.date_column
    name_columns = (settings.id_column, group_column, date_column)
    where_columns = [column for column, _ in settings.where]
    _require_columns(file, origin, [*reader.columns, *name_columns, *where_columns])
    selected = [row for row in file.rows if _has_values(row, settings.where)]
    unit = get_word_unit(settings.unit)
    readable: list[tuple[Row, LabelledText]] = []
    unusable: list[Skipped] = []
    undated: list[Skipped] = []
    for row in selected:
        published, problem = _read_day(row, date_column)
        try:
            readable.append((row, _build_labelled_text(row, spec, reader, unit, published)))
        except UnusableRowError as error:
            unusable.append(Skipped(row.location, row.index, str(error)))
            continue
        if problem is not None:
            undated.append(Skipped(row.location, row.index, problem))
    distinct, repeated = _drop_repeated_texts(readable, reader)
    texts, conflicting = _drop_conflicting_texts(distinct, spec, unit, reader)
    skipped = sorted([*file.skipped, *repeated, *conflicting, *unusable], key=lambda entry: entry.index)
    left_out = {}
    if len(selected) < len(file.rows):
        left_out[NOT_CHOSEN] = len(file.rows) - len(selected)
    if not texts:
        raise DataError(_explain_no_usable_row(origin, skipped, left_out))
    content: list[object] = [[[text.text, text.label] for text in texts]]
    # The reasons are part of the version, so a changed wording would make built benchmarks stale.
    content.append([[row.index, row.reason] for row in skipped])
    if name_columns != (None, None, None):
        content.append([[text.document_id, text.group, str(text.published)] for text in texts])
    if reader.read_assignment is not None:
        content.append([[text.context, text.split, text.collection, text.language] for text in texts])
    if any(text.messages for text in texts):
        content.append([text.messages for text in texts])
    return LabelledRows(tuple(texts), tuple(skipped), origin, digest(*content), left_out, tuple(undated))


def _require_columns(file: RowFile, origin: str, columns: Sequence[str | None]) -> None:
    present = list_columns(file.rows)
    for column in columns:
        if column is not None and column not in present:
            raise DataError(f"{origin}: there is no column '{column}'; the columns are: {', '.join(present) or 'none'}")


def _explain_no_usable_row(origin: str, skipped: Sequence[Skipped], left_out: Mapping[str, int]) -> str:
    message = f"{origin}: none of the {len(skipped)} rows can be used"
    if skipped:
        message += f". The first row is {skipped[0].location}: {skipped[0].reason}"
    if left_out:
        message += f". {left_out[NOT_CHOSEN]} other rows are {NOT_CHOSEN}"
    return message


def parse_label_column(row: Row, column: str | None, meanings: Mapping[str, int]) -> int | None:
    """Return the label in a row's column, or None if the label is unknown.

    Args:
        row: The row.
        column: The column, or None if no row has a label.
        meanings: The labels by value of the column. If it is empty, the values are 0 and 1: as numbers, as floats (in a
            column with nulls) or as strings (in a .csv file, in which an empty field is null).

    Raises:
        UnusableRowError: If the column is missing or the value has no meaning.
    """
    if column is None:
        return None
    if column not in row.values:
        raise UnusableRowError(f"no column '{column}'")
    value = row.values[column]
    stripped = value
    if isinstance(value, str):
        stripped = value.strip()
    if stripped is None or stripped == "":
        return None
    if meanings and str(stripped) in meanings:
        return meanings[str(stripped)]
    if not meanings and stripped in (MEMBER, str(MEMBER)):
        return MEMBER
    if not meanings and stripped in (NON_MEMBER, str(NON_MEMBER)):
        return NON_MEMBER
    # The value is shortened, because it may be a whole text if columns are shifted.
    spelling = shorten_spelling(repr(value))
    if isinstance(value, str):
        spelling = repr(shorten_spelling(value))
    raise UnusableRowError(f"its label is {spelling}, not {', '.join(meanings or ('0', '1'))} or null")


def _has_values(row: Row, where: Where) -> bool:
    for column, value in where:
        cell = row.values.get(column)
        # In a .csv file every value is a string.
        if cell != value and str(cell) != str(value):
            return False
    return True


def _drop_conflicting_texts(
    rows_with_texts: Sequence[tuple[Row, LabelledText]], spec: BenchmarkSpec, unit: WordUnit, reader: RowReader
) -> tuple[list[LabelledText], list[Skipped]]:
    """Return the texts that are on one side only, in order, and the rows of the other texts.

    If chance decides the labels, claims assume that the sides differ in nothing else. So near-duplicates on both sides
    are dropped, too. A conversation is compared without the messages of the system.
    """
    threshold = 1.0
    if spec.design in _CHANCE_DESIGNS:
        threshold = spec.settings.near_duplicate_threshold
    whole_texts = []
    answers = []
    labels = []
    for _, text in rows_with_texts:
        if text.messages is None:
            whole_texts.append(f"{text.context or ''}{text.text}")
            answers.append(whole_texts[-1])
        else:
            # Conversations often share the message of the system, and short answers.
            whole_texts.append(render_without_system(text.messages))
            answers.append(whole_texts[-1] if text.scored_part == "all" else text.text)
        labels.append(text.label)
    no_digests = [""] * len(labels)

    def find_shared(texts: Sequence[str]) -> set[int]:
        return set(find_texts_on_both_sides(texts, no_digests, labels, threshold, unit.split, reader.build_key))

    on_both_sides = find_shared(whole_texts)
    if answers != whole_texts:
        # Two conversations are nearly equal if this is true of their answers, too.
        on_both_sides &= find_shared(answers)
    usable: list[LabelledText] = []
    skipped: list[Skipped] = []
    for index, (row, text) in enumerate(rows_with_texts):
        if index in on_both_sides:
            reason = "the same text, or nearly, occurs elsewhere with another label"
            skipped.append(Skipped(row.location, row.index, reason))
        else:
            usable.append(text)
    return usable, skipped


def _drop_repeated_texts(
    rows_with_texts: Sequence[tuple[Row, LabelledText]], reader: RowReader
) -> tuple[list[tuple[Row, LabelledText]], list[Skipped]]:
    """Return each text once with its row, in the order of the rows, and the rows that repeat a text.

    Texts in different spellings are equal, except in a finished benchmark, whose texts stay unchanged.
    """
    keys = []
    for _, text in rows_with_texts:
        context = text.context or ""
        if reader.has_splits:
            keys.append((context, text.text))
        else:
            keys.append((build_comparison_key(context), build_comparison_key(text.text)))
    labels: dict[tuple[str, str], set[int | None]] = defaultdict(set)
    best_ranks: dict[tuple[str, str], tuple[str, str, str, int]] = {}
    for key, (row, text) in zip(keys, rows_with_texts, strict=True):
        labels[key].add(text.label)
        rank = (text.document_id, text.group, str(text.published), row.index)
        best_ranks[key] = min(best_ranks.get(key, rank), rank)
    distinct: list[tuple[Row, LabelledText]] = []
    repeated: list[Skipped] = []
    for key, (row, text) in zip(keys, rows_with_texts, strict=True):
        *_, chosen_index = best_ranks[key]
        if len(labels[key]) > 1:
            reason = "the same text occurs elsewhere with another label"
            repeated.append(Skipped(row.location, row.index, reason))
        elif chosen_index == row.index:
            distinct.append((row, text))
        else:
            position = "a later"
            if chosen_index < row.index:
                position = "an earlier"
            repeated.append(Skipped(row.location, row.index, f"the same as {position} row"))
    return distinct, repeated


def _read_day(row: Row, column: str | None) -> tuple[date | None, str | None]:
    """Return the day in ``column``, or the reason why a date is omitted. Both are None if there is no date."""
    if column is None:
        return None, None
    value = row.values.get(column)
    try:
        dating = parse_dating(value)
    except UnreadableDateError as error:
        return None, f"column '{column}': {error}"
    if dating is None:
        return None, None
    if dating.earliest is not None:
        return None, f"column '{column}': {value!r} is more than one day"
    return dating.published, None


def _build_labelled_text(
    row: Row, spec: BenchmarkSpec, reader: RowReader, unit: WordUnit, published: date | None
) -> LabelledText:
    """Build the text of a row, or raise UnusableRowError."""
    settings = spec.require_settings(RowsSettings)
    text = reader.read_text(row)
    words = unit.split(text)
    if reader.lengths is not None and len(words) not in reader.lengths:
        raise UnusableRowError(f"has {len(words)} words, not {' or '.join(map(str, reader.lengths))}")
    if reader.max_words is not None and len(words) > reader.max_words:
        raise UnusableRowError(f"has {len(words)} words, more than {reader.max_words}")
    label = reader.read_label(row)
    fields: dict[str, Any] = {"text": text, "collection": spec.family, "language": settings.language}
    if reader.read_assignment is not None:
        fields |= reader.read_assignment(row)
    if settings.id_column is None and fields.get("messages") is not None:
        # Conversations often share their beginning, such as the message of the system.
        document = text_sha256(fields["messages"])[:16]
    elif settings.id_column is None:
        document = text_sha256(unit.join(words[: reader.beginning]))[:16]
    else:
        document = _parse_name_column(row, settings.id_column)
    group = document
    if isinstance(settings, GroupedRowsSettings) and settings.group_column is not None:
        group = _parse_name_column(row, settings.group_column)
    return LabelledText(
        document_id=f"{spec.family}:{document}",
        group=f"{spec.family}:{group}",
        label=label,
        published=published,
        **fields,
    )


def _parse_name_column(row: Row, column: str) -> str:
    name = parse_name(row.values.get(column))
    if name is None:
        raise UnusableRowError(f"column '{column}' {explain_unusable_text(row.values.get(column))}")
    return name
