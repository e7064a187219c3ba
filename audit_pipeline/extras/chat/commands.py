"""The command ask, which asks chat models for the text of documents."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from audit_pipeline.cli import shared_options
from audit_pipeline.cli.run_setup import get_writable_paths, publish
from audit_pipeline.cli.shared_options import GO_ON, ListedCommand, Section
from audit_pipeline.extras.chat import DRAWS, PASSAGES
from audit_pipeline.pipeline import console
from audit_pipeline.pipeline.console import Columns, Row
from audit_pipeline.pipeline.options import parse_names
from audit_pipeline.report.number_format import format_percent, format_probability, format_thousands
from audit_pipeline.store.paths import DataPaths, is_text_output_allowed

if TYPE_CHECKING:
    from audit_pipeline.extras.chat.asking import AskedTexts, AskPlan, AskReport
    from audit_pipeline.extras.chat.config import ChatModel
    from audit_pipeline.extras.chat.imported_outputs import ImportedOutput
    from audit_pipeline.extras.chat.prompt_styles import AskRequest
    from audit_pipeline.models.usage_budget import Budget

_ENTRY_LIMIT = "The limit in the model's entry applies, too."
_OUTCOMES = ("requests", "answered", "refused", "filtered", "cut", "empty")
_MISSING: Sequence[tuple[str, Callable[[Row], bool], str]] = (
    ("words in", lambda row: row["words_in"] is None, "the rows of --outputs have no text in the column prompt"),
    (
        "score, p and q",
        lambda row: row["score"] is None and not row["answered"],
        "no answer could be measured: all are refused, filtered, cut or empty",
    ),
    (
        "score, p and q",
        lambda row: row["score"] is None and row["answered"] > 0,
        "no row of --outputs contains the exact text of its passage in the column passage",
    ),
    (
        "p and q",
        lambda row: row["side"] == "audited" and row["score"] is not None and row["p_value"] is None,
        "no held-out document has a score to compare with; give held-out documents with --held-out, and get answers "
        "about them",
    ),
)
"""The numbers that a document's row may lack, each with its name, the condition for the lack, and the reason."""


def _format_grade(row: Row) -> str:
    words_in = "unknown" if row["words_in"] is None else f"{row['words_in']:.0f}"
    return f"{words_in} → {format_thousands(row['words_out'] or 0)}"


_DOCUMENTS: Columns = (
    ("document", lambda row: str(row["title"] or row["document_id"])),
    ("side", lambda row: row["side"].replace("_", "-")),
    ("answered", lambda row: f"{row['answered']} of {row['requests']}"),
    ("words in → out", _format_grade),
    ("longest run", "longest_run"),
    ("score", "score", format_percent),
    ("p", "p_value", format_probability),
    ("q", "q_bh", format_probability),
    ("claim", "claim"),
)


