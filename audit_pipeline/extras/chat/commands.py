"""The command ask: what a model that answers in words gives of documents. Each command imports what it needs."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from audit_pipeline.cli.command_declaration import GO_ON, TEXT_COLUMN, Place, Section, command, option
from audit_pipeline.cli.run_setup import get_writable_paths, publish
from audit_pipeline.extras.chat.defaults import DRAWS, PASSAGES
from audit_pipeline.pipeline.console import (
    Columns,
    Row,
    print_message,
    print_result,
    print_skipped,
    report_slow_work,
    show_progress,
    show_table,
)
from audit_pipeline.pipeline.options import EXISTING, INPUT_FILE, NAMES
from audit_pipeline.report.number_format import format_percent, format_probability, format_thousands
from audit_pipeline.store.paths import DataPaths, is_text_output_allowed

if TYPE_CHECKING:
    from audit_pipeline.extras.chat.asking import AskedTexts, AskPlan, AskReport
    from audit_pipeline.extras.chat.config import ChatModel
    from audit_pipeline.extras.chat.given_outputs import HandedOutput
    from audit_pipeline.extras.chat.prompt_styles import AskRequest
    from audit_pipeline.models.usage_budget import Budget

_OUTCOMES = ("requests", "answered", "refused", "filtered", "cut", "empty")
_MISSING: Sequence[tuple[str, Callable[[Row], bool], str]] = (
    ("words in", lambda row: row["words_in"] is None, "the prompts are not known (column prompt)"),
    (
        "score, p and q",
        lambda row: row["score"] is None and not row["answered"],
        "no answer could be measured: all are refused, filtered, cut or empty",
    ),
    (
        "score, p and q",
        lambda row: row["score"] is None and row["answered"] > 0,
        "no answer names the text of its passage exactly as the document has it (column passage)",
    ),
    (
        "p and q",
        lambda row: row["side"] == "audited" and row["score"] is not None and row["p_value"] is None,
        "no held-out document has a score to compare it with (--held-out, and answers about these documents)",
    ),
)
"""Of rows of documents: a number that is missing, where it is, and why."""


def _format_grade(row: Row) -> str:
    words_in = "unknown" if row["words_in"] is None else f"{row['words_in']:.0f}"
    return f"{words_in} → {format_thousands(row['words_out'] or 0)}"


_DOCUMENTS: Columns = (
    ("document", lambda row: str(row["title"] or row["document_id"])),
    ("side", lambda row: row["side"].replace("_", "-")),
    ("answered", lambda row: f"{row['answered']} of {row['requests']}"),
    ("words in → out", _format_grade),
    ("longest run", "longest_run"),
    ("came back", "score", format_percent),
    ("p", "p_value", format_probability),
    ("q", "q_bh", format_probability),
    ("claim", "claim"),
)


@command(Place(Section.AUDIT, 30), keeps=f"Every answer that came is kept. {GO_ON}")
def ask(
    model: str = option(
        "An entry of config/chat_models.yaml; with --outputs a name for the model whose outputs they are."
    ),
    texts: tuple[Path, ...] = option("The documents, as `corpus-audit check` takes them.", EXISTING, metavar="FILES…"),
    held_out: tuple[Path, ...] = option(
        "Documents of the same kind that the model has not read, by your statement: the others are compared with them.",
        EXISTING,
        metavar="FILES…",
    ),
    benchmark: str | None = option("In place of files: the documents of a built benchmark, its non-members held out."),
    name: str = option("A name for the files, under which answers are kept.", default="asked"),
    rungs: Sequence[str] | None = option(
        "How it is asked: title, first line, prefix, instruction. Default: all.", NAMES
    ),
    headline: str | None = option(
        "The rung whose numbers answer, named beforehand. Default: instruction; prefix for interface: completions."
    ),
    draws: int = option("Drawn answers in addition to the likeliest.", default=DRAWS, least=0),
    passages: int = option("The most passages of a document.", click.IntRange(1, 100), PASSAGES),
    outputs: Path | None = option(
        "Rows of document, passage, prompt, output: nothing is asked, these are measured.", INPUT_FILE
    ),
    text_column: str | None = TEXT_COLUMN,
    max_requests: int | None = option("The most requests that are sent.", least=1),
    max_tokens: int | None = option("The most tokens, of prompts and answers together.", least=1),
    max_cost: float | None = option("The most that it may cost.", click.FloatRange(min=0, min_open=True)),
    dry_run: bool = option("Say what would be sent to whom, and what it costs. Nothing is sent."),
    no_text: bool = option("Keep digests and measures, no prompt and no answer."),
) -> None:
    """Ask a model that only talks, and measure what comes back.

    A ladder of prompts, from a title to a prefix; what was in a prompt counts for nothing. The same command again
    asks what is missing. docs/ask.md explains the numbers.
    """
    if bool(texts) == (benchmark is not None):
        raise click.UsageError("say which documents: either --texts FILES or --benchmark NAME")
    if held_out and benchmark is not None:
        raise click.UsageError("a benchmark says itself which documents are held out: leave --held-out out")
    if outputs is not None and (dry_run or rungs or headline):
        raise click.UsageError("with --outputs nothing is asked: leave out what says how, and --dry-run")
    from audit_pipeline.extras.chat.asking import AskingOptions, ask_pair, find_missing_requests, plan_from_options
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
    options = AskingOptions(
        rungs=[*(rungs or PROMPT_STYLES)],
        headline=headline,
        draws=draws,
        passages=passages,
        max_requests=max_requests,
        max_tokens=max_tokens,
        max_cost=max_cost,
    )
    plan = plan_from_options(asked, entry, paths, options)
    missing = find_missing_requests(plan, entry, paths)
    _say_plan(plan, entry, missing)
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
        notify=print_message,
        on_answer=lambda answered: show_progress(f"{entry.name}: {answered:,} of {len(missing):,} answers"),
    )
    _say_used(entry, budget)
    _show_and_publish([report], paths, keeps_text)
    if report.fault is not None:
        raise report.fault


def _measure_outputs(
    file: Path, texts: AskedTexts, model: str, paths: DataPaths, run_id: str, *, keeps_text: bool
) -> list[AskReport]:
    """Measure what others asked already, of each model that the rows name, else of ``model``."""
    from audit_pipeline.extras.chat.asking import write_outputs
    from audit_pipeline.extras.chat.given_outputs import read_outputs

    read = read_outputs(file, texts.documents)
    print_skipped(read.skipped.first, read.skipped.count)
    by_model: dict[str, list[HandedOutput]] = {}
    for output in read.outputs:
        by_model.setdefault(output.model or model, []).append(output)
    return [write_outputs(texts, found, name, paths, run_id, keeps_text=keeps_text) for name, found in by_model.items()]


def _read_files(
    texts: tuple[Path, ...], held_out: tuple[Path, ...], name: str, text_column: str | None, paths: DataPaths
) -> AskedTexts:
    from audit_pipeline.extras.chat.asking import read_texts_of_files
    from audit_pipeline.pipeline.user_files import UserFiles, explain_unused_parts, inspect_user_files

    with report_slow_work("reading") as report:
        report("the files")
        inventory = inspect_user_files(UserFiles(texts, held_out, text_column=text_column))
    for reason in explain_unused_parts(inventory.unused):
        print_message(f"left out: {reason}")
    return read_texts_of_files(inventory, name, paths)


def _say_plan(plan: AskPlan, entry: ChatModel, missing: Sequence[AskRequest]) -> None:
    """Say what would be sent, to whom, and what it would cost at most."""
    from audit_pipeline.extras.chat.chat_client import estimate_usage
    from audit_pipeline.extras.chat.rows import prepare_request

    sides = Counter(document.side for document in plan.texts.documents)
    most = estimate_usage(entry, (prepare_request(entry, request) for request in missing))
    answered = len(plan.requests) - len(missing)
    money = "no price is given" if most.cost is None else f"at most {most.cost:,.4g} by the prices in its entry"
    print_result(
        f"{sides['audited']:,} audited and {sides['held_out']:,} held-out documents: {len(plan.requests):,} requests, "
        f"{answered:,} of them answered. {entry.name}: {entry.recipient_notice}. To send: {most.requests:,} requests, "
        f"at most {most.tokens:,} tokens, {money}.",
        **most._asdict(),
        answered=answered,
        sent_to=entry.host,
    )


def _say_used(entry: ChatModel, budget: Budget) -> None:
    cost = entry.cost_of(*budget.used)
    priced = "" if cost is None else f", {cost:,.4g} by the prices in its entry"
    print_result(
        f"Sent: {budget.requests:,} requests, {budget.tokens:,} tokens{priced}.",
        used={"requests": budget.requests, "tokens": budget.tokens, "cost": cost},
    )


def _show_and_publish(reports: Sequence[AskReport], paths: DataPaths, quoted: bool) -> None:
    from audit_pipeline.cli.audit_output import format_answer
    from audit_pipeline.report.page import read_conclusions

    for report in reports:
        _show_report(report)
    publish(paths, include_text=quoted)
    conclusions = {}
    for report in reports:
        model, found = report.pair.model, read_conclusions(paths.warehouse, report.pair.model).in_answers
        if report.pair.benchmark in found:
            conclusions[model] = found[report.pair.benchmark]
            print_result(f"\n{model}: {format_answer(conclusions[model])}")
    print_result(f"Report: {paths.report}", report=paths.report, conclusions=conclusions)


def _show_report(report: AskReport) -> None:
    headline = sorted(
        ({"model": report.pair.model, **row} for row in report.documents if row["is_headline"]),
        key=lambda row: (row["side"], -(row["score"] or 0.0), row["document_id"]),
    )
    show_table("documents", headline, _DOCUMENTS)
    _say_missing(report.pair.model, headline)
    rungs: dict[str, Counter[str]] = {}
    for row in report.documents:
        rungs.setdefault(row["rung"], Counter()).update({outcome: row[outcome] for outcome in _OUTCOMES})
    counted = [{"model": report.pair.model, "rung": rung, **counts} for rung, counts in rungs.items()]
    show_table("rungs", counted, [(name, name) for name in ("rung", *_OUTCOMES)])


def _say_missing(model: str, documents: Sequence[Row]) -> None:
    """Say which numbers of how many documents are missing, and why."""
    missing = [
        {"model": model, "number": number, "documents": found, "reason": reason}
        for number, is_missing, reason in _MISSING
        if (found := sum(map(is_missing, documents)))
    ]
    if missing:
        lines = (
            f"No {row['number']} of {row['documents']} of {len(documents)} documents: {row['reason']}."
            for row in missing
        )
        print_result("\n".join(lines), missing=missing)
