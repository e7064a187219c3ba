"""The corpora of config/references.yaml, and the rules by which a corpus contaminates a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from audit_pipeline.config.entries import Entries, EntryFile
from audit_pipeline.config.validation import Language, StrictSettings, Text, resolve_against, validate_as
from audit_pipeline.errors import ConfigError
from audit_pipeline.tables import digest

FILE_NAME = "references.yaml"
DEFAULT = "sotu"

# A name cannot contain a bar, because a bar separates the parts of a partition name. Slashes, blanks and dots are not
# allowed either, because they would need quotes in paths and in ranges of partitions.
CorpusName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
HubId = Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[\w.-]+$")]
AtLeastOne = Annotated[int, Field(ge=1, strict=True)]

MIN_WORDS = 4
"""Minimum number of words in a run that ``--words`` requests, and in a text that the rule of evidence can judge."""
Measure = Literal["evidence", "any", "runs", "words"]


class ReferenceEntry(StrictSettings):
    """A corpus: the location of its documents and the limits of its count."""

    name: CorpusName
    hub: HubId | None = Field(default=None, description="id of a data set of the hub, which is read as a stream")
    files: Annotated[tuple[Text, ...], Field(min_length=1)] | None = Field(
        default=None,
        description="patterns for the names of the data set's files; * matches any characters, including slashes",
    )
    revision: Text | None = Field(default=None, description="hub branch, tag or commit; None: the newest")
    path: Path | None = Field(
        default=None, description="a file or a folder; a relative path starts at the folder of this file"
    )
    package: Literal["sotu"] | None = Field(
        default=None, description="installed package with the documents, which needs no download: sotu"
    )
    text_column: Text | None = Field(
        default=None, description="column with the text; None: text, else input, else the only column"
    )
    language: Language = Field(
        description="language of the documents, as ISO 639-1; use the language of the audited texts"
    )
    licence: Text = Field(description="licence of the documents")
    max_documents: AtLeastOne | None = Field(default=None, description="maximum number of documents; None: all")
    max_bytes: AtLeastOne | None = Field(
        default=None, description="maximum bytes of UTF-8 text; the document that exceeds it still counts"
    )
    max_tokens_per_document: AtLeastOne | None = Field(
        default=None,
        description=(
            "maximum number of counted tokens per document; None: all tokens; the published code of DC-PDD counts 1,024"
        ),
    )
    notes: str | None = Field(default=None, description="remarks for readers")

    @model_validator(mode="after")
    def _require_single_origin(self) -> Self:
        if sum(origin is not None for origin in (self.hub, self.path, self.package)) != 1:
            raise ValueError("a corpus has exactly one of hub, path and package; set one of them and remove the others")
        if self.hub is not None and self.files is None:
            raise ValueError("hub requires files; add patterns of the data set's files")
        if self.hub is None and self.files is not None:
            raise ValueError("files requires hub; remove files or set hub")
        if self.revision is not None and self.hub is None:
            raise ValueError("revision requires hub; remove revision or set hub")
        return self

    @property
    def settings_digest(self) -> str:
        """Compute a digest of all settings that can change the counts. The documents are not included."""
        return digest(self.model_dump(mode="json", exclude={"language", "licence", "notes"}))[:16]


def _build_reference_entry(name: str, fields: Any, folder: Path) -> ReferenceEntry:
    entry = validate_as(ReferenceEntry, {**fields, "name": name})
    if entry.path is None:
        return entry
    return entry.model_copy(update={"path": resolve_against(folder, entry.path).resolve()})


FILE = EntryFile(
    FILE_NAME,
    "references",
    "corpus",
    "it lists the corpora in which token frequencies are counted",
    _build_reference_entry,
    is_optional=True,
    affects_audits=True,
    dimension="corpus",
    permanent_partitions=(DEFAULT,),
)


def load_references(folder: Path | None = None) -> Entries[ReferenceEntry]:
    """Return the entries of references.yaml, or no entries if the file is missing.

    Raises:
        ConfigError: If the file is unreadable.
    """
    return FILE.load(folder)


@dataclass(frozen=True)
class OverlapRule:
    """A rule by which a text counts as contaminated.

    A run is a sequence of n consecutive words. The published rules measure the share of a text that is found as runs in
    the corpus. The rule ``evidence`` (evidence_rule.py) differs: runs are the seeds of an alignment, and ``share`` is
    the minimum share of equal words in the alignment.

    Attributes:
        n: Length of a run, in words.
        measure: The share that is measured. ``runs`` is the share of the text's runs that were found. ``words`` is the
            share of its words inside found runs. With ``any``, a single found run is enough.
        share: Minimum found share at which a text counts as contaminated.
        source: The publication of the rule.
    """

    name: str
    n: int
    measure: Measure
    share: float
    source: str

    @property
    def min_words(self) -> int:
        """Return the minimum number of words in a searchable text."""
        if self.measure == "evidence":
            return min(self.n, MIN_WORDS)
        return self.n

    def is_contaminated(self, share_of_runs: float, share_of_words: float) -> bool:
        """Return True if a text with these found shares of runs and words is contaminated by a published rule."""
        if self.measure == "any":
            return share_of_runs > 0
        if self.measure == "runs":
            return share_of_runs >= self.share
        return share_of_words >= self.share


RULES: Mapping[str, OverlapRule] = {
    rule.name: rule
    for rule in (
        OverlapRule(
            "evidence", 5, "evidence", 0.8, "docs/overlap.md: the corpus contains more of the text than chance explains"
        ),
        OverlapRule("gpt-3", 13, "any", 0.0, "Brown et al. 2020, appendix C: one common run of 13 words"),
        OverlapRule("palm", 8, "runs", 0.7, "Chowdhery et al. 2022, section 8: 70% of the 8-grams are common"),
        OverlapRule(
            "llama-2", 11, "words", 0.8, "Touvron et al. 2023, A.6: 80% of the text is in common runs of over 10 words"
        ),
        OverlapRule(
            "tulu-3", 8, "words", 0.5, "Lambert et al. 2024, section 3.2: half of the text is in common 8-grams"
        ),
    )
}
DEFAULT_RULE = "evidence"


def choose_rule(name: str = DEFAULT_RULE, n: int | None = None) -> OverlapRule:
    """Return a rule by its name, with the length of runs that the user chose.

    Args:
        name: Name of the rule.
        n: Length of a searched run in words, if it differs from the rule's length.

    Raises:
        ConfigError: If the name is unknown or ``n`` is too small.
    """
    if name not in RULES:
        raise ConfigError(f"unknown rule '{name}'. Use one of these rules: {', '.join(RULES)}.")
    rule = RULES[name]
    if n is None or n == rule.n:
        return rule
    if n < MIN_WORDS:
        raise ConfigError(
            f"runs of {n} words occur in every corpus, so they are no evidence. Set --words to at least {MIN_WORDS}."
        )
    return OverlapRule(f"{name}, {n} words", n, rule.measure, rule.share, rule.source)
