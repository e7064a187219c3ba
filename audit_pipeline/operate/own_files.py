"""A user's own files, looked at before anything is run: what they are, and the benchmark that they make.

What belongs here: what was given, what it holds in numbers, what keeps it from being audited, and the entries of the
configuration that it comes to. What does not: reading files (sources/local_files.py), writing the workspace
(own_workspace.py), what can be concluded (evidence/within_reach.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from audit_pipeline.benchmarks.words import UnitName, word_unit
from audit_pipeline.catalogue.contracts import text_sha256
from audit_pipeline.errors import DataError
from audit_pipeline.evidence.within_reach import PlannedComparison
from audit_pipeline.sources.base import Document, Harvest
from audit_pipeline.sources.local_files import DETECT, NAME, LocalFilesSettings, harvest_path
from audit_pipeline.whole_files.read import is_whole_file

AUDITED, HELD_OUT, MEMBERS = "audited", "held_out", "members"
FAMILY, FAMILY_OF_KNOWN = "own_files", "own_files_known"
_WORDS, _FEWER_WORDS = 64, 32
_WINDOWS_PER_DOCUMENT = 20
_SEED = 20220101
_NAMED = 3


@dataclass(frozen=True)
class OwnFiles:
    """What a user named: files and folders on each side, and which columns of files of rows hold what.

    ``exchangeable``: chance alone decided which documents are held out.
    """

    audited: tuple[Path, ...]
    held_out: tuple[Path, ...] = ()
    members: tuple[Path, ...] = ()
    text_column: str | None = None
    title_column: str | None = None
    date_column: str | None = None
    group_column: str | None = None
    exchangeable: bool = False

    @property
    def sides(self) -> dict[str, tuple[Path, ...]]:
        """The files of each side that has some, each by its whole path and once."""
        given = {AUDITED: self.audited, HELD_OUT: self.held_out, MEMBERS: self.members}
        return {side: tuple(dict.fromkeys(path.resolve() for path in paths)) for side, paths in given.items() if paths}

    @property
    def source(self) -> dict[str, Any]:
        """The section of config/sources.yaml that reads them."""
        columns = {
            "text_column": self.text_column,
            "title_column": self.title_column,
            "date_column": self.date_column,
            "group_column": self.group_column,
        }
        return {
            "collections": {side: list(map(str, paths)) for side, paths in self.sides.items()},
            **{key: name for key, name in columns.items() if name is not None},
            "language": DETECT,
        }


@dataclass(frozen=True)
class SideFacts:
    """What the documents of one side are, in numbers. ``newest`` and ``oldest`` are dates of those that have one."""

    side: str
    documents: int
    groups: int
    words: int
    windows: int
    languages: Mapping[str, int]
    oldest: date | None
    newest: date | None
    undated: int


@dataclass(frozen=True)
class Looked:
    """What the files hold. ``unused`` are files and rows that make no document, each with the reason.

    ``unit`` and ``words`` say how the texts that detectors read are cut.
    """

    own: OwnFiles
    sides: Mapping[str, SideFacts]
    documents: tuple[Document, ...]
    unused: tuple[tuple[str, str], ...]
    unit: UnitName
    words: int

    @property
    def known_beforehand(self) -> PlannedComparison:
        """What decides which conclusions are possible."""
        groups = {side: facts.groups for side, facts in self.sides.items()}
        return PlannedComparison(
            groups[AUDITED],
            groups.get(HELD_OUT, 0),
            groups.get(MEMBERS, 0),
            sum(facts.windows for side, facts in self.sides.items() if side != MEMBERS),
            self.design,
        )

    def of_side(self, side: str) -> list[Document]:
        """The documents of one side."""
        return [one for one in self.documents if one.collection == side]

    @property
    def design(self) -> str:
        """How the held-out documents came to be that."""
        if HELD_OUT not in self.sides:
            return "unlabelled"
        return "exchangeable" if self.own.exchangeable else "temporal"

    def dated_from(self, day: date) -> int:
        """How many of the audited documents are dated on that day or later."""
        return sum(one.published is not None and one.published >= day for one in self.of_side(AUDITED))

    @property
    def title(self) -> str:
        """What a report calls the files: the names of the first that were given, and how many more there are."""
        names = [path.name for path in self.own.sides[AUDITED]]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"Your files: {', '.join(names[:_NAMED])}{more}"

    @property
    def benchmarks(self) -> dict[str, dict[str, Any]]:
        """The entries of config/benchmarks.yaml: the files; where both sides are known, these against each other."""
        known = {side: {"collections": [side]} for side in (HELD_OUT, MEMBERS) if side in self.sides}
        shelf = {
            "builder": "shelf",
            "sources": [NAME],
            "words": [self.words],
            "unit": self.unit,
            "windows_per_document": _WINDOWS_PER_DOCUMENT,
            # With more, the Infilling Score alone takes longer than all else.
            "infilling_m": 1,
            "short": "keep",
            "seed": _SEED,
            **known,
        }
        design = {} if self.design == "unlabelled" else {"design": self.design}
        entries = {
            FAMILY: {
                "title": self.title,
                "description": "Your own files, as corpus-audit check was given them.",
                **shelf,
                **design,
                "extraction": True,
            }
        }
        if len(known) == 2:
            entries[FAMILY_OF_KNOWN] = {
                "title": f"{self.title} (known beforehand)",
                "description": "Of your own files those that the model is known to have read, against those that it "
                "cannot have read: what the detectors are worth on such texts.",
                **shelf,
                "design": "temporal",
                "evaluates": "known",
            }
        return entries


def look(own: OwnFiles) -> Looked:
    """Read the files, and say what they hold.

    Raises DataError where a side that was named has no document, and where a text or a group is on two sides.
    """
    harvest = harvest_path(LocalFilesSettings.model_validate(own.source))
    documents = _each_once(harvest.documents)
    unused = _unused(harvest)
    for side in own.sides:
        if not any(one.collection == side for one in documents):
            raise DataError(_nothing(own, side, harvest))
    _require_apart(documents)
    languages = Counter(one.language for one in documents)
    unit: UnitName = "jieba" if max(languages, key=lambda one: languages[one]) == "zh" else "whitespace"
    split = word_unit(unit).split
    lengths = [len(split(one.text)) for one in documents]
    # Half of the documents are to have a whole window at least.
    words = _WORDS if sum(length >= _WORDS for length in lengths) * 2 >= len(lengths) else _FEWER_WORDS
    sides = {
        side: _facts(side, [pair for pair in zip(documents, lengths, strict=True) if pair[0].collection == side], words)
        for side in own.sides
    }
    return Looked(own, sides, tuple(documents), unused, unit, words)


def _unused(harvest: Harvest) -> tuple[tuple[str, str], ...]:
    missing = [(one.part, one.reason) for one in harvest.missing]
    return (*missing, *((one.part, one.reason) for one in harvest.left_out))


def in_words(unused: Sequence[tuple[str, str]]) -> list[str]:
    """Why parts make no document: a sentence for each reason, with the first parts that it holds for."""
    parts_of: dict[str, list[str]] = {}
    for part, reason in unused:
        parts_of.setdefault(reason, []).append(part)
    return [_why_unused(parts, reason) for reason, parts in parts_of.items()]


def _why_unused(parts: Sequence[str], reason: str) -> str:
    # Reasons of damaged files hold their path.
    if len(parts) == 1 and parts[0] in reason:
        return reason
    more = f" and {len(parts) - _NAMED:,} more" if len(parts) > _NAMED else ""
    return f"{', '.join(parts[:_NAMED])}{more}: {reason}"


def _each_once(documents: Sequence[Document]) -> list[Document]:
    """The first document of each name: a file that is named twice is one."""
    return list({(one.collection, one.name): one for one in reversed(documents)}.values())[::-1]


def _facts(side: str, documents: Sequence[tuple[Document, int]], words: int) -> SideFacts:
    dates = [one.published for one, _ in documents if one.published is not None]
    return SideFacts(
        side=side,
        documents=len(documents),
        groups=len({one.group or one.name for one, _ in documents}),
        words=sum(length for _, length in documents),
        windows=sum(min(_WINDOWS_PER_DOCUMENT, max(1, length // words)) for _, length in documents),
        languages=dict(Counter(one.language for one, _ in documents).most_common()),
        oldest=min(dates, default=None),
        newest=max(dates, default=None),
        undated=len(documents) - len(dates),
    )


def _nothing(own: OwnFiles, side: str, harvest: Harvest) -> str:
    given = ", ".join(map(str, own.sides[side][:_NAMED]))
    reasons = in_words(_unused(harvest))
    more = f" (and {len(reasons) - _NAMED} more)" if len(reasons) > _NAMED else ""
    why = f"; {'; '.join(reasons[:_NAMED])}{more}" if reasons else ": there is no file in it that can be read"
    return f"no document can be read of the {side.replace('_', '-')} files ({given}){why}"


def _require_apart(documents: Sequence[Document]) -> None:
    """Raise DataError where a text, or a group, stands on two sides: nobody could say which it is."""
    of_text: dict[str, Document] = {}
    of_group: dict[str, Document] = {}
    found: dict[str, list[str]] = {}
    for one in documents:
        for met, key, what in (
            (of_text, text_sha256(one.text), "the same text"),
            (of_group, one.group, f"the group '{one.group}'"),
        ):
            if key is None:
                continue
            other = met.setdefault(key, one)
            if other.collection != one.collection:
                sides = " and ".join(side.replace("_", "-") for side in (other.collection, one.collection))
                found.setdefault(f"{what} is {sides} at once", []).append(f"{_place_of(other)} = {_place_of(one)}")
    for what, places in found.items():
        more = f" and {len(places) - _NAMED:,} more" if len(places) > _NAMED else ""
        raise DataError(f"{what} ({', '.join(places[:_NAMED])}{more}): name it on one side only")


def _place_of(document: Document) -> str:
    """The file of a document by its whole path, and of a row its number: both sides may use one name."""
    path = Path(url2pathname(urlsplit(document.url).path))
    return str(path) if is_whole_file(path) else f"{path}#{document.name.rpartition('#')[2]}"
