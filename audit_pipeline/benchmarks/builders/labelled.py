"""Rows with published labels, such as WikiMIA: from the hub, a local folder or file, or a package."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from audit_pipeline.benchmarks.builder_interface import MATCHED, Builder, BuilderInputs, DrawnExamples, ReadDocuments
from audit_pipeline.benchmarks.labelled_rows import (
    LabelledRows,
    Reading,
    examples_from_rows,
    parse_label_column,
    read_rows_inputs,
)
from audit_pipeline.benchmarks.row_settings import GroupedRowsSettings, LabelColumnSettings
from audit_pipeline.benchmarks.settings import BenchmarkSpec, DesignOfSides, FamilySettings
from audit_pipeline.config.validation import Text
from audit_pipeline.readers.labels import shorten_spelling
from audit_pipeline.readers.text_rows import Row, UnusableRowError, explain_invalid_unicode, read_text
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import Split

_SPLITS = get_args(Split)


class LabelledSettings(GroupedRowsSettings, LabelColumnSettings):
    """Rows with published labels: a hub data set, or a local folder laid out like it."""

    added: ClassVar[frozenset[str]] = FamilySettings.added | {
        *("subset", "package", "where", "id_column", "exact_words", "group_column", "date_column", "date_kind"),
        *("files", "label_values", "context_column", "split_column", "collection_column", "language_column"),
        "matched",
    }

    may_be_unlabelled: ClassVar[bool] = True

    builder: Literal["labelled"]
    text_column: Text = Field(default="input", description="the column that holds the text")
    label_column: Text | None = Field(default="label", description="None: no row is labelled")
    context_column: Text | None = Field(
        default=None, description="text in front of a row's text: a model reads it, and no detector scores it"
    )
    split_column: Text | None = Field(
        default=None, description="calibration or evaluation; None: groups are divided by calibration_fraction"
    )
    collection_column: Text | None = Field(
        default=None, description="the project, series or folder of a row; None: the family's name"
    )
    language_column: Text | None = Field(default=None, description="a row's ISO 639-1 code; None: language, of all")
    design: DesignOfSides
    matched: bool = Field(
        default=False,
        description="whether the texts were chosen because the two sides are hard to separate without a model",
    )

    @property
    def place_columns(self) -> tuple[str | None, ...]:
        """The columns that say of each row where it belongs; None for what no column says."""
        return self.context_column, self.split_column, self.collection_column, self.language_column

    @model_validator(mode="after")
    def _require_rows_per_length(self) -> Self:
        self.require_words_place()
        return self


def read_labelled_rows(
    spec: BenchmarkSpec, paths: DataPaths, read_documents: ReadDocuments
) -> BuilderInputs[LabelledRows]:
    """The rows with a text of the right length and a label, as :func:`read_rows_inputs` reads them."""
    settings = spec.require_settings(LabelledSettings)
    meanings = dict(settings.label_values)
    reading = Reading(
        text=lambda row: read_text(row.values, settings.text_column),
        label=lambda row: parse_label_column(row, settings.label_column, meanings),
        place=(lambda row: read_row_assignment(row, settings)) if any(settings.place_columns) else None,
        columns=(settings.text_column, settings.label_column, *settings.place_columns),
        lengths=(spec.length,) if spec.has_exact_length else None,
        has_splits=settings.split_column is not None,
    )
    return read_rows_inputs(spec, paths, reading)


def read_row_assignment(row: Row, settings: LabelledSettings) -> dict[str, Any]:
    """What a row's columns say of where it belongs, by fields of LabelledText; raises UnusableRowError.

    A null says nothing: what the entry says of all rows then holds.
    """
    values: list[str | None] = []
    for column in settings.place_columns:
        value = None if column is None else row.values.get(column)
        if value is not None and not isinstance(value, str):
            raise UnusableRowError(f"column '{column}' is not a string but {type(value).__name__}")
        if value is not None and (problem := explain_invalid_unicode(value)) is not None:
            raise UnusableRowError(f"column '{column}' {problem}")
        values.append(value)
    context, split, collection, language = values
    if split is not None and split not in _SPLITS:
        spelt = shorten_spelling(split)
        raise UnusableRowError(f"column '{settings.split_column}' is {spelt!r}, not {' or '.join(_SPLITS)}")
    fields = {"context": context or None, "split": split, "collection": collection, "language": language}
    return {name: value for name, value in fields.items() if value is not None}


def examples_from_labelled_rows(rows: LabelledRows, spec: BenchmarkSpec, run_id: str) -> DrawnExamples:
    """As :func:`examples_from_rows`; the manifest says if the authors of the rows matched the two sides."""
    drawn = examples_from_rows(rows, spec, run_id)
    return replace(drawn, notes={MATCHED: {}}) if spec.require_settings(LabelledSettings).matched else drawn


BUILDER = Builder(1, LabelledSettings, read_labelled_rows, examples_from_labelled_rows)
