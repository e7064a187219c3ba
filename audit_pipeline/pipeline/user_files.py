"""A user's own files, read before anything is run, and the workspace that audits them and nothing else.

The workspace is one as any other: its benchmark is not on request, so that the weekly audit takes it. The default
instrument check is added, which runs on request only. A second check may name other held-out documents or another
model: sources.yaml and benchmarks.yaml are written anew then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import yaml
from filelock import FileLock

from audit_pipeline.benchmarks import config as benchmarks
from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.benchmarks.words import UnitName, get_word_unit
from audit_pipeline.config.entries import Entries
from audit_pipeline.config.workspace_creation import create_workspace, read_default_header
from audit_pipeline.errors import ConfigError, DataError, escape_unprintable
from audit_pipeline.models import config as models
from audit_pipeline.models.config import ModelEntry, load_models, resolve_model
from audit_pipeline.readers.whole_files.document import is_single_document
from audit_pipeline.sources import config as sources
from audit_pipeline.sources.base import Document
from audit_pipeline.sources.local_files import DETECT, NAME, LocalFilesSettings, harvest_local_files
from audit_pipeline.splits.shared_text import build_comparison_key
from audit_pipeline.statistics.claims import HELD_OUT_DESIGNS, USER_OF_CHECK, Design, HeldOutReason
from audit_pipeline.statistics.possible_conclusions import PlannedComparison
from audit_pipeline.store.control_names import INSTRUMENT_CHECK
from audit_pipeline.store.files import read_json, write_json
from audit_pipeline.store.paths import DEFAULTS, WORKSPACE_FILE, config_dir, is_workspace
from audit_pipeline.tables import text_sha256

AUDITED, HELD_OUT, MEMBERS = "audited", "held_out", "members"
FAMILY, FAMILY_OF_KNOWN = "own_files", "own_files_known"
_WORDS, _FEWER_WORDS = 64, 32
_WINDOWS_PER_DOCUMENT = 20
_SEED = 20220101
_NAMED = 3


@dataclass(frozen=True)
class UserFiles:
    """The files and folders that a user named on each side, and the columns of files of rows.

    Attributes:
        held_out_because: The reason that the user states for what is held out, or None if none is stated.
        edition_dates: Whether the dates that files give of their editions count as dates of first publication.
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
        """The files of each side that has some, each by its whole path and once."""
        given = {AUDITED: self.audited, HELD_OUT: self.held_out, MEMBERS: self.members}
        return {side: tuple(dict.fromkeys(path.resolve() for path in paths)) for side, paths in given.items() if paths}

    @property
    def source(self) -> dict[str, Any]:
        """The section of config/sources.yaml that reads them."""
        keys = ("text_column", "title_column", "date_column", "group_column")
        section: dict[str, Any] = {
            "collections": {side: list(map(str, paths)) for side, paths in self.sides.items()},
            **{key: name for key in keys if (name := getattr(self, key)) is not None},
            "language": DETECT,
        }
        if self.edition_dates:
            section["edition_dates"] = True
        return section

    @property
    def request(self) -> dict[str, Any]:
        """All that was named, as the workspace records it."""
        return {**self.source, "held_out_because": self.held_out_because}


@dataclass(frozen=True)
class SideFacts:
    """Counts of the documents of one side."""

    side: str
    documents: int
    groups: int
    words: int
    windows: int
    languages: Mapping[str, int]
    oldest: date | None  # the first day that the date of a document allows
    newest: date | None  # the last such day
    undated: int
    editions: int  # documents whose file gives a date of this edition
    dated_by_interval: int  # documents whose date is a year, a month or another interval


