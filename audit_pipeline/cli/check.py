"""The command check: a user's own files against a model, from the files to the report.

What belongs here: its options, the order of calls, and what is said before anything is run: tables and sentences of
what was looked at, what can be concluded, and what it takes. What does not: what the files are and their workspace
(operate/own_files.py), what can be concluded (evidence/possible_conclusions.py), the audit (audit_output.py). Heavy
packages are imported where they are needed.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.catalogue.control_roles import INSTRUMENT_CHECK, INSTRUMENT_CHECK_TAKES
from audit_pipeline.catalogue.paths import DataPaths, use_workspace
from audit_pipeline.cli.audit_output import audit_pairs, publish_outcomes, show_audit_outcome
from audit_pipeline.cli.controls import pairs_of_control
from audit_pipeline.cli.exhibit import AUTHORITY, seal_plans
from audit_pipeline.cli.options import (
    DETAILS,
    DEVICE,
    LIMITS,
    MODEL,
    PASSES_KEPT,
    TEXT_COLUMN,
    SeveralFiles,
    json_option,
    keeps,
)
from audit_pipeline.cli.results import open_report_in_browser
from audit_pipeline.cli.shared import (
    estimate_seconds,
    format_estimated_time,
    get_writable_paths,
    load_whole_configuration,
    say_sending,
    say_weights_fit,
    tell_problems,
)
from audit_pipeline.operate.audit_request import AuditRequest
from audit_pipeline.operate.console import (
    Row,
    escape_control_characters,
    is_json_output,
    report_slow_work,
    say,
    show_table,
    tell_step,
)
from audit_pipeline.operate.options import AuditOptions, RunOptions
from audit_pipeline.report.number_format import format_thousands

if TYPE_CHECKING:
    from audit_pipeline.evidence.possible_conclusions import PassageSearch
    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.models.tokenized_model import TokenizedModel
    from audit_pipeline.operate.own_files import Inventory, OwnFiles, OwnWorkspace
    from audit_pipeline.sources.base import Document

_NAMED = 20
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


def show_file_facts(inventory: Inventory) -> None:
    """What the files are, and which make no document."""
    rows = [asdict(facts) for facts in inventory.sides.values()]
    show_table(
        "sides",
        rows,
        (
            ("files", "side", lambda side: side.replace("_", "-")),
            ("documents", "documents", format_thousands),
            ("words", "words", format_thousands),
            ("languages", _format_languages),
            ("dates", _format_dates),
        ),
    )
    from audit_pipeline.operate.own_files import explain_unused_parts

    titles = [
        line for side in inventory.sides for line in _iterate_title_lines(side, inventory.documents_of_side(side))
    ]
    documents = [
        {"side": document.collection, "title": document.title, "name": document.name}
        for document in inventory.documents
    ]
    unused = [{"part": part, "reason": reason} for part, reason in inventory.unused]
    reasons = explain_unused_parts(inventory.unused)
    lines = [f"  {escape_control_characters(reason)}" for reason in reasons[:_NAMED]]
    if len(reasons) > _NAMED:
        lines.append(f"  and {len(reasons) - _NAMED:,} more reasons")
    if unused:
        lines.insert(0, f"\nLeft out: {len(unused):,} file(s), row(s) or parts of files")
    say("\n".join([*map(escape_control_characters, titles), *lines]), documents=documents, left_out=unused)


def _iterate_title_lines(side: str, documents: Sequence[Document]) -> Iterator[str]:
    """The titles of the first documents of a side, each with its file or row."""
    yield f"\nTitles of the {side.replace('_', '-')} documents:"
    for document in documents[:_TITLES]:
        yield f"  {document.title} ({document.name})"
    if len(documents) > _TITLES:
        yield f"  and {len(documents) - _TITLES:,} more"


def _format_languages(row: Row) -> str:
    counted: dict[str, int] = row["languages"]
    return ", ".join(f"{language} {count:,}" if len(counted) > 1 else language for language, count in counted.items())


def _format_dates(row: Row) -> str:
    if row["newest"] is None:
        return "none are known"
    span = f"{row['oldest']} to {row['newest']}"
    return f"{span}; {row['undated']:,} without" if row["undated"] else span


def say_possible_conclusions(
    inventory: Inventory, model: ModelEntry, search: PassageSearch, instrument: InstrumentCheck | None
) -> None:
    """What can be concluded with these files, and what would make it stronger."""
    from audit_pipeline.evidence.possible_conclusions import list_possible_conclusions

    reach = list_possible_conclusions(inventory.known_beforehand, search)
    stronger = [*_suggest_newer_as_held_out(inventory, model), *reach.stronger, *_suggest_instrument_check(instrument)]
    words = ["\nWhat can be concluded:", *(f"  * {conclusion}" for conclusion in reach.conclusions)]
    words += ["What would make it stronger:", *(f"  * {change}" for change in stronger)] if stronger else []
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


def _suggest_newer_as_held_out(inventory: Inventory, model: ModelEntry) -> list[str]:
    """Where some of the audited documents are newer than the model: they could be held out."""
    if model.release_date is None or not (newer := inventory.count_dated_from(model.release_date)):
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
    time = f"time {format_estimated_time(work.seconds)}, without loading"
    say(f"To run: {every:,} tokens, of them {of_search}; {time}.{more}", work=facts)


_FILES = click.Path(exists=True, path_type=Path)


@keeps(PASSES_KEPT)
@click.command(cls=SeveralFiles)
@click.argument("files", nargs=-1, required=True, type=_FILES)
@MODEL
@click.option(
    "--held-out",
    metavar="FILES…",
    multiple=True,
    type=_FILES,
    help="Documents of the same kind that the model cannot have read: newer than the model, or never published. The "
    "others are compared with them.",
)
@click.option(
    "--members",
    metavar="FILES…",
    multiple=True,
    type=_FILES,
    help="Documents that the model is known to have read: with --held-out they show what the detectors are worth.",
)
@click.option(
    "--exchangeable",
    is_flag=True,
    help="Chance alone decided which documents of the collection are held out. What may be claimed depends on it.",
)
@TEXT_COLUMN
@click.option("--title-column", help="Column of the title, in files of rows. Default: the file's name and a number.")
@click.option("--group-column", help="Column of the book, patent or article that a row is a part of.")
@click.option("--date-column", help="Column of the date of first publication, as 2024-05-31.")
@click.option(
    "--workspace",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder for configuration, data and report. The same folder again goes on from what is there. Default: "
    "the workspace that the command is called in, where check made it; else ./corpus-audit-check.",
)
@click.option(
    "--dry-run", is_flag=True, help="Look at the files and estimate the time. No workspace is made, no model is run."
)
@click.option(
    "--seal", "sealed", is_flag=True, help="Seal the plan of the audit before the model is run (docs/exhibit.md)."
)
@AUTHORITY
@click.option("--no-open", is_flag=True, help="Do not open the report in a browser.")
@DEVICE
@DETAILS
@LIMITS
@json_option
def check(
    files: tuple[Path, ...],
    model: str,
    held_out: tuple[Path, ...],
    members: tuple[Path, ...],
    exchangeable: bool,
    text_column: str | None,
    title_column: str | None,
    group_column: str | None,
    date_column: str | None,
    workspace: Path | None,
    dry_run: bool,
    sealed: bool,
    authority: str | None,
    no_open: bool,
    details: bool,
    **given: Any,
) -> None:
    """Find out whether a model has read your files.

    FILES are folders and files: .txt, .md, .html, .epub, .pdf and .docx are one document each, every row of a .jsonl,
    .csv or .parquet is one. Name them before --held-out and --members. The same command again finds what is done.
    docs/check.md explains the answer.
    """
    if exchangeable and not held_out:
        raise click.UsageError("--exchangeable says how the documents of --held-out were chosen: name some")
    if authority is not None and not sealed:
        raise click.UsageError("--authority stamps the plan that --seal seals: give both")
    asked = AuditOptions(**given, publish=False)
    from audit_pipeline.models.tokenized_model import load_tokenizer
    from audit_pipeline.operate.own_files import (
        OwnFiles,
        ensure_workspace,
        find_own_workspace,
        make_dry_run_workspace,
        resolve_workspace_model,
    )

    own = OwnFiles(
        files, held_out, members, text_column, title_column, date_column, group_column, exchangeable=exchangeable
    )
    folder = find_own_workspace() if workspace is None else workspace.resolve()
    entry, needed = resolve_workspace_model(model, folder)
    looked = _inspect_and_show_files(own)
    # A workspace's own configuration is in the environment later.
    weekly, control = (
        _build_workspace_command(folder, words) for words in ("dev --weekly", f"control {INSTRUMENT_CHECK}")
    )
    with (
        make_dry_run_workspace(folder, looked, needed)
        if dry_run
        else nullcontext(ensure_workspace(folder, looked, needed)) as made
    ):
        is_kept = made.folder == folder
        with use_workspace(made.folder, own_data=not is_kept):
            tokenized = load_tokenizer(entry, get_writable_paths())
            passage_search = _assess_passage_search(tokenized, looked)
            say_possible_conclusions(looked, entry, passage_search, _read_instrument_status(control))
            _say_workspace(made, folder)
            say_work(_prepare_and_estimate(tokenized, list(looked.benchmarks), asked))
            if not dry_run:
                if sealed:
                    _seal_families(tokenized, list(looked.benchmarks), authority)
                _audit_families(entry.name, list(looked.benchmarks), asked, details=details)
    if is_kept:
        say(f"\nTo audit these files every week:\n  {weekly}", weekly=weekly)
    if not (dry_run or no_open or is_json_output()) and has_display():
        with use_workspace(folder):
            open_report_in_browser(DataPaths.from_environment())


def _inspect_and_show_files(own: OwnFiles) -> Inventory:
    from audit_pipeline.operate.own_files import inspect_own_files

    with report_slow_work("reading") as tell_reading:
        tell_reading("the files")
        inspection = inspect_own_files(own)
    show_file_facts(inspection)
    return inspection


def _say_workspace(own_workspace: OwnWorkspace, folder: Path) -> None:
    if own_workspace.folder != folder:
        say(f"\nWorkspace: {folder} (not made: this is a dry run)", workspace=folder, written=[])
        return
    what = (
        "made"
        if own_workspace.is_new
        else f"changed {', '.join(own_workspace.written)}"
        if own_workspace.written
        else "as it was"
    )
    say(f"\nWorkspace: {folder} ({what})", workspace=folder, written=list(own_workspace.written))


def _assess_passage_search(model: TokenizedModel, inventory: Inventory) -> PassageSearch:
    """Which of the audited documents are long enough to be searched, by the model's own tokens."""
    from audit_pipeline.evidence.possible_conclusions import PassageSearch
    from audit_pipeline.extraction.windows import encode_windows_at, explain_window_too_long
    from audit_pipeline.operate.own_files import AUDITED
    from audit_pipeline.operate.stages.extraction import USUAL

    lengths, documents = USUAL.lengths, inventory.documents_of_side(AUDITED)
    if (problem := explain_window_too_long(model, lengths)) is not None:
        return PassageSearch(len(documents), 0, lengths.window, problem)
    too_short = sum(not encode_windows_at(model, document.text, [0], lengths) for document in documents)
    return PassageSearch(len(documents), too_short, lengths.window)


