"""The sides builder: members in one file or split and non-members in another, as in MIMIR."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Self

from pydantic import Field, model_validator

from audit_pipeline.benchmarks import labelled_rows
from audit_pipeline.benchmarks.builder_interface import Builder, BuilderInputs, ReadDocuments
from audit_pipeline.benchmarks.labelled_rows import LabelledRows, Reading
from audit_pipeline.benchmarks.row_settings import DataSetPart, GroupedRowsSettings
from audit_pipeline.benchmarks.rows_origin import concatenate_row_files, read_origin
from audit_pipeline.benchmarks.settings import BenchmarkSpec, DesignOfSides
from audit_pipeline.config.validation import Text
from audit_pipeline.readers.text_rows import RowFile, read_text
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import MEMBER, NON_MEMBER


class SidesSettings(GroupedRowsSettings):
    """Settings of members from one file or split, and non-members from another."""

    builder: Literal["sides"]
    members: DataSetPart = Field(description="split or files of the members")
    nonmembers: DataSetPart = Field(description="split or files of the non-members")
    text_column: Text = Field(
        default="text", description="column with the text; if a line is a JSON string, its column is text"
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
            raise ValueError("members and nonmembers are the same rows: name different splits or files")
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
    reading = Reading(
        text=lambda row: read_text(row.values, settings.text_column),
        label=lambda row: NON_MEMBER if row.index >= first_nonmember else MEMBER,
        columns=(settings.text_column,),
    )
    if spec.has_exact_length:
        reading = replace(reading, lengths=(spec.length,))
    file = concatenate_row_files([_name_side("members", members.file), _name_side("nonmembers", nonmembers.file)])
    origin = f"members: {members.origin}; nonmembers: {nonmembers.origin}"
    rows = labelled_rows.build_labelled_rows(file, origin, spec, reading)
    provenance = [
        {"side": "members", **members.provenance},
        {"side": "nonmembers", **nonmembers.provenance},
    ]
    return labelled_rows.build_rows_inputs(spec, rows, provenance)


def _name_side(side: str, file: RowFile) -> RowFile:
    """Add the name of the side to the location of every row, because both files often have the same name."""
    rows = []
    for row in file.rows:
        rows.append(replace(row, location=f"{side} {row.location}"))
    skipped = []
    for skipped_row in file.skipped:
        skipped.append(replace(skipped_row, location=f"{side} {skipped_row.location}"))
    return RowFile(tuple(rows), tuple(skipped))


BUILDER = Builder(1, SidesSettings, read_side_rows, labelled_rows.examples_from_rows)
