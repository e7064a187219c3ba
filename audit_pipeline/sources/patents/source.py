"""Declaration of the source `patents`, and its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from audit_pipeline.config.validation import Distinct
from audit_pipeline.sources.base import FILE_NAME, Source, SourceSection, build_lazy_fetch
from audit_pipeline.sources.patents.cleaning import CleaningRules
from audit_pipeline.sources.patents.record import PARTS, Part

NAME = "patents"
LICENCE = (
    "texts of published patents: official documents, in most countries free to copy, though a text or drawing in them "
    "may be protected; Google Patents' terms hold for its pages, CC BY 4.0 for patents-public-data"
)

Country = Annotated[str, StringConstraints(pattern=r"^[A-Z]{2}$")]


class PatentsSettings(SourceSection):
    """The settings of the source: saved pages or an export (or both), the selection of patents, and the cleaning."""

    pages: Path | None = Field(
        default=None, description="saved pages of Google Patents: a folder of .html files, or one .html file"
    )
    export: Path | None = Field(
        default=None, description="export of the BigQuery data set patents-public-data: a file or a folder of files"
    )
    countries: Annotated[tuple[Country, ...], Field(min_length=1), Distinct] = Field(
        default=("CN",), description="codes of the countries whose patents are used"
    )
    parts: Annotated[tuple[Part, ...], Field(min_length=1), Distinct] = Field(
        default=PARTS, description="parts of a patent that its text consists of, in this order"
    )
    cleaning: CleaningRules = Field(
        default=CleaningRules(), description="rules for removing repeated lines and skipping texts"
    )

    @property
    def missing_setting(self) -> str | None:
        """Return the instruction to set a path, or None if the source is ready."""
        if self.pages is None and self.export is None:
            return f"set patents.pages or patents.export in config/{FILE_NAME} to your file or folder"
        return None


SOURCE = Source(
    NAME,
    "Chinese patents with publication and priority dates, from saved pages or an exported table.",
    LICENCE,
    PatentsSettings,
    build_lazy_fetch(__name__),
    on_request=True,
)
