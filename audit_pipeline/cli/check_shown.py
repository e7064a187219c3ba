"""What the command check says of the files before anything is run.

What belongs here: tables and sentences of what was looked at, what can be concluded, and what it takes. What does not:
finding any of it out (operate/own_files.py, evidence/within_reach.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from audit_pipeline.cli.sending import about
from audit_pipeline.controls.roles import INSTRUMENT_CHECK_TAKES
from audit_pipeline.operate.console import Row, say, show_table, visible
from audit_pipeline.report.numbers import thousands

if TYPE_CHECKING:
    from audit_pipeline.evidence.within_reach import PassageSearch
    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.operate.own_files import Looked
    from audit_pipeline.sources.base import Document

_NAMED = 5
_TITLES = 10


@dataclass(frozen=True)
class Work:
    """Tokens that the model is run on, for the detectors and for the search of whole documents; about how long that
    takes, where it is known. ``windows_of_search``: the passages that are searched for, those in the cache too."""

    tokens: int
    tokens_of_search: int
    windows_of_search: int
    seconds: float | None


@dataclass(frozen=True)
class InstrumentCheck:
    """Whether the instrument check was run with this data; ``command``: the line that runs it."""

    is_done: bool
    command: str


def show_file_facts(looked: Looked) -> None:
    """What the files are, and which make no document."""
    rows = [asdict(facts) for facts in looked.sides.values()]
    show_table(
        "sides",
        rows,
        (
            ("files", "side", lambda side: side.replace("_", "-")),
            ("documents", "documents", thousands),
            ("words", "words", thousands),
            ("languages", _languages),
            ("dates", _dates),
        ),
    )
    from audit_pipeline.operate.own_files import in_words

    titles = [line for side in looked.sides for line in _titles(side, looked.of_side(side))]
    documents = [{"side": one.collection, "title": one.title, "name": one.name} for one in looked.documents]
    unused = [{"part": part, "reason": reason} for part, reason in looked.unused]
    reasons = in_words(looked.unused)
    lines = [f"  {visible(one)}" for one in reasons[:_NAMED]]
    if len(reasons) > _NAMED:
        lines.append(f"  and {len(reasons) - _NAMED:,} more reasons")
    if unused:
        lines.insert(0, f"\nLeft out: {len(unused):,} file(s), row(s) or parts of files")
    say("\n".join([*map(visible, titles), *lines]), documents=documents, left_out=unused)


def _titles(side: str, documents: Sequence[Document]) -> Iterator[str]:
    """The titles of the first documents of a side, each with its file or row."""
    yield f"\nTitles of the {side.replace('_', '-')} documents:"
    for one in documents[:_TITLES]:
        yield f"  {one.title} ({one.name})"
    if len(documents) > _TITLES:
        yield f"  and {len(documents) - _TITLES:,} more"


def _languages(row: Row) -> str:
    counted: dict[str, int] = row["languages"]
    return ", ".join(f"{language} {count:,}" if len(counted) > 1 else language for language, count in counted.items())


def _dates(row: Row) -> str:
    if row["newest"] is None:
        return "none are known"
    span = f"{row['oldest']} to {row['newest']}"
    return f"{span}; {row['undated']:,} without" if row["undated"] else span


def say_possible_conclusions(
    looked: Looked, model: ModelEntry, search: PassageSearch, instrument: InstrumentCheck | None
) -> None:
    """What can be concluded with these files, and what would make it stronger."""
    from audit_pipeline.evidence.within_reach import within_reach

    reach = within_reach(looked.known_beforehand, search)
    stronger = [*_suggest_newer_as_held_out(looked, model), *reach.stronger, *_suggest_instrument_check(instrument)]
    words = ["\nWhat can be concluded:", *(f"  * {one}" for one in reach.conclusions)]
    words += ["What would make it stronger:", *(f"  * {one}" for one in stronger)] if stronger else []
    facts = {"conclusions": list(reach.conclusions), "stronger": stronger, "search": asdict(search)}
    say("\n".join(words), **facts, instrument_check=None if instrument is None else asdict(instrument))


def _suggest_instrument_check(instrument: InstrumentCheck | None) -> list[str]:
    """Where nobody has seen yet that the detectors find what is there: the command that shows it."""
    if instrument is None or instrument.is_done:
        return []
    return [
        "The instrument has not been checked in this workspace: whether the detectors find texts that a model was "
        f"trained on. After this check, in {INSTRUMENT_CHECK_TAKES}: {instrument.command}"
    ]


def _suggest_newer_as_held_out(looked: Looked, model: ModelEntry) -> list[str]:
    """Where some of the audited documents are newer than the model: they could be held out."""
    if model.release_date is None or not (newer := looked.dated_from(model.release_date)):
        return []
    return [
        f"{newer:,} of the audited documents are dated {model.release_date} or later, when {model.name} was released: "
        "if these are the dates of first publication, the model cannot have read them. Name them with --held-out."
    ]


def say_work(work: Work) -> None:
    """How much is run, and about how long it takes."""
    every = work.tokens + work.tokens_of_search
    facts: dict[str, Any] = asdict(work) | {"tokens": every}
    if not every:
        say("To run: nothing, all of it is in the cache.", work=facts)
        return
    of_search = (
        f"{work.tokens_of_search:,} to search the documents for passages"
        if work.windows_of_search
        else "none to search for passages"
    )
    more = " Likely passages add some." if work.windows_of_search else ""
    time = f"time {about(work.seconds)}, without loading"
    say(f"To run: {every:,} tokens, of them {of_search}; {time}.{more}", work=facts)
