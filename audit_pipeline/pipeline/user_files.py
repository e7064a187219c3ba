"""The files of a user that ``corpus-audit check`` audits: their documents, dates and languages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from audit_pipeline.benchmarks.settings import UnitName, get_word_unit
from audit_pipeline.errors import DataError, escape_unprintable
from audit_pipeline.readers.whole_files.document import is_single_document
from audit_pipeline.sources.base import Document
from audit_pipeline.sources.local_files import DETECT, NAME, LocalFilesSettings, fetch_local_files
from audit_pipeline.splits.shared_text import build_comparison_key
from audit_pipeline.statistics.claims import HELD_OUT_DESIGNS, USER_OF_CHECK, Design, HeldOutReason
from audit_pipeline.statistics.possible_conclusions import PlannedComparison
from audit_pipeline.tables import text_sha256

AUDITED = "audited"
HELD_OUT = "held_out"
MEMBERS = "members"
FAMILY = "own_files"
FAMILY_OF_KNOWN = "own_files_known"
_WINDOW_WORDS = 64
_SHORT_WINDOW_WORDS = 32
_WINDOWS_PER_DOCUMENT = 20
_SEED = 20220101
_MAX_NAMED = 3
_COLUMN_SETTINGS = ("text_column", "title_column", "date_column", "group_column")


@dataclass(frozen=True)
class UserFiles:
    """The files and folders that a user named on each side, and the columns of files of rows.

    Attributes:
        audited: The files to audit.
        held_out: Files that the model cannot have read.
        members: Files that the model is known to have read.
        text_column: The column of the text.
        title_column: The column of the title.
        date_column: The column of the date of first publication.
        group_column: The column of the group, such as the book of a chapter.
        held_out_because: The reason that the user states for the held-out files, or None if none is stated.
        edition_dates: Whether the edition dates in files count as dates of first publication.
    """

    audited: tuple[Path, ...]
    held_out: tuple[Path, ...] = ()
    members: tuple[Path, ...] = ()
    text_column: str | None = None
    title_column: str | None = None
    date_column: str | None = None
    group_column: str | None = None
    held_out_because: HeldOutReason | None = None
    edition_dates: bool = False

    @property
    def sides(self) -> dict[str, tuple[Path, ...]]:
        """Return the absolute paths of each side that has files, without duplicates."""
        sides = {}
        for side, paths in ((AUDITED, self.audited), (HELD_OUT, self.held_out), (MEMBERS, self.members)):
            if paths:
                sides[side] = tuple(dict.fromkeys(path.resolve() for path in paths))
        return sides

    @property
    def source(self) -> dict[str, Any]:
        """Return the section of config/sources.yaml that reads the files."""
        section: dict[str, Any] = {"collections": {side: list(map(str, paths)) for side, paths in self.sides.items()}}
        for setting in _COLUMN_SETTINGS:
            column = getattr(self, setting)
            if column is not None:
                section[setting] = column
        section["language"] = DETECT
        if self.edition_dates:
            section["edition_dates"] = True
        return section

    @property
    def workspace_record(self) -> dict[str, Any]:
        """Return the files and options as the workspace records them."""
        return {**self.source, "held_out_because": self.held_out_because}


@dataclass(frozen=True)
class SideCounts:
    """Counts of the documents of one side (audited, held-out or members)."""

    side: str
    documents: int
    groups: int
    words: int
    windows: int
    languages: Mapping[str, int]
    oldest: date | None  # the earliest date of a document; if a date is an interval, its first day counts
    newest: date | None  # the latest date of a document; if a date is an interval, its last day counts
    undated: int
    editions: int  # documents whose file states the date of its edition
    dated_by_interval: int  # documents whose date is a year, a month or another interval


@dataclass(frozen=True)
class Inventory:
    """The content of a user's files.

    Attributes:
        user_files: The files that the user named.
        sides: Counts by side.
        documents: The documents of all sides.
        unused: Files and rows that are not documents, each with the reason.
        unit: The word unit by which texts are cut into windows.
        window_words: The window length in words.
    """

    user_files: UserFiles
    sides: Mapping[str, SideCounts]
    documents: tuple[Document, ...]
    unused: tuple[tuple[str, str], ...]
    unit: UnitName
    window_words: int

    @property
    def planned_comparison(self) -> PlannedComparison:
        """Return the counts that decide which conclusions are possible."""
        groups = dict.fromkeys((AUDITED, HELD_OUT, MEMBERS), 0)
        n_windows = 0
        for side, facts in self.sides.items():
            groups[side] = facts.groups
            if side != MEMBERS:
                n_windows += facts.windows
        return PlannedComparison(groups[AUDITED], groups[HELD_OUT], groups[MEMBERS], n_windows, self.design)

    def documents_of_side(self, side: str) -> list[Document]:
        """Return the documents of one side."""
        return [document for document in self.documents if document.collection == side]

    @property
    def design(self) -> Design:
        """Return the design of the comparison, which follows from the reason for the held-out files."""
        if HELD_OUT not in self.sides:
            return "unlabelled"
        return HELD_OUT_DESIGNS[self.user_files.held_out_because]

    def count_audited_from(self, day: date) -> int:
        """Return the number of audited documents whose first possible day is this day or later."""
        count = 0
        for document in self.documents_of_side(AUDITED):
            if document.published is not None and (document.earliest or document.published) >= day:
                count += 1
        return count

    @property
    def title(self) -> str:
        """Return the title of the files in reports: the first file names and the number of remaining files."""
        names = [escape_unprintable(path.name) for path in self.user_files.sides[AUDITED]]
        return f"Your files: {_format_first_names(names)}"

    @property
    def benchmarks(self) -> dict[str, dict[str, Any]]:
        """Return the entries of config/benchmarks.yaml.

        The first entry audits the files. If the user named held-out files and members, a second entry compares these
        two sides.
        """
        compared_sides = [side for side in (HELD_OUT, MEMBERS) if side in self.sides]
        shelf: dict[str, Any] = {
            "builder": "shelf",
            "sources": [NAME],
            "words": [self.window_words],
            "unit": self.unit,
            "windows_per_document": _WINDOWS_PER_DOCUMENT,
            # With more than one infilling, the Infilling Score takes longer than all other detectors.
            "infilling_m": 1,
            "short": "keep",
            "seed": _SEED,
        }
        for side in compared_sides:
            shelf[side] = {"collections": [side]}
        stated_by = f"{USER_OF_CHECK} --held-out"
        if self.user_files.held_out_because is not None:
            stated_by += f" --held-out-because {self.user_files.held_out_because}"
        audited: dict[str, Any] = {
            "title": self.title,
            "description": "Your own files, as you named them for corpus-audit check.",
            **shelf,
        }
        if self.design != "unlabelled":
            audited |= {"design": self.design, "design_stated_by": stated_by}
        audited["extraction"] = True
        if len(compared_sides) < 2:
            return {FAMILY: audited}
        known = {
            "title": f"{self.title} (known beforehand)",
            "description": "Your files that the model has read, compared with your files that it cannot have read. "
            "The comparison shows how well detectors work on such texts.",
            **shelf,
            # A random draw of held-out documents was a draw among the audited documents. It does not show how the
            # members were chosen.
            "design": "selected" if self.design == "exchangeable" else self.design,
            "design_stated_by": f"{stated_by} and --members",
            "evaluates": "known",
        }
        return {FAMILY: audited, FAMILY_OF_KNOWN: known}


def _format_first_names(names: Sequence[str]) -> str:
    """Return the first names and the number of remaining names."""
    text = ", ".join(names[:_MAX_NAMED])
    n_remaining = len(names) - _MAX_NAMED
    if n_remaining > 0:
        text += f" and {n_remaining:,} more"
    return text


def inspect_user_files(user_files: UserFiles) -> Inventory:
    """Read a user's files and return their inventory.

    Raises:
        DataError: If a side has no readable document, or if a text or a group is on two sides.
    """
    fetched = fetch_local_files(LocalFilesSettings.model_validate(user_files.source))
    # A file that the user named twice is one document.
    by_name: dict[tuple[str, str], Document] = {}
    for document in fetched.documents:
        by_name[document.collection, document.name] = document
    documents = list(by_name.values())
    _require_documents(user_files, documents)
    _require_disjoint_sides(documents)
    languages = Counter(document.language for document in documents)
    unit: UnitName = "whitespace"
    if languages.most_common(1)[0][0] == "zh":
        unit = "jieba"
    split = get_word_unit(unit).split
    lengths = {key: len(split(document.text)) for key, document in by_name.items()}
    # Windows are shorter if fewer than half of the documents fill a window of the default length.
    n_long = sum(length >= _WINDOW_WORDS for length in lengths.values())
    window_words = _WINDOW_WORDS
    if n_long * 2 < len(lengths):
        window_words = _SHORT_WINDOW_WORDS
    sides = {side: _count_side(side, documents, lengths, window_words) for side in user_files.sides}
    return Inventory(user_files, sides, tuple(documents), fetched.unused, unit, window_words)


def _require_documents(user_files: UserFiles, documents: Sequence[Document]) -> None:
    """Raise DataError if a side has no document, with the reasons for that side."""
    sides_with_documents = {document.collection for document in documents}
    for side, paths in user_files.sides.items():
        if side in sides_with_documents:
            continue
        source = {**user_files.source, "collections": {side: paths}}
        unused = fetch_local_files(LocalFilesSettings.model_validate(source)).unused
        reasons = "; ".join(explain_unused_parts(unused)[:_MAX_NAMED]) or "it has no readable file"
        names = ", ".join(map(str, paths[:_MAX_NAMED]))
        raise DataError(f"the {side.replace('_', '-')} files ({names}) have no readable document: {reasons}")


def explain_unused_parts(unused_parts: Sequence[tuple[str, str]]) -> list[str]:
    """Return one line per reason why files and rows are not documents, with the first files and rows."""
    parts_by_reason: dict[str, list[str]] = {}
    for part, reason in unused_parts:
        parts_by_reason.setdefault(reason, []).append(part)
    return [f"{_format_first_names(parts)}: {reason}" for reason, parts in parts_by_reason.items()]


def _count_side(
    side: str, documents: Sequence[Document], lengths: Mapping[tuple[str, str], int], window_words: int
) -> SideCounts:
    """Count the documents of a side.

    Args:
        side: The side.
        documents: The documents of all sides.
        lengths: Lengths of the documents in words, by side and name.
        window_words: The window length in words.
    """
    groups = set()
    dates = []
    first_days = []
    n_words = 0
    n_windows = 0
    n_editions = 0
    n_intervals = 0
    languages: Counter[str] = Counter()
    side_documents = [document for document in documents if document.collection == side]
    for document in side_documents:
        languages[document.language] += 1
        groups.add(document.group or document.name)
        length = lengths[side, document.name]
        n_words += length
        n_windows += min(_WINDOWS_PER_DOCUMENT, max(1, length // window_words))
        n_editions += document.edition is not None
        n_intervals += document.earliest is not None
        if document.published is not None:
            dates.append(document.published)
            first_days.append(document.earliest or document.published)
    return SideCounts(
        side=side,
        documents=len(side_documents),
        groups=len(groups),
        words=n_words,
        windows=n_windows,
        languages=dict(languages.most_common()),
        oldest=min(first_days, default=None),
        newest=max(dates, default=None),
        undated=len(side_documents) - len(dates),
        editions=n_editions,
        dated_by_interval=n_intervals,
    )


def _require_disjoint_sides(documents: Sequence[Document]) -> None:
    """Raise DataError if a text, compared without case and spacing, or a group is on two sides."""
    seen: dict[tuple[str, str | None], Document] = {}
    for document in documents:
        text_key = text_sha256(build_comparison_key(document.text))
        keys = (("the same text", text_key), (f"the group '{document.group}'", document.group))
        for description, key in keys:
            other = document if key is None else seen.setdefault((description, key), document)
            if other.collection != document.collection:
                sides = f"in the {other.collection} files and in the {document.collection} files".replace("_", "-")
                locations = f"{_format_location(other)} and {_format_location(document)}"
                raise DataError(
                    f"{description} is {sides} ({locations}). Name each text and each group on one side only."
                )


def _format_location(document: Document) -> str:
    """Return the absolute path of a document's file, with the row number if the file has rows.

    The absolute path is needed, because files on both sides can have the same name.
    """
    path = Path(url2pathname(urlsplit(document.url).path))
    if is_single_document(path):
        return str(path)
    return f"{path}#{document.name.rpartition('#')[2]}"
