"""What the command check says of the files before anything is run.

What belongs here: tables and sentences of what was looked at, what can be concluded, and what it takes. What does not:
finding any of it out (operate/own_files.py, evidence/within_reach.py).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from audit_pipeline.cli.sending import about
from audit_pipeline.operate.console import Row, say, show_table, visible

if TYPE_CHECKING:
    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.operate.own_files import Looked

_NAMED = 5


@dataclass(frozen=True)
class Work:
    """Tokens that the model is run on, for the detectors and for the search of whole documents; about how long that
    takes, where it is known."""

    tokens: int
    tokens_of_search: int
    seconds: float | None


def show_looked(looked: Looked) -> None:
    """What the files are, and which make no document."""
    rows = [asdict(facts) for facts in looked.sides.values()]
    show_table(
        "sides",
        rows,
        (
            ("files", lambda row: row["side"].replace("_", "-")),
            ("documents", lambda row: f"{row['documents']:,}"),
            ("words", lambda row: f"{row['words']:,}"),
            ("languages", _languages),
            ("dates", _dates),
        ),
    )
    from audit_pipeline.operate.own_files import in_words

    unused = [{"part": part, "reason": reason} for part, reason in looked.unused]
    lines = [f"  {visible(in_words(*one))}" for one in looked.unused[:_NAMED]]
    if len(unused) > _NAMED:
        lines.append(f"  and {len(unused) - _NAMED:,} more")
    words = "\n".join([f"\nLeft out: {len(unused):,} file(s), row(s) or parts of files", *lines]) if unused else ""
    say(words, left_out=unused)


def _languages(row: Row) -> str:
    counted: dict[str, int] = row["languages"]
    return ", ".join(f"{language} {count:,}" if len(counted) > 1 else language for language, count in counted.items())


def _dates(row: Row) -> str:
    if row["newest"] is None:
        return "none are known"
    span = f"{row['oldest']} to {row['newest']}"
    return f"{span}; {row['undated']:,} without" if row["undated"] else span


def say_reach(looked: Looked, model: ModelEntry) -> None:
    """What can be concluded with these files, and what would make it stronger."""
    from audit_pipeline.evidence.within_reach import within_reach

    reach = within_reach(looked.known_beforehand)
    stronger = [*_newer(looked, model), *reach.stronger]
    words = ["\nWhat can be concluded:", *(f"  * {one}" for one in reach.conclusions)]
    words += ["What would make it stronger:", *(f"  * {one}" for one in stronger)] if stronger else []
    say("\n".join(words), conclusions=list(reach.conclusions), stronger=stronger)


def _newer(looked: Looked, model: ModelEntry) -> list[str]:
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
    facts: dict[str, Any] = {"tokens": every, "tokens_of_search": work.tokens_of_search, "seconds": work.seconds}
    if not every:
        say("To run: nothing, all of it is in the cache.", work=facts)
        return
    say(
        f"To run: {every:,} tokens, of them {work.tokens_of_search:,} to search the documents for passages; time "
        f"{about(work.seconds)}, without loading. Likely passages add some.",
        work=facts,
    )