@click.command(cls=ListedCommand, section=Section.AUDIT, position=30, keeps=f"All received answers are kept. {GO_ON}")
@click.option(
    "--model",
    required=True,
    help="Name of the model's entry in config/chat_models.yaml. With --outputs: a name for the model that wrote the "
    "answers, for rows without a column model.",
)
@click.option(
    "--texts",
    type=shared_options.EXISTING,
    multiple=True,
    metavar="FILES…",
    help="Documents to ask about, in the formats of `corpus-audit check`.",
)
@click.option(
    "--held-out",
    type=shared_options.EXISTING,
    multiple=True,
    metavar="FILES…",
    help="Documents of the same kind that you know the model has not read. The documents of --texts are compared with "
    "these documents.",
)
@click.option(
    "--benchmark",
    help="Ask about the documents of a built benchmark instead of files. Non-members of the benchmark are held out.",
)
@click.option(
    "--name",
    default="asked",
    show_default=True,
    help="Name for the set of files of --texts and --held-out. The answers are stored under this name.",
)
@click.option(
    "--rungs",
    help="Prompt styles, separated by commas: title, first line, prefix, instruction. Each style gives the model more "
    "of the document than the style before. Default: all.",
)
@click.option(
    "--headline",
    help="Prompt style whose results decide the conclusion. Choose it before you see any result. Default: the headline "
    "style of earlier runs. Without an earlier run: instruction, or prefix if the model's entry has interface: "
    "completions.",
)
@click.option(
    "--draws",
    type=click.IntRange(min=0),
    default=DRAWS,
    show_default=True,
    help="Number of randomly drawn answers per prompt, in addition to the answer at temperature 0.",
)
@click.option(
    "--passages",
    type=click.IntRange(1, 100),
    default=PASSAGES,
    show_default=True,
    help="Maximum number of passages per document that the model is asked for.",
)
@click.option(
    "--outputs",
    type=shared_options.INPUT_FILE,
    help="Measure the answers in this file, and do not ask the model. The file needs the columns document and output. "
    "The columns passage, prompt and model are optional.",
)
@shared_options.text_column_option
@click.option(
    "--max-requests",
    type=shared_options.AT_LEAST_1,
    help=f"Maximum number of requests of this run. {_ENTRY_LIMIT}",
)
@click.option(
    "--max-tokens",
    type=shared_options.AT_LEAST_1,
    help=f"Maximum number of tokens of this run, of prompts and answers together. {_ENTRY_LIMIT}",
)
@click.option(
    "--max-cost",
    type=shared_options.POSITIVE,
    help=f"Maximum cost of this run, in the currency of the prices in the model's entry. {_ENTRY_LIMIT}",
)
@click.option("--dry-run", is_flag=True, help="Show the recipient, the requests and their cost. Nothing is sent.")
@click.option("--no-text", is_flag=True, help="Store digests and measures, but no prompts and no answers.")
@shared_options.table_output_options
def ask(
    model: str,
    texts: tuple[Path, ...],
    held_out: tuple[Path, ...],
    benchmark: str | None,
    name: str,
    rungs: str | None,
    headline: str | None,
    draws: int,
    passages: int,
    outputs: Path | None,
    text_column: str | None,
    max_requests: int | None,
    max_tokens: int | None,
    max_cost: float | None,
    dry_run: bool,
    no_text: bool,
) -> None:
    """Ask a chat model for texts, and measure its answers.

    The prompts range from a title to a prefix of a passage. Words of the prompt do not count in the answer. If you
    repeat the command, only requests without an answer are sent. docs/ask.md explains the numbers.
    """
    if bool(texts) == (benchmark is not None):
        raise click.UsageError("Give either --texts FILES or --benchmark NAME.")
    if held_out and benchmark is not None:
        raise click.UsageError(
            "--held-out cannot be combined with --benchmark. The non-members of the benchmark are held out. Remove "
            "--held-out."
        )
    if outputs is not None and (dry_run or rungs or headline):
        raise click.UsageError("--outputs sends no prompts. Remove --dry-run, --rungs and --headline.")
    from audit_pipeline.extras.chat.asking import AskRunOptions, ask_pair, find_missing_requests, plan_from_options
    from audit_pipeline.extras.chat.asking import read_texts_of_benchmark as read_benchmark

    paths = DataPaths.from_environment() if dry_run else get_writable_paths()
    asked = _read_files(texts, held_out, name, text_column, paths) if texts else read_benchmark(str(benchmark), paths)
    keeps_text = is_text_output_allowed() and not no_text
    run_id = f"ask-{uuid.uuid4()}"
    if outputs is not None:
        reports = _measure_outputs(outputs, asked, model, paths, run_id, keeps_text=keeps_text)
        _show_and_publish(reports, paths, keeps_text)
        return
    from audit_pipeline.extras.chat.chat_client import open_budget
    from audit_pipeline.extras.chat.config import load_chat_models
    from audit_pipeline.extras.chat.prompt_styles import PROMPT_STYLES

    entry = load_chat_models().get_entry(model)
    options = AskRunOptions(
        rungs=[*(parse_names(rungs) or PROMPT_STYLES)],
        headline=headline,
        draws=draws,
        passages=passages,
        max_requests=max_requests,
        max_tokens=max_tokens,
        max_cost=max_cost,
    )
    plan = plan_from_options(asked, entry, paths, options)
    missing = find_missing_requests(plan, entry, paths)
    _print_plan(plan, entry, missing)
    if dry_run:
        return
    budget = open_budget(entry, options.limits)
    report = ask_pair(
        plan,
        entry,
        paths,
        run_id,
        budget,
        keeps_text=keeps_text,
        notify=console.print_message,
        on_answer=lambda answered: console.show_progress(f"{entry.name}: {answered:,} of {len(missing):,} answers"),
    )
    _print_usage(entry, budget)
    _show_and_publish([report], paths, keeps_text)
    if report.fault is not None:
        raise report.fault


def _measure_outputs(
    file: Path, texts: AskedTexts, model: str, paths: DataPaths, run_id: str, *, keeps_text: bool
) -> list[AskReport]:
    """Measure the outputs in a file, and store the results. ``model`` is the model of rows that name no model."""
    from audit_pipeline.extras.chat.asking import write_outputs
    from audit_pipeline.extras.chat.imported_outputs import read_outputs

    read = read_outputs(file, texts.documents)
    console.print_skipped(read.skipped.first, read.skipped.count)
    by_model: dict[str, list[ImportedOutput]] = {}
    for output in read.outputs:
        by_model.setdefault(output.model or model, []).append(output)
    return [write_outputs(texts, found, name, paths, run_id, keeps_text=keeps_text) for name, found in by_model.items()]