def _read_instrument_status(command: str) -> InstrumentCheck | None:
    """Whether the instrument check was run with the data in use; None where the configuration has none."""
    from audit_pipeline.operate.situation import is_evaluated

    pairs = pairs_of_control(load_whole_configuration(), INSTRUMENT_CHECK)
    if not pairs:
        return None
    paths = DataPaths.from_environment()
    return InstrumentCheck(all(is_evaluated(pair, paths) for pair in pairs), command)


def _prepare_and_estimate(tokenized: TokenizedModel, families: list[str], options: RunOptions) -> Work:
    """What the audit of these families takes, once their texts are there."""
    entry, paths = tokenized.entry, get_writable_paths()
    config = load_whole_configuration()
    specs = [spec for family in families for spec in config.benchmarks_named(family)]
    tell_problems(config.problems)

    from audit_pipeline.definitions import defs
    from audit_pipeline.extraction.search import Search
    from audit_pipeline.extraction.windows import explain_window_too_long
    from audit_pipeline.operate.dagster.audit import plan_dry_run, prepare
    from audit_pipeline.operate.stages.extraction import USUAL, documents_of
    from audit_pipeline.token_statistics.cached_texts import Caches

    prepare(specs, defs(), paths, tell_step)
    plans = [plan for plan, _ in plan_dry_run(AuditRequest(entry, specs), tokenized, paths).plans.values()]
    tokens = sum(plan.tokens_to_run + plan.branch_tokens for plan in plans)
    searched = [spec for spec in specs if spec.settings.extraction]
    windows, in_windows = 0, 0
    if explain_window_too_long(tokenized, USUAL.lengths) is None:
        caches = Caches(paths)
        for spec in searched:
            found, run = Search(tokenized, documents_of(spec.name, entry, paths), USUAL, caches).tokens()
            windows, in_windows = windows + found, in_windows + run
    if entry.host.is_here:
        say_weights_fit(tokenized, options.device)
    say_sending([(tokenized, tokens + in_windows)], options.limits.require_usable_for(entry))
    return Work(tokens, in_windows, windows, estimate_seconds(tokenized, tokens + in_windows, options))


def _seal_families(model: TokenizedModel, families: list[str], authority: str | None) -> None:
    config = load_whole_configuration()
    specs = [spec for family in families for spec in config.benchmarks_named(family)]
    seal_plans(specs, model, get_writable_paths(), authority)


def _audit_families(model: str, families: list[str], options: AuditOptions, *, details: bool) -> None:
    audited = [audit_pairs(model, family, options) for family in families]
    publish_outcomes(audited)
    for audit in audited:
        show_audit_outcome(audit, details=details)


def _build_workspace_command(folder: Path, command: str) -> str:
    """One line that runs a command in the workspace in ``folder``."""
    # A configuration that the environment names goes before a workspace's own.
    config = (
        "" if "CORPUS_AUDIT_CONFIG" not in os.environ else f"CORPUS_AUDIT_CONFIG={shlex.quote(str(folder / 'config'))} "
    )
    return f"cd {shlex.quote(str(folder))} && {config}corpus-audit {command}"


def has_display() -> bool:
    """Whether a browser that is opened here can be seen by anybody; who names one (BROWSER) says so."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))
