"""The command extract: what a model can be made to say of documents.

What belongs here: options, their order of calls, and what is printed. What does not: any work (extraction/). Heavy
packages are imported by the command that needs them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.catalogue.paths import DataPaths, texts_are_quoted
from audit_pipeline.cli.extraction_generated import GoingOn, draws_needed, going_on_options, show_long_runs
from audit_pipeline.cli.shared import (
    DEVICE,
    FILE,
    MODEL,
    PATH,
    TEXT_COLUMN,
    data_to_write,
    json_option,
    loader,
    model_named,
)
from audit_pipeline.errors import DataError
from audit_pipeline.metrics.claims import (
    CALIBRATED_IN_WORDS,
    EXTRACTION_IN_WORDS,
    NOT_CALIBRATED_IN_WORDS,
    extraction_claim,
)
from audit_pipeline.operate.console import (
    Columns,
    Row,
    say,
    show_table,
    tell,
    tell_skipped,
    telling_what_takes_long,
)

if TYPE_CHECKING:
    from audit_pipeline.extraction.held_out import Compared
    from audit_pipeline.extraction.search import Document, Extracted, Search
    from audit_pipeline.models.load import TokenizedModel

    Generating = Callable[[Extracted, int], Row]

_SHOWN_DOCUMENTS = 20
_DRAWS = "draws for an even chance"


@click.command()
@MODEL
@click.option(
    "--texts",
    "file",
    required=True,
    type=PATH,
    help="The documents: a .txt file or a folder of them, one document each, or a file of rows with a text each.",
)
@click.option(
    "--held-out",
    type=PATH,
    help="Documents that the model cannot have seen, as --texts takes them: each one gets a p-value and a q-value.",
)
@click.option("--prefix", default=50, show_default=True, type=click.IntRange(min=1), help="Tokens the model is given.")
@click.option("--suffix", default=50, show_default=True, type=click.IntRange(min=2), help="Tokens it has to give.")
@click.option(
    "--stride",
    default="coarse-to-fine",
    show_default=True,
    help="Where windows begin: tiled (suffixes one behind the other), chars:N (every N characters), or coarse-to-fine "
    "(tiled, and every 10 characters where a passage could be likely).",
)
@going_on_options
@click.option("--out", type=FILE, help="A Parquet file to write, one row per window.")
@TEXT_COLUMN
@click.option("--no-text", is_flag=True, help="Name places only, quote no text.")
@click.option("--dry-run", is_flag=True, help="Say how many windows and tokens there are, and about how long it takes.")
@DEVICE
@json_option
def extract(
    model: str,
    file: Path,
    held_out: Path | None,
    prefix: int,
    suffix: int,
    stride: str,
    going_on: GoingOn,
    out: Path | None,
    text_column: str | None,
    no_text: bool,
    dry_run: bool,
    device: str | None,
) -> None:
    """Find out which passages of documents a model gives word for word.

    For windows of a document, the probability that the model, given the prefix, goes on with exactly the suffix:
    computed from one forward pass, without drawing anything. Finished windows are kept: after an interruption, the same
    command continues. docs/extraction.md explains the numbers.
    """
    from audit_pipeline.catalogue.tables import require_output

    going_on.require_sense(suffix)
    paths = DataPaths.from_environment() if dry_run else data_to_write()
    configured = model_named(model)
    if out is not None:
        require_output(out, *(given for given in (file, held_out) if given is not None))
    documents = _documents(file, text_column)
    unread = _documents(held_out, text_column) if held_out is not None else []

    from audit_pipeline.extraction.search import Search, asked_for
    from audit_pipeline.models.load import load_tokenizer
    from audit_pipeline.operate.progress import terminal_bar
    from audit_pipeline.token_statistics.kept import Caches

    tokenized = load_tokenizer(configured, paths)
    _require_unread(documents, unread)
    search = Search(tokenized, [*documents, *unread], asked_for(prefix, suffix, stride), Caches(paths))
    if unread and not any(map(search.is_as_long_as_a_window, unread)):
        raise DataError(f"{held_out}: no held-out document is as long as a window: there is nothing to compare with")
    if dry_run:
        _dry_run(search, tokenized, len(documents) + len(unread), device)
        return
    # Fine windows and draws are run by the model that is in memory since the coarse ones.
    load = loader(paths, device)
    forward = cache(lambda: load(tokenized))
    with terminal_bar(tokenized.entry.name) as on_progress:
        both = list(search.run(forward, on_progress))
    if search.unreadable_parts:
        tell(f"{len(search.unreadable_parts)} damaged part(s) of the cache were set aside, and their windows run again")
    found, known = both[: len(documents)], both[len(documents) :]
    if out is not None:
        from audit_pipeline.extraction.table import write_windows

        write_windows(out, found)
    _show_documents(found, known)
    shown, quoted = _strongest(found), not no_text and texts_are_quoted()
    _show_passages(
        shown, partial(going_on.of_passage, search, forward, quoted=quoted), going_on.columns(), quoted=quoted
    )
    if going_on.tokens is not None:
        show_long_runs(search, forward, shown, going_on.tokens)
    _show_claims(found, known)
    if out is not None:
        say(f"{sum(len(one.windows) for one in found):,} windows in {out}", out=out)


def _documents(file: Path, text_column: str | None) -> list[Document]:
    from audit_pipeline.extraction.documents import read_documents

    documents, skipped = read_documents(file, text_column)
    tell_skipped(skipped.first, skipped.count)
    return documents


def _require_unread(documents: Sequence[Document], unread: Sequence[Document]) -> None:
    """Raise DataError where a document stands on both sides."""
    held_out = {one.text: one.name for one in unread}
    both = [f"{one.name} ({held_out[one.text]})" for one in documents if one.text in held_out]
    if both:
        raise DataError(f"{len(both)} document(s) are audited and held out at the same time: {', '.join(both[:5])}")


def _dry_run(search: Search, model: TokenizedModel, documents: int, device: str | None) -> None:
    from audit_pipeline.models.weights import default_device
    from audit_pipeline.token_statistics.estimate import seconds_for

    windows, tokens = search.tokens()
    seconds = seconds_for(model, tokens, device or default_device())
    say(
        f"{documents:,} document(s), {windows:,} windows; {tokens:,} tokens to run, about {seconds:,.0f} s; "
        "likely passages add fine windows",
        documents=documents,
        windows=windows,
        tokens=tokens,
        seconds=seconds,
    )


def _strongest(found: Sequence[Extracted]) -> Sequence[Extracted]:
    """The documents that are shown one by one, the strongest first."""
    by_strength = sorted((one for one in found if len(one.windows)), key=lambda one: -_best(one))
    if len(by_strength) > _SHOWN_DOCUMENTS:
        say(f"Passages of the {_SHOWN_DOCUMENTS} strongest documents of {len(by_strength)}; --out has every window.")
    return by_strength[:_SHOWN_DOCUMENTS]


def _show_passages(shown: Sequence[Extracted], generated: Generating, columns: Columns, *, quoted: bool) -> None:
    passages: list[Row] = []
    with telling_what_takes_long("going on behind passages of") as tell_what:
        for one in shown:
            tell_what(one.document.name)
            passages += _passages(one, generated, quoted=quoted)
    show_table(
        "passages",
        passages,
        [
            ("document", "document"),
            ("characters", lambda row: f"{row['begin']:,} to {row['end']:,}"),
            (_DRAWS, lambda row: draws_needed(row["log_p"])),
            ("tokens that are its first choice", lambda row: f"{row['matches']} of {row['tokens']}"),
            ("words before", lambda row: row["prefix"] or "-"),
            ("passage", lambda row: row["suffix"] or "-"),
            *columns,
        ],
    )


def _show_claims(found: Sequence[Extracted], held_out: Sequence[Extracted]) -> None:
    some = [one.windows for one in found if len(one.windows)]
    largest = max((float(windows.log_p_top.max()) for windows in some), default=-math.inf)
    claim = extraction_claim(math.exp(largest), by_first_choices=any(windows.greedy.any() for windows in some))
    say(EXTRACTION_IN_WORDS[claim], claim_level=claim, claim=EXTRACTION_IN_WORDS[claim])
    if held_out:
        from audit_pipeline.evidence.conformal import MIN_COMPARED

        _show_held_out(held_out)
        if len(held_out) < MIN_COMPARED:
            least = f"With {len(held_out)} held-out documents no p-value can be below {1 / (len(held_out) + 1):.2f}."
            say(least, least_p_value=1 / (len(held_out) + 1))
    calibration = CALIBRATED_IN_WORDS if held_out else NOT_CALIBRATED_IN_WORDS
    say(calibration, calibrated=bool(held_out), calibration=calibration)


def _show_held_out(held_out: Sequence[Extracted]) -> None:
    from audit_pipeline.extraction.held_out import reached

    rows = [asdict(one) for one in reached([one.windows.log_p_top for one in held_out])]
    show_table(
        "held_out",
        rows,
        [
            ("a window of", lambda row: f"p ≥ {row['threshold']}"),
            ("held-out documents with one", lambda row: f"{row['reached']} of {row['documents']}"),
            ("95% interval", lambda row: f"{row['low']:.1%} to {row['high']:.1%}"),
        ],
    )


def _show_documents(found: Sequence[Extracted], held_out: Sequence[Extracted]) -> None:
    from audit_pipeline.extraction.conclude import THRESHOLDS
    from audit_pipeline.extraction.held_out import compare

    tests: Sequence[Compared | None] = [None] * len(found)
    if held_out:
        tests = compare([one.first.log_p for one in found], [one.first.log_p for one in held_out])
    rows = [_document_row(one, test) for one, test in zip(found, tests, strict=True) if len(one.windows)]
    rows.sort(key=lambda row: -row["log_p"])
    short = [one.document.name for one in found if not len(one.windows)]
    if short:
        named = f"{', '.join(short[:5])}{', …' if len(short) > 5 else ''}"
        words = f"{len(short)} document(s) are shorter than a window, so nothing is known of them: {named}"
        say(words, shorter_than_a_window=short)
    compared = ("windows compared", lambda row: f"{row['windows_compared']} of {row['windows']:,}")
    tested: Columns = [compared, ("p-value", _number("p_value")), ("q-value", _number("q_value"))]
    shares = [(f"p ≥ {one}", _share(f"covered_{one}")) for one in THRESHOLDS]
    show_table(
        "documents",
        rows,
        [
            ("document", "document"),
            ("characters", lambda row: f"{row['characters']:,}"),
            ("windows", lambda row: f"{row['windows']:,}"),
            *shares,
            ("first choices alone", _share("greedy")),
            ("longest run", lambda row: f"{row['longest_run']:,}"),
            (_DRAWS, lambda row: draws_needed(row["log_p"])),
            *(tested if held_out else []),
        ],
    )


def _best(one: Extracted) -> float:
    return float(one.windows.log_p.max())


def _document_row(one: Extracted, test: Compared | None) -> dict[str, Any]:
    from audit_pipeline.extraction.conclude import THRESHOLDS

    shares = {f"covered_{threshold}": share for threshold, share in zip(THRESHOLDS, one.found.covered, strict=True)}
    return {
        "document": one.document.name,
        "characters": one.found.characters,
        "windows": one.found.windows,
        **shares,
        "greedy": one.found.greedy,
        "longest_run": one.found.longest_run,
        "log_p": _best(one),
        "p_value": test and test.p_value,
        "q_value": test and test.q_value,
        "windows_compared": test and test.windows,
        "held_out_compared": test and test.held_out,
    }


def _passages(one: Extracted, generated: Generating, *, quoted: bool) -> list[Row]:
    from audit_pipeline.extraction.documents import excerpt

    windows, text = one.windows, one.document.text
    rows: list[Row] = []
    for number in one.found.strongest:
        start, begin, end = (int(places[number]) for places in (windows.start, windows.begin, windows.end))
        rows.append(
            {
                "document": one.document.name,
                "start": start,
                "begin": begin,
                "end": end,
                "log_p": float(windows.log_p[number]),
                "log_p_top_40": None if windows.outside[number] else float(windows.log_p_top[number]),
                "matches": int(windows.matches[number]),
                "tokens": int(windows.tokens[number]),
                "prefix": excerpt(text[start:begin], last=True) if quoted else None,
                "suffix": excerpt(text[begin:end]) if quoted else None,
                **generated(one, number),
            }
        )
    return rows


def _share(name: str) -> Callable[[Row], str]:
    return lambda row: f"{row[name]:.2%}"


def _number(name: str) -> Callable[[Row], str]:
    return lambda row: "-" if row[name] is None else f"{row[name]:.3f}"
