"""The command check: a user's own files against a model, from the files to the report."""

from __future__ import annotations

import os
import shlex
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from audit_pipeline.cli import shared_options
from audit_pipeline.cli.audit_output import audit_pairs, publish_outcomes, show_audit_outcome
from audit_pipeline.cli.output import estimate_seconds, format_estimated_time, print_run_resources, print_sending_plan
from audit_pipeline.cli.run_setup import build_benchmarks, get_writable_paths, load_whole_configuration, print_problems
from audit_pipeline.cli.shared_options import PASSES_KEPT, ListedCommand, Section, record_exit_state
from audit_pipeline.extras.evidence_packs.commands import seal_plans
from audit_pipeline.pipeline import console
from audit_pipeline.pipeline.audit_requests import AuditRequest
from audit_pipeline.pipeline.console import Columns, Row
from audit_pipeline.pipeline.options import AuditOptions, RunOptions
from audit_pipeline.report.number_format import format_thousands
from audit_pipeline.statistics.claims import HeldOutReason
from audit_pipeline.store.paths import INSTRUMENT_CHECK, INSTRUMENT_CHECK_TAKES, DataPaths, use_workspace

if TYPE_CHECKING:
    from audit_pipeline.benchmarks.settings import BenchmarkSpec
    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.models.tokenized_model import TokenizedModel
    from audit_pipeline.pipeline.user_files import Inventory
    from audit_pipeline.pipeline.workspace_creation import CheckWorkspace
    from audit_pipeline.sources.base import Document
    from audit_pipeline.statistics.possible_conclusions import PassageSearch

_MAX_LISTED_FILES = 20
_MAX_LISTED_TITLES = 10


def _format_languages(row: Row) -> str:
    counted: dict[str, int] = row["languages"]
    if len(counted) == 1:
        return next(iter(counted))
    return ", ".join(f"{language} {count:,}" for language, count in counted.items())


def _format_date_range(row: Row) -> str:
    if row["newest"] is None:
        return "unknown"
    parts = [f"{row['oldest']} to {row['newest']}"]
    if row["dated_by_interval"]:
        parts.append(f"{row['dated_by_interval']:,} with only a year, a month or another interval")
    if row["undated"]:
        parts.append(f"{row['undated']:,} without a date")
    return "; ".join(parts)


_SIDES: Columns = (
    ("files", "side", lambda side: side.replace("_", "-")),
    ("documents", "documents", format_thousands),
    ("words", "words", format_thousands),
    ("languages", _format_languages),
    ("dates", _format_date_range),
)


def _show_file_facts(inventory: Inventory) -> None:
    """Print the counts, dates and titles of the documents, and the files, rows and parts that are not used."""
    from audit_pipeline.pipeline.user_files import explain_unused_parts

    console.show_table("sides", [asdict(facts) for facts in inventory.sides.values()], _SIDES)
    documents: list[Row] = []
    for document in inventory.documents:
        edition = None if document.edition is None else str(document.edition)
        documents.append(
            {"side": document.collection, "title": document.title, "name": document.name, "edition": edition}
        )
    lines: list[str] = []
    for side in inventory.sides:
        titles = [_format_title(document) for document in inventory.documents_of_side(side)]
        lines += [f"\nTitles of the {side.replace('_', '-')} documents:", *_limit_lines(titles, _MAX_LISTED_TITLES)]
    editions = sum(facts.editions for facts in inventory.sides.values())
    if editions and inventory.user_files.edition_dates:
        lines.append(f"\n{editions:,} document(s) are dated by the edition date in their files.")
    elif editions:
        lines.append(
            f"\n{editions:,} file(s) contain the date of their edition. This date is not used, because a reprint is "
            "newer than the work. To use it as the date of first publication, add --edition-dates."
        )
    if inventory.unused:
        lines.append(f"\nSkipped: {len(inventory.unused):,} file(s), row(s) or parts of files")
        lines += _limit_lines(explain_unused_parts(inventory.unused), _MAX_LISTED_FILES)
    unused = [{"part": part, "reason": reason} for part, reason in inventory.unused]
    console.print_result(console.escape_control_characters("\n".join(lines)), documents=documents, left_out=unused)


def _format_title(document: Document) -> str:
    if document.edition is None:
        return f"{document.title} ({document.name})"
    return f"{document.title} ({document.name}; this edition: {document.edition})"