def _read_files(
    texts: tuple[Path, ...], held_out: tuple[Path, ...], name: str, text_column: str | None, paths: DataPaths
) -> AskedTexts:
    from audit_pipeline.extras.chat.asking import read_texts_of_files
    from audit_pipeline.pipeline.user_files import UserFiles, explain_unused_parts, inspect_user_files

    with console.report_slow_work("reading") as report:
        report("the files")
        inventory = inspect_user_files(UserFiles(texts, held_out, text_column=text_column))
    for reason in explain_unused_parts(inventory.unused):
        console.print_message(f"Skipped: {reason}")
    return read_texts_of_files(inventory, name, paths)


def _print_plan(plan: AskPlan, entry: ChatModel, missing: Sequence[AskRequest]) -> None:
    """Print the requests, their recipient and their maximum cost."""
    from audit_pipeline.extras.chat.chat_client import estimate_usage
    from audit_pipeline.extras.chat.rows import prepare_request

    sides = Counter(document.side for document in plan.texts.documents)
    most = estimate_usage(entry, (prepare_request(entry, request) for request in missing))
    answered = len(plan.requests) - len(missing)
    money = "at unknown cost, because its entry has no prices"
    if most.cost is not None:
        money = f"for at most {most.cost:,.4g} in the currency of the prices in its entry"
    console.print_result(
        f"{sides['audited']:,} audited and {sides['held_out']:,} held-out documents: {len(plan.requests):,} requests, "
        f"{answered:,} of them answered. {entry.name}: {entry.recipient_notice}. {most.requests:,} requests remain, "
        f"with at most {most.tokens:,} tokens, {money}.",
        **most._asdict(),
        answered=answered,
        sent_to=entry.host,
    )


def _print_usage(entry: ChatModel, budget: Budget) -> None:
    cost = entry.cost_of(*budget.used)
    priced = "" if cost is None else f", {cost:,.4g} in the currency of the prices in its entry"
    console.print_result(
        f"Sent: {budget.requests:,} requests, {budget.tokens:,} tokens{priced}.",
        used={"requests": budget.requests, "tokens": budget.tokens, "cost": cost},
    )


def _show_and_publish(reports: Sequence[AskReport], paths: DataPaths, quoted: bool) -> None:
    from audit_pipeline.cli.audit_output import format_answer
    from audit_pipeline.report.page_data import read_conclusions

    for report in reports:
        _show_report(report)
    publish(paths, include_text=quoted)
    conclusions = {}
    for report in reports:
        model = report.pair.model
        answers = read_conclusions(paths.warehouse, model).in_answers
        if report.pair.benchmark in answers:
            conclusions[model] = answers[report.pair.benchmark]
            console.print_result(f"\n{model}: {format_answer(conclusions[model])}")
    console.print_result(f"Report: {paths.report}", report=paths.report, conclusions=conclusions)


def _show_report(report: AskReport) -> None:
    headline = sorted(
        ({"model": report.pair.model, **row} for row in report.documents if row["is_headline"]),
        key=lambda row: (row["side"], -(row["score"] or 0.0), row["document_id"]),
    )
    console.show_table("documents", headline, _DOCUMENTS)
    _print_missing_numbers(report.pair.model, headline)
    rungs: dict[str, Counter[str]] = {}
    for row in report.documents:
        rungs.setdefault(row["rung"], Counter()).update({outcome: row[outcome] for outcome in _OUTCOMES})
    counted = [{"model": report.pair.model, "rung": rung, **counts} for rung, counts in rungs.items()]
    console.show_table("rungs", counted, [("prompt style", "rung"), *((name, name) for name in _OUTCOMES)])


def _print_missing_numbers(model: str, documents: Sequence[Row]) -> None:
    """Print which numbers the documents lack, how many documents lack them, and why."""
    missing: list[Row] = []
    for number, is_missing, reason in _MISSING:
        count = sum(map(is_missing, documents))
        if count:
            missing.append({"model": model, "number": number, "documents": count, "reason": reason})
    if missing:
        lines = (
            f"Missing for {row['documents']} of {len(documents)} documents: '{row['number']}'. Reason: {row['reason']}."
            for row in missing
        )
        console.print_result("\n".join(lines), missing=missing)
