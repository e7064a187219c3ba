"""Members in one file or split, non-members in another, such as MIMIR's.

What belongs here: reading the two as one set of labelled rows. What does not: which rows can be used (labelled.py) and
where they lie (rows_origin.py).
"""

from __future__ import annotations

from dataclasses import replace

from audit_pipeline.benchmarks.config import BenchmarkSpec, SidesSettings
from audit_pipeline.benchmarks.inputs import Inputs, ReadDocuments
from audit_pipeline.benchmarks.labelled import LabelledRows, Reading, rows_inputs, usable
from audit_pipeline.benchmarks.rows_origin import OriginRows, one_after_another, read_origin
from audit_pipeline.catalogue.contracts import MEMBER, NON_MEMBER
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.fetch.rows import RowFile, text_of

VERSION = 1


def read(spec: BenchmarkSpec, paths: DataPaths, documents: ReadDocuments) -> Inputs[LabelledRows]:
    """Both sides of ``spec`` as labelled rows, the members' first.

    Raises DataError (SourceError) where either cannot be had, where a column is missing altogether, and where no row
    can be used.
    """
    settings = spec.settings
    if not isinstance(settings, SidesSettings):
        raise TypeError(f"{spec.name} is not built from two sides")
    sides = {
        "members": read_origin(settings, settings.members, spec.words, paths.downloads),
        "nonmembers": read_origin(settings, settings.nonmembers, spec.words, paths.downloads),
    }
    members, nonmembers = (_told(name, found) for name, found in sides.items())
    first_nonmember = len(members.rows) + len(members.skipped)
    reading = Reading(
        text=lambda row: text_of(row.values, settings.text_column),
        label=lambda row: (NON_MEMBER if row.index >= first_nonmember else MEMBER, None),
        columns=(settings.text_column,),
        lengths=(spec.length,) if spec.is_exact else None,
    )
    origin = "; ".join(f"{name}: {found.origin}" for name, found in sides.items())
    rows = usable(one_after_another([members, nonmembers]), origin, spec, reading)
    return rows_inputs(spec, rows, [{"side": name, **found.provenance} for name, found in sides.items()])


def _told(side: str, found: OriginRows) -> RowFile:
    """The rows with their side in their locations: the two files often have one name."""
    return RowFile(
        tuple(replace(row, location=f"{side} {row.location}") for row in found.file.rows),
        tuple(replace(row, location=f"{side} {row.location}") for row in found.file.skipped),
    )