def _limit_lines(lines: Sequence[str], most: int) -> list[str]:
    """Return the first lines, indented, and the number of further lines."""
    shown = [f"  {line}" for line in lines[:most]]
    if len(lines) > most:
        shown.append(f"  and {len(lines) - most:,} more")
    return shown


def _print_possible_conclusions(
    inventory: Inventory, model: ModelEntry, search: PassageSearch, instrument_is_done: bool | None, control: str
) -> None:
    """Print the possible conclusions from these files, and changes that would make the conclusions stronger.

    Args:
        inventory: The content of the files.
        model: The model's entry.
        search: The number of documents that can be searched for passages.
        instrument_is_done: Whether the instrument check was run, or None if it is not configured.
        control: The command line of the instrument check.
    """
    from audit_pipeline.statistics.possible_conclusions import list_possible_conclusions

    reach = list_possible_conclusions(inventory.planned_comparison, search)
    stronger = list(reach.stronger)
    newer = 0 if model.release_date is None else inventory.count_audited_from(model.release_date)
    if newer:
        stronger.insert(
            0,
            f"{newer:,} of the audited documents are dated {model.release_date} or later, when {model.name} was "
            "released: if these are the dates of first publication, the model cannot have read them. Name them with "
            "--held-out.",
        )
    if instrument_is_done is False:
        stronger.append(
            "The instrument check has not been run in this workspace. It shows whether the detectors find texts that a "
            f"model was trained on. To run it ({INSTRUMENT_CHECK_TAKES}): {control}"
        )
    words = ["\nWhat can be concluded:", *(f"  * {conclusion}" for conclusion in reach.conclusions)]
    if stronger:
        words += ["What would make the conclusions stronger:", *(f"  * {change}" for change in stronger)]
    instrument = None if instrument_is_done is None else {"is_done": instrument_is_done, "command": control}
    facts = {"conclusions": list(reach.conclusions), "stronger": stronger, "search": asdict(search)}
    console.print_result("\n".join(words), **facts, instrument_check=instrument)


