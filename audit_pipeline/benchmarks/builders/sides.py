"""Members in one file or split, non-members in another, such as MIMIR's."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Self

from pydantic import Field, model_validator

from audit_pipeline.benchmarks.builder_interface import Builder, BuilderInputs, ReadDocuments
from audit_pipeline.benchmarks.labelled_rows import (
    LabelledRows,
    Reading,
    build_labelled_rows,
    build_rows_inputs,
    examples_from_rows,
)
from audit_pipeline.benchmarks.row_settings import DataSetPart, GroupedRowsSettings
from audit_pipeline.benchmarks.rows_origin import concatenate_row_files, read_origin
from audit_pipeline.benchmarks.settings import BenchmarkSpec, DesignOfSides
from audit_pipeline.config.validation import Text
from audit_pipeline.readers.text_rows import RowFile, read_text
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import MEMBER, NON_MEMBER


class SidesSettings(GroupedRowsSettings):
    """Members from one file or split, non-members from another."""

    builder: Literal["sides"]
    members: DataSetPart = Field(description="where the members are")
    nonmembers: DataSetPart = Field(description="where the non-members are")
    text_column: Text = Field(default="text", description="lines that are a JSON string have it, too")
    design: DesignOfSides

    @property
    def parts(self) -> tuple[DataSetPart, ...]:
        return self.members, self.nonmembers

    @model_validator(mode="after")
    def _require_distinct_rows(self) -> Self:
        self.require_words_place()
        if self.members == self.nonmembers:
            raise ValueError("members and nonmembers are the same rows")
        return self


def read_side_rows(spec: BenchmarkSpec, paths: DataPaths, read_documents: ReadDocuments) -> BuilderInputs[LabelledRows]:
    """Both sides of ``spec`` as labelled rows, the members' first.

    Raises DataError (SourceError) where either cannot be read, where a column is missing altogether, and where no row
    can be used.
    """
    settings = spec.require_settings(SidesSettings)
    sides = {
        "members": read_origin(settings, settings.members, spec.words, paths.downloads),
        "nonmembers": read_origin(settings, settings.nonmembers, spec.words, paths.downloads),
    }
    files = [_name_side(name, found.file) for name, found in sides.items()]
    first_nonmember = len(files[0].rows) + len(files[0].skipped)
    reading = Reading(
        text=lambda row: read_text(row.values, settings.text_column),
        label=lambda row: NON_MEMBER if row.index >= first_nonmember else MEMBER,
        columns=(settings.text_column,),
        lengths=(spec.length,) if spec.has_exact_length else None,
    )
    origin = "; ".join(f"{name}: {found.origin}" for name, found in sides.items())
    rows = build_labelled_rows(concatenate_row_files(files), origin, spec, reading)
    return build_rows_inputs(spec, rows, [{"side": name, **found.provenance} for name, found in sides.items()])


def _name_side(side: str, file: RowFile) -> RowFile:
    """The rows with their side in their locations: the two files often have one name."""
    rows = tuple(replace(row, location=f"{side} {row.location}") for row in file.rows)
    return RowFile(rows, tuple(replace(row, location=f"{side} {row.location}") for row in file.skipped))


BUILDER = Builder(1, SidesSettings, read_side_rows, examples_from_rows)