@dataclass(frozen=True)
class Inventory:
    """What the files hold. ``unused`` are files and rows that make no document, each with the reason.

    ``unit`` and ``words`` say how the texts that detectors read are cut.
    """

    own: UserFiles
    sides: Mapping[str, SideFacts]
    documents: tuple[Document, ...]
    unused: tuple[tuple[str, str], ...]
    unit: UnitName
    words: int

    @property
    def planned_comparison(self) -> PlannedComparison:
        """What decides which conclusions are possible."""
        groups = {side: facts.groups for side, facts in self.sides.items()}
        return PlannedComparison(
            groups[AUDITED],
            groups.get(HELD_OUT, 0),
            groups.get(MEMBERS, 0),
            sum(facts.windows for side, facts in self.sides.items() if side != MEMBERS),
            self.design,
        )

    def documents_of_side(self, side: str) -> list[Document]:
        """The documents of one side."""
        return [document for document in self.documents if document.collection == side]

    @property
    def design(self) -> Design:
        """How the held-out documents were chosen."""
        return HELD_OUT_DESIGNS[self.own.held_out_because] if HELD_OUT in self.sides else "unlabelled"

    def count_dated_from(self, day: date) -> int:
        """Return the number of audited documents whose first possible day is that day or later."""
        return sum(
            document.published is not None and (document.earliest or document.published) >= day
            for document in self.documents_of_side(AUDITED)
        )

    @property
    def title(self) -> str:
        """What a report calls the files: the names of the first that were given, and how many more there are."""
        names = [escape_unprintable(path.name) for path in self.own.sides[AUDITED]]
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
        reason = self.own.held_out_because
        stated_by = f"{USER_OF_CHECK} --held-out" + ("" if reason is None else f" --held-out-because {reason}")
        design = {} if self.design == "unlabelled" else {"design": self.design, "design_stated_by": stated_by}
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
                "description": "Of your own files those that you named as read, against those that you named as not "
                "read: what the detectors are worth on such texts.",
                **shelf,
                # Chance chose among the audited documents: how the members were chosen, it does not say.
                "design": "selected" if self.design == "exchangeable" else self.design,
                "design_stated_by": f"{stated_by} and --members",
                "evaluates": "known",
            }
        return entries


def inspect_user_files(user_files: UserFiles) -> Inventory:
    """Read the files, and say what they hold.

    Raises DataError where a side that was named has no document, and where a text or a group is on two sides.
    """
    harvest = harvest_local_files(LocalFilesSettings.model_validate(user_files.source))
    # A file that is named twice is one.
    documents = list({(document.collection, document.name): document for document in harvest.documents}.values())
    for side, paths in user_files.sides.items():
        if not any(document.collection == side for document in documents):
            alone = {**user_files.source, "collections": {side: paths}}
            unused = harvest_local_files(LocalFilesSettings.model_validate(alone)).unused
            reasons = explain_unused_parts(unused)[:_NAMED]
            raise DataError(
                f"no document can be read of the {side.replace('_', '-')} files ({', '.join(map(str, paths[:_NAMED]))})"
                f": {'; '.join(reasons) or 'there is no file in it that can be read'}"
            )
    _require_disjoint_sides(documents)
    languages = Counter(document.language for document in documents)
    unit: UnitName = "jieba" if languages.most_common(1)[0][0] == "zh" else "whitespace"
    split = get_word_unit(unit).split
    lengths = {(document.collection, document.name): len(split(document.text)) for document in documents}
    # Half of the documents are to have a whole window at least.
    long = sum(length >= _WORDS for length in lengths.values())
    words = _WORDS if long * 2 >= len(lengths) else _FEWER_WORDS
    sides = {side: _compute_side_facts(side, documents, lengths, words) for side in user_files.sides}
    return Inventory(user_files, sides, tuple(documents), harvest.unused, unit, words)


def explain_unused_parts(unused_parts: Sequence[tuple[str, str]]) -> list[str]:
    """Why parts make no document: a sentence for each reason, with the first parts that it holds for."""
    parts_of: dict[str, list[str]] = {}
    for part, reason in unused_parts:
        parts_of.setdefault(reason, []).append(part)
    return [
        f"{', '.join(parts[:_NAMED])}{f' and {len(parts) - _NAMED:,} more' if len(parts) > _NAMED else ''}: {reason}"
        for reason, parts in parts_of.items()
    ]