@click.command(cls=ListedCommand, section=Section.BEGIN, position=10, keeps=PASSES_KEPT)
@click.argument("files", nargs=-1, required=True, type=shared_options.EXISTING)
@shared_options.model_option
@click.option(
    "--held-out",
    type=shared_options.EXISTING,
    multiple=True,
    metavar="FILES…",
    help="Documents of the same kind that you know the model has not read: newer than the model, or never published. "
    "The other documents are compared with them.",
)
@click.option(
    "--members",
    type=shared_options.EXISTING,
    multiple=True,
    metavar="FILES…",
    help="Documents that the model is known to have read. Comparing them with the documents of --held-out shows how "
    "well the detectors work.",
)
@click.option(
    "--held-out-because",
    type=click.Choice(get_args(HeldOutReason)),
    help="Why the model cannot have read the documents of --held-out: they are newer than the model, they were never "
    "published, or they were drawn at random from one collection. The claim level depends on this reason. Default: not "
    "stated.",
)
@click.option("--exchangeable", is_flag=True, help="Same as --held-out-because random.")
@shared_options.text_column_option
@click.option(
    "--title-column",
    help="Column of the title, in files of rows. Default: the column id, else the file name and the row number.",
)
@click.option(
    "--group-column",
    help="Column of the book, patent or article that a row belongs to. Default: each row is a document of its own.",
)
@click.option(
    "--date-column",
    help="Column of the date of first publication: 2024-05-31, 2024-05 or 2024. Default: the rows have no dates.",
)
@click.option(
    "--edition-dates",
    is_flag=True,
    help="Use the edition date in EPUB, PDF and Word files as the date of first publication.",
)
@click.option(
    "--workspace",
    type=shared_options.FOLDER,
    help="Folder for configuration, data and report. An existing workspace is reused. Default: the current "
    "workspace if check created it, otherwise ./corpus-audit-check.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Inspect the files and estimate the time. No workspace is created, and no model is run.",
)
@click.option(
    "--seal",
    is_flag=True,
    help="Write a sealed plan of the audit before the model is run, to prove later that the analysis was fixed before "
    "the results (docs/exhibit.md).",
)
@shared_options.authority_option
@click.option("--no-open", is_flag=True, help="Do not open the report in a browser.")
@shared_options.device_option
@shared_options.limit_options
@shared_options.details_option
@shared_options.fail_on_option("found", "stale")
@shared_options.table_output_options
def check(
    files: tuple[Path, ...],
    model: str,
    held_out: tuple[Path, ...],
    members: tuple[Path, ...],
    held_out_because: HeldOutReason | None,
    exchangeable: bool,
    text_column: str | None,
    title_column: str | None,
    group_column: str | None,
    date_column: str | None,
    edition_dates: bool,
    workspace: Path | None,
    dry_run: bool,
    seal: bool,
    authority: str | None,
    no_open: bool,
    details: bool,
    **run_options: Any,
) -> None:
    """Find out whether a model has read your files.

    FILES are folders and files. Each .txt, .md, .html, .epub, .pdf and .docx file is one document, and so is each row
    of a .jsonl, .csv or .parquet file. Name FILES before --held-out and --members. If you run the same command again,
    it reuses finished work. docs/check.md explains the answer.
    """
    options = AuditOptions(publish=False, **run_options)
    if exchangeable and held_out_because not in (None, "random"):
        raise click.UsageError(f"--exchangeable contradicts --held-out-because {held_out_because}. Give one of them.")
    if (exchangeable or held_out_because) and not held_out:
        given = "--exchangeable" if exchangeable else "--held-out-because"
        raise click.UsageError(f"{given} requires --held-out. Add --held-out FILES.")
    if authority is not None and not seal:
        raise click.UsageError("--authority requires --seal. Add --seal.")
    from audit_pipeline.models.tokenized_model import load_tokenized
    from audit_pipeline.pipeline.user_files import UserFiles, inspect_user_files
    from audit_pipeline.pipeline.workspace_creation import (
        ensure_workspace,
        find_check_workspace,
        make_dry_run_workspace,
        resolve_workspace_model,
    )

    user_files = UserFiles(
        files,
        held_out,
        members,
        text_column,
        title_column,
        date_column,
        group_column,
        held_out_because="random" if exchangeable else held_out_because,
        edition_dates=edition_dates,
    )
    folder = find_check_workspace() if workspace is None else workspace.resolve()
    entry, needed = resolve_workspace_model(model, folder)
    with console.report_slow_work("reading") as report:
        report("the files")
        inventory = inspect_user_files(user_files)
    _show_file_facts(inventory)
    # The commands depend on the environment, which use_workspace changes below.
    weekly = _build_workspace_command(folder, "dev --weekly")
    control = _build_workspace_command(folder, f"control {INSTRUMENT_CHECK}")
    with (
        make_dry_run_workspace(folder, inventory, needed)
        if dry_run
        else nullcontext(ensure_workspace(folder, inventory, needed)) as made
    ):
        is_kept = made.folder == folder
        with use_workspace(made.folder, own_data=not is_kept):
            tokenized = load_tokenized(entry, get_writable_paths())
            passage_search = _count_searchable_documents(tokenized, inventory)
            _print_possible_conclusions(inventory, entry, passage_search, _is_instrument_checked(), control)
            _print_workspace(made, folder)
            specs, has_work = _build_benchmarks_and_print_work(tokenized, list(inventory.benchmarks), options)
            if dry_run and has_work:
                record_exit_state("stale")
            if seal and not dry_run:
                seal_plans(specs, tokenized, get_writable_paths(), authority)
            if not dry_run:
                audited = [audit_pairs(entry.name, family, options) for family in inventory.benchmarks]
                publish_outcomes(audited)
                for audit in audited:
                    show_audit_outcome(audit, details=details)
    if is_kept:
        console.print_result(f"\nTo audit these files every week:\n  {weekly}", weekly=weekly)
    if not (dry_run or no_open or console.is_json_output()) and can_open_browser():
        with use_workspace(folder):
            webbrowser.open(DataPaths.from_environment().report.as_uri())


def _print_workspace(workspace: CheckWorkspace, folder: Path) -> None:
    if workspace.folder != folder:
        console.print_result(f"\nWorkspace: {folder} (not created: this is a dry run)", workspace=folder, written=[])
        return
    changed = f"changed {', '.join(workspace.written)}" if workspace.written else "unchanged"
    what = "created" if workspace.is_new else changed
    console.print_result(f"\nWorkspace: {folder} ({what})", workspace=folder, written=list(workspace.written))


