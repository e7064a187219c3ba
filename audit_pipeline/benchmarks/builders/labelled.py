"""The builders of published rows with known labels: labelled and sides.

The labelled builder reads labels from a column, as in WikiMIA. The sides builder reads members from one file or split
and non-members from another, as in MIMIR.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from audit_pipeline.benchmarks import labelled_rows
from audit_pipeline.benchmarks.builder_interface import MATCHED, Builder, BuilderInputs, DrawnExamples, ReadDocuments
from audit_pipeline.benchmarks.conversation_rows import ConversationSettings, read_conversation_fields
from audit_pipeline.benchmarks.labelled_rows import LabelledRows, RowReader
from audit_pipeline.benchmarks.row_settings import DataSetPart, GroupedRowsSettings, LabelColumnSettings
from audit_pipeline.benchmarks.rows_origin import concatenate_row_files, read_origin
from audit_pipeline.benchmarks.settings import BenchmarkSpec, DesignOfSides, FamilySettings
from audit_pipeline.config.validation import Text
from audit_pipeline.readers.labels import shorten_spelling
from audit_pipeline.readers.text_rows import Row, RowFile, UnusableRowError, explain_invalid_unicode, read_text
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import MEMBER, NON_MEMBER, Split

_SPLITS = get_args(Split)


class LabelledSettings(GroupedRowsSettings, LabelColumnSettings, ConversationSettings):
    """Settings of rows with published labels: a hub data set, or a local folder with the same layout."""

    added: ClassVar[frozenset[str]] = FamilySettings.added | {
        "subset",
        "package",
        "where",
        "id_column",
        "exact_words",
        "group_column",
        "date_column",
        "date_kind",
        "files",
        "label_values",
        "context_column",
        "split_column",
        "collection_column",
        "language_column",
        "matched",
        "scored_part",
    }

    may_be_unlabelled: ClassVar[bool] = True

    builder: Literal["labelled"]
    text_column: Text = Field(default="input", description="column with the text")
    label_column: Text | None = Field(default="label", description="column with the label; null: no row is labelled")
    context_column: Text | None = Field(
        default=None,
        description="column with the context, a text before the row's text that the model reads and no detector "
        "scores; None: no text has a context",
    )
    split_column: Text | None = Field(
        default=None,
        description="column with the split (calibration or evaluation); None: the groups are divided by "
        "calibration_fraction",
    )
    collection_column: Text | None = Field(
        default=None, description="column with the project, series or folder of a row; None: the family's name"
    )
    language_column: Text | None = Field(
        default=None, description="column with the language of a row (ISO 639-1); None: the value of language"
    )
    design: DesignOfSides
    matched: bool = Field(
        default=False,
        description="true: the publisher chose texts whose two sides are hard to separate without a model; false: the "
        "sides are not matched",
    )

    @property
    def assignment_columns(self) -> tuple[str | None, ...]:
        """Return the columns of context, split, collection and language. None means that the column is not set."""
        return self.context_column, self.split_column, self.collection_column, self.language_column

    @model_validator(mode="after")
    def _require_one_kind_of_text(self) -> Self:
        columns = self.model_fields_set & {"text_column", "context_column"}
        if self.scored_part is not None and columns:
            raise ValueError(
                f"scored_part contradicts {min(columns)}, because the texts are conversations. Remove one of them."
            )
        return self

    @model_validator(mode="after")
    def _require_rows_per_length(self) -> Self:
        self.validate_length_placeholder()
        return self


def read_labelled_rows(
    spec: BenchmarkSpec, paths: DataPaths, read_documents: ReadDocuments
) -> BuilderInputs[LabelledRows]:
    """Read the usable rows, with or without labels (see :func:`labelled_rows.read_rows_inputs`)."""
    settings = spec.require_settings(LabelledSettings)
    label_values = dict(settings.label_values)
    assignment = None
    if any(settings.assignment_columns) or settings.scored_part is not None:
        assignment = partial(read_row_assignment, settings=settings)
    text_column: str | None = settings.text_column
    if settings.scored_part is not None:
        text_column = None

    def read_row_text(row: Row) -> str:
        if settings.scored_part is None:
            return read_text(row.values, settings.text_column)
        text: str = read_conversation_fields(row, settings.scored_part)["text"]
        return text

    reader = RowReader(
        read_text=read_row_text,
        read_label=lambda row: labelled_rows.parse_label_column(row, settings.label_column, label_values),
        read_assignment=assignment,
        columns=(text_column, settings.label_column, *settings.assignment_columns),
        has_splits=settings.split_column is not None,
    )
    if spec.has_exact_length:
        reader = replace(reader, lengths=(spec.length,))
    return labelled_rows.read_rows_inputs(spec, paths, reader)


def read_row_assignment(row: Row, settings: LabelledSettings) -> dict[str, Any]:
    """Read context, split, collection, language and conversation of a row, as fields of LabelledText by name.

    If the value is null or the column is not set, the result omits the field. The benchmark's entry then determines it.

    Raises:
        UnusableRowError: If a value is not a valid string or not a split.
    """
    values: list[str | None] = []
    for column in settings.assignment_columns:
        value = None if column is None else row.values.get(column)
        if value is not None and not isinstance(value, str):
            raise UnusableRowError(f"column '{column}' is not a string but {type(value).__name__}")
        problem = None if value is None else explain_invalid_unicode(value)
        if problem is not None:
            raise UnusableRowError(f"column '{column}' {problem}")
        values.append(value)
    context, split, collection, language = values
    if split is not None and split not in _SPLITS:
        spelling = shorten_spelling(split)
        raise UnusableRowError(f"column '{settings.split_column}' is {spelling!r}, not {' or '.join(_SPLITS)}")
    fields = {"context": context or None, "split": split, "collection": collection, "language": language}
    if settings.scored_part is not None:
        fields |= read_conversation_fields(row, settings.scored_part)
    return {name: value for name, value in fields.items() if value is not None}


def build_examples_from_labelled_rows(rows: LabelledRows, spec: BenchmarkSpec, run_id: str) -> DrawnExamples:
    """Return every usable row once as an example (:func:`labelled_rows.build_examples_from_rows`).

    The manifest records if the publisher matched the two sides.
    """
    drawn = labelled_rows.build_examples_from_rows(rows, spec, run_id)
    if spec.require_settings(LabelledSettings).matched:
        return replace(drawn, notes={MATCHED: {}})
    return drawn


LABELLED = Builder(1, LabelledSettings, read_labelled_rows, build_examples_from_labelled_rows)


class SidesSettings(GroupedRowsSettings):
    """Settings of members from one file or split, and non-members from another."""

    builder: Literal["sides"]
    members: DataSetPart = Field(description="the split or the files that contain the members")
    nonmembers: DataSetPart = Field(description="the split or the files that contain the non-members")
    text_column: Text = Field(
        default="text", description="column with the text; a line that is a JSON string is a row with the column text"
    )
    design: DesignOfSides

    @property
    def parts(self) -> tuple[DataSetPart, ...]:
        """Return the parts of members and non-members."""
        return self.members, self.nonmembers

    @model_validator(mode="after")
    def _require_distinct_rows(self) -> Self:
        self.validate_length_placeholder()
        if self.members == self.nonmembers:
            raise ValueError("members and nonmembers name the same rows. Name different splits or files.")
        return self


def read_side_rows(spec: BenchmarkSpec, paths: DataPaths, read_documents: ReadDocuments) -> BuilderInputs[LabelledRows]:
    """Read both sides as labelled rows, members first.

    Raises:
        DataError: If a side is unreadable, a column is missing in all rows, or no row is usable.
        SourceError: If the package that holds the rows is unreadable.
    """
    settings = spec.require_settings(SidesSettings)
    members = read_origin(settings, settings.members, spec.words, paths.downloads)
    nonmembers = read_origin(settings, settings.nonmembers, spec.words, paths.downloads)
    first_nonmember = len(members.file.rows) + len(members.file.skipped)
    reader = RowReader(
        read_text=lambda row: read_text(row.values, settings.text_column),
        read_label=lambda row: NON_MEMBER if row.index >= first_nonmember else MEMBER,
        columns=(settings.text_column,),
    )
    if spec.has_exact_length:
        reader = replace(reader, lengths=(spec.length,))
    file = concatenate_row_files(
        [_prefix_locations("members", members.file), _prefix_locations("nonmembers", nonmembers.file)]
    )
    origin = f"members: {members.origin}; nonmembers: {nonmembers.origin}"
    rows = labelled_rows.build_labelled_rows(file, origin, spec, reader)
    provenance = [
        {"side": "members", **members.provenance},
        {"side": "nonmembers", **nonmembers.provenance},
    ]
    return labelled_rows.build_rows_inputs(spec, rows, provenance)


def _prefix_locations(side: str, file: RowFile) -> RowFile:
    """Add the name of the side to the location of every row, because both files often have the same name."""
    rows = []
    for row in file.rows:
        rows.append(replace(row, location=f"{side} {row.location}"))
    skipped = []
    for skipped_row in file.skipped:
        skipped.append(replace(skipped_row, location=f"{side} {skipped_row.location}"))
    return RowFile(tuple(rows), tuple(skipped))


SIDES = Builder(1, SidesSettings, read_side_rows, labelled_rows.build_examples_from_rows)