def _compute_side_facts(
    side: str, documents: Sequence[Document], lengths: Mapping[tuple[str, str], int], words: int
) -> SideFacts:
    own = [document for document in documents if document.collection == side]
    own_lengths = [lengths[side, document.name] for document in own]
    dates = [document.published for document in own if document.published is not None]
    first_days = [document.earliest or document.published for document in own if document.published is not None]
    return SideFacts(
        side=side,
        documents=len(own),
        groups=len({document.group or document.name for document in own}),
        words=sum(own_lengths),
        windows=sum(min(_WINDOWS_PER_DOCUMENT, max(1, length // words)) for length in own_lengths),
        languages=dict(Counter(document.language for document in own).most_common()),
        oldest=min(first_days, default=None),
        newest=max(dates, default=None),
        undated=len(own) - len(dates),
        editions=sum(document.edition is not None for document in own),
        dated_by_interval=sum(document.earliest is not None for document in own),
    )


def _require_disjoint_sides(documents: Sequence[Document]) -> None:
    """Raise DataError if a text, in any spelling, or a group is on two sides: it is not known which is right."""
    seen: dict[tuple[str, str | None], Document] = {}
    for document in documents:
        text_key = text_sha256(build_comparison_key(document.text))
        keys = (("the same text", text_key), (f"the group '{document.group}'", document.group))
        for what, key in keys:
            other = document if key is None else seen.setdefault((what, key), document)
            if other.collection != document.collection:
                sides = " and ".join(each.collection.replace("_", "-") for each in (other, document))
                places = f"{_format_place(other)} = {_format_place(document)}"
                raise DataError(f"{what} is {sides} at once ({places}): name it on one side only")


def _format_place(document: Document) -> str:
    """The file of a document by its whole path, and of a row its number: both sides may use one name."""
    path = Path(url2pathname(urlsplit(document.url).path))
    return str(path) if is_single_document(path) else f"{path}#{document.name.rpartition('#')[2]}"


USUAL_FOLDER = "corpus-audit-check"
_RECORD = "check.json"
"""Next to the configuration: the request that it was written for."""
_SOURCES_HEAD = """\
# Written by corpus-audit check: which of your own files are read, and on which side each of them is. The files stay
# where they are; new files in a folder are read with the next audit. docs/input-files.md says what can be read.
"""


def find_own_workspace() -> Path:
    """The folder of a check where the user names none: the workspace in use, where corpus-audit check made it, else
    ./corpus-audit-check."""
    in_use = config_dir().parent
    return in_use if (in_use / "config" / _RECORD).is_file() else Path.cwd() / USUAL_FOLDER


@dataclass(frozen=True)
class OwnWorkspace:
    """Where it is, and which of its files were written now; ``is_new``: all of them."""

    folder: Path
    is_new: bool
    written: tuple[str, ...]


def resolve_workspace_model(name: str, folder: Path) -> tuple[ModelEntry, dict[str, dict[str, Any]]]:
    """The model that a user named, and the entries that a workspace in ``folder`` needs to audit it.

    It is looked for in that workspace first, if any, then in the configuration that is used here. Raises
    ConfigError and ModelError as :func:`resolve_model` does, and ConfigError for a model that was trained here.
    """
    config = folder / "config"
    if is_workspace(folder) and name in (known := load_models(config)):
        return known[name], {}
    known = load_models()
    entry = resolve_model(name, known)
    if entry.control is not None:
        raise ConfigError(f"{name} was trained here on texts of its own, and knows nothing else; name another model")
    needed = {entry.name: _build_entry_fields(entry, known)}
    if entry.reference_model is not None and entry.reference_model in known:
        needed[entry.reference_model] = _build_entry_fields(known[entry.reference_model], known)
    return entry, needed


def _build_entry_fields(entry: ModelEntry, entries: Entries[ModelEntry]) -> dict[str, Any]:
    """The entry as it is written, its path whole: that counts from the folder of its file."""
    given = entries.raw_values.get(entry.name)
    found = entry.model_dump(mode="json", exclude_unset=True, exclude_none=True, exclude={"name"})
    fields = dict(given) if isinstance(given, Mapping) else found
    if entry.adapter is not None:
        fields["adapter"] = found["adapter"]
    return {**fields, "path": str(entry.path)} if entry.path is not None else fields


def ensure_workspace(
    folder: Path, inventory: Inventory, model_entries: Mapping[str, Mapping[str, Any]]
) -> OwnWorkspace:
    """Make ``folder`` the workspace of these files, or the one that is there that of this request.

    ``model_entries`` are the models' entries that it must have. Raises ConfigError where the folder holds something
    else, or a workspace of other files.
    """
    config, request = folder / "config", inventory.own.request
    if _is_free(folder):
        of_control = _entries_of_control(load_models(DEFAULTS / "config"))
        wanted = _build_config_files(inventory, {**model_entries, **of_control})
        create_workspace(folder, wanted)
        write_json(config / _RECORD, request)
        return OwnWorkspace(folder, is_new=True, written=tuple(wanted))
    recorded = _read_record(folder)
    files = recorded["collections"][AUDITED]
    if files != request["collections"][AUDITED]:
        raise ConfigError(
            f"{folder} is the workspace of other files ({', '.join(files[:3])}): name another folder with "
            "--workspace, or remove that folder"
        )
    with FileLock(config / "check.lock"):
        known = load_models(config)
        kept = {name: _build_entry_fields(known[name], known) for name in known}
        wanted = _build_config_files(inventory, {**kept, **model_entries, **kept})
        if recorded == request:
            del wanted[sources.FILE.name], wanted[benchmarks.FILE_NAME]
        if set(model_entries) <= set(known):
            del wanted[models.FILE_NAME]
        for name, text in wanted.items():
            (config / name).write_text(text, encoding="utf-8")
        write_json(config / _RECORD, request)
    return OwnWorkspace(folder, is_new=False, written=tuple(wanted))


@contextmanager
def make_dry_run_workspace(
    folder: Path, inventory: Inventory, model_entries: Mapping[str, Mapping[str, Any]]
) -> Iterator[OwnWorkspace]:
    """The workspace of these files for a dry run: the one in ``folder``, or one that is gone when the block ends.

    Raises ConfigError as :func:`ensure_workspace` does. ``folder`` stays free where it is free.
    """
    if not _is_free(folder):
        yield ensure_workspace(folder, inventory, model_entries)
        return
    with TemporaryDirectory(prefix="corpus-audit-") as made:
        yield ensure_workspace(Path(made), inventory, model_entries)


def _is_free(folder: Path) -> bool:
    """Whether ``folder`` can be made a workspace."""
    return not ((folder / "config").exists() or (folder / WORKSPACE_FILE).exists())


def _build_config_files(inventory: Inventory, model_entries: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    control = _entries_of_control(load_benchmarks(DEFAULTS / "config").families)
    return {
        sources.FILE.name: _SOURCES_HEAD + _to_yaml({NAME: inventory.own.source}),
        benchmarks.FILE_NAME: _with_head(benchmarks.FILE_NAME, "benchmarks", {**inventory.benchmarks, **control}),
        models.FILE_NAME: _with_head(models.FILE_NAME, "models", model_entries),
    }


def _entries_of_control(entries: Entries[Any]) -> dict[str, Mapping[str, Any]]:
    """The entries of the default configuration that the instrument check needs, as they are written."""
    return {
        name: given
        for name, given in entries.raw_values.items()
        if isinstance(given, Mapping) and INSTRUMENT_CHECK in _controls_of(given)
    }


def _controls_of(entry: Mapping[str, Any]) -> Collection[object]:
    """What an entry names as its control: a benchmark its name, a model its name and role."""
    control = entry.get("control")
    return control.values() if isinstance(control, Mapping) else (control,)


def _with_head(name: str, key: str, entries: Mapping[str, Any]) -> str:
    return read_default_header(name, key) + _to_yaml({key: dict(entries)})


def _to_yaml(value: Mapping[str, Any]) -> str:
    # Without aliases: two entries repeat the same settings, so that each can be edited alone.
    dumper = type("Dumper", (yaml.SafeDumper,), {"ignore_aliases": lambda self, data: True})
    return yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, width=110)


def _read_record(folder: Path) -> dict[str, Any]:
    """The request that the workspace in ``folder`` was written for."""
    try:
        record: dict[str, Any] = read_json(folder / "config" / _RECORD)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{folder} holds something that corpus-audit check did not make, or did not finish: name another folder "
            "with --workspace, or remove that folder"
        ) from error
    return record