def _count_searchable_documents(model: TokenizedModel, inventory: Inventory) -> PassageSearch:
    """Count the audited documents, and the documents with too few tokens for the search for passages."""
    from audit_pipeline.benchmarks.settings import ExtractionSettings
    from audit_pipeline.extras.extraction.window_probabilities import encode_windows_at, explain_window_too_long
    from audit_pipeline.pipeline.user_files import AUDITED
    from audit_pipeline.statistics.possible_conclusions import PassageSearch

    lengths = ExtractionSettings().lengths
    documents = inventory.documents_of_side(AUDITED)
    problem = explain_window_too_long(model, lengths)
    if problem is not None:
        return PassageSearch(len(documents), 0, lengths.window, problem)
    too_short = sum(not encode_windows_at(model, document.text, [0], lengths) for document in documents)
    return PassageSearch(len(documents), too_short, lengths.window)


def _is_instrument_checked() -> bool | None:
    """Return whether the instrument check was run in this data folder, or None if it is not configured."""
    from audit_pipeline.pipeline.workspace_state import WorkspaceState
    from audit_pipeline.tables import EVALUATIONS

    pairs = load_whole_configuration().pairs_of_control(INSTRUMENT_CHECK)
    if not pairs:
        return None
    state = WorkspaceState(DataPaths.from_environment())
    return all(state.find_latest_entry(EVALUATIONS.name, pair.partition) for pair in pairs)


def _build_benchmarks_and_print_work(
    tokenized: TokenizedModel, families: list[str], options: RunOptions
) -> tuple[list[BenchmarkSpec], bool]:
    """Build the benchmarks of these families, and print the number of tokens to run and the estimated time.

    Returns:
        The benchmarks, and whether they need any work.
    """
    entry = tokenized.entry
    paths = get_writable_paths()
    config = load_whole_configuration()
    specs = [spec for family in families for spec in config.benchmarks_named(family)]
    print_problems(config.problems)
    build_benchmarks(specs, paths)

    from audit_pipeline.extras.extraction.pair_extraction import read_searched_documents
    from audit_pipeline.extras.extraction.search import Search
    from audit_pipeline.extras.extraction.window_probabilities import explain_window_too_long
    from audit_pipeline.pipeline.dagster.audit import plan_dry_run
    from audit_pipeline.token_statistics.cached_texts import Caches

    dry = plan_dry_run(AuditRequest([entry], specs), tokenized, paths)
    windows = 0
    to_search = 0
    for spec in specs:
        extraction = spec.settings.extraction
        if extraction is not None and explain_window_too_long(tokenized, extraction.lengths) is None:
            search = Search(tokenized, read_searched_documents(spec.name, tokenized, paths), extraction, Caches(paths))
            new_windows, new_tokens = search.count_windows_and_tokens()
            windows += new_windows
            to_search += new_tokens
    tokens = sum(plan.tokens_to_run + plan.branch_tokens for plan, _ in dry.plans.values()) + to_search
    print_run_resources(tokenized, options)
    print_sending_plan([(tokenized, tokens)], options.limits.require_usable_for(entry))
    seconds = estimate_seconds(tokenized, tokens, options)
    work = {"tokens": tokens, "tokens_of_search": to_search, "windows_of_search": windows, "seconds": seconds}
    message = "To run: nothing. All results are in the cache."
    if tokens:
        time = f"Time without loading the model: {format_estimated_time(seconds)}"
        message = f"To run: {tokens:,} tokens. {time}."
        if windows:
            message += (
                f" {to_search:,} of these tokens are for the search for passages in the documents. Each passage that "
                "the search finds likely needs more tokens."
            )
    console.print_result(message, work=work)
    return specs, dry.has_work


def _build_workspace_command(folder: Path, command: str) -> str:
    """Return the command line that runs a command in the workspace in ``folder``."""
    config = ""
    # The environment variable would take precedence over the configuration of the workspace.
    if "CORPUS_AUDIT_CONFIG" in os.environ:
        config = f"CORPUS_AUDIT_CONFIG={shlex.quote(str(folder / 'config'))} "
    return f"cd {shlex.quote(str(folder))} && {config}corpus-audit {command}"


def can_open_browser() -> bool:
    """Return whether a browser can be shown on this machine, by its environment variables."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))
