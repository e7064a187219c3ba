"""Rows that somebody else has labelled, such as WikiMIA: from the hub, a local folder or file, or a package.

What belongs here: what such an entry says, and what a row's text and label are. What does not: choosing or balancing (a
published benchmark is taken whole), and which rows can be used (rows.py).
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from audit_pipeline.benchmarks.builder import Builder, BuilderInputs, ReadDocuments
from audit_pipeline.benchmarks.family import DesignOfSides, FamilySettings
from audit_pipeline.benchmarks.row_settings import DataSetPart, Files, GroupedRowsSettings, LabelValues, one_part
from audit_pipeline.benchmarks.rows import LabelledRows, Reading, draw_rows, label_in, rows_inputs, usable
from audit_pipeline.benchmarks.rows_origin import read_origin
from audit_pipeline.benchmarks.spec import BenchmarkSpec
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.config.validating import Text
from audit_pipeline.fetch.rows import RowFile, text_of

VERSION = 1


class LabelledSettings(GroupedRowsSettings):
    """Rows that somebody else has labelled: a hub data set, or a local folder laid out like it."""

    added: ClassVar[frozenset[str]] = FamilySettings.added | {
        *("subset", "package", "where", "id_column", "exact_words", "group_column", "date_column", "date_kind"),
        *("files", "label_values"),
    }

    may_be_unlabelled: ClassVar[bool] = True

    builder: Literal["labelled"]
    split: Text | None = Field(default=None, description="name of the hub split, or of the file without suffix")
    files: Files | None = Field(default=None, description="paths inside the data set's repository or folder")
    text_column: Text = "input"
    label_column: Text | None = Field(default="label", description="None: no row is labelled")
    label_values: LabelValues = Field(
        default=(), description="what the column's values stand for; none: 0 and 1 stand for themselves"
    )
    design: DesignOfSides

    @property
    def parts(self) -> tuple[DataSetPart, ...]:
        return one_part(self.split, self.files)

    @model_validator(mode="after")
    def _lengths_apart(self) -> Self:
        self.require_words_place()
        return self


def read(spec: BenchmarkSpec, paths: DataPaths, documents: ReadDocuments) -> BuilderInputs[LabelledRows]:
    """The rows of ``spec``, from the place that its environment variable names, else its path, hub or package.

    Raises DataError (SourceError) where they cannot be had, where a column is missing altogether, and where no row can
    be used.
    """
    settings = spec.settings_of(LabelledSettings)
    found = read_origin(settings, next(iter(settings.parts), None), spec.words, paths.downloads)
    return rows_inputs(spec, usable_rows(found.file, found.origin, spec), (found.provenance,))


def usable_rows(file: RowFile, origin: str, spec: BenchmarkSpec) -> LabelledRows:
    """The rows with a text of the right length and a label, as :func:`usable`; columns as the settings name them."""
    settings = spec.settings_of(LabelledSettings)
    meanings = dict(settings.label_values)
    reading = Reading(
        text=lambda row: text_of(row.values, settings.text_column),
        label=lambda row: label_in(row, settings.label_column, meanings),
        columns=(settings.text_column, settings.label_column),
        lengths=(spec.length,) if spec.is_exact else None,
    )
    return usable(file, origin, spec, reading)


BUILDER = Builder(VERSION, LabelledSettings, read, draw_rows)
