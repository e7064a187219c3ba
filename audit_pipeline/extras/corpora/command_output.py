"""Output of the commands overlap, items and count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from audit_pipeline.cli.listed_command import record_exit_state
from audit_pipeline.errors import escape_unprintable
from audit_pipeline.pipeline import console
from audit_pipeline.pipeline.console import Columns, Row
from audit_pipeline.report.number_format import format_estimate, format_percent, format_probability, format_thousands

if TYPE_CHECKING:
    import pyarrow as pa

    from audit_pipeline.extras.corpora.item_verdicts import BenchmarkItem, CorpusFindings
    from audit_pipeline.extras.corpora.overlap_tables import OverlapReport
    from audit_pipeline.extras.corpora.search import SearchResult


_SHOWN_PASSAGES = 10
_SHOWN_ITEMS = 20
_SHOWN_FILES = 5


def _format_place(row: Row) -> str:
    if not row["found_in"]:
        return ""
    document = row["found_in"][0]
    if row["urls"][0]:
        document = f"{document} ({row['urls'][0]})"
    return f"{document} in {row['shards'][0]}, character {row['starts'][0]:,}"


_PASSAGES: Columns = (
    ("text", "example_id"),
    ("words", "words"),
    ("documents", "documents"),
    ("first found in", _format_place),
)
_QUOTED_PASSAGES: Columns = (*_PASSAGES, ("begins", lambda row: " ".join(str(row["excerpt"]).split())[:60]))
_BENCHMARKS: Columns = (
    ("benchmark", "benchmark"),
    ("texts", "texts", format_thousands),
    ("contaminated", "contaminated", format_thousands),
    ("found", lambda row: format_thousands(row["verdicts"].get("found", 0))),
    ("shared text", lambda row: format_thousands(row["verdicts"].get("shared text", 0))),
    ("too short to tell", lambda row: format_thousands(row["verdicts"].get("too short to tell", 0))),
)
_ITEMS: Columns = (
    ("item", "document_id"),
    ("verdict", "verdict"),
    ("covered", "covered", format_percent),
    ("first found at", "first_place"),
    ("reason", "reason"),
)
_ACCURACY: Columns = (
    ("items", "items"),
    ("with a result", "n", format_thousands),
    ("groups", "n_groups", format_thousands),
    ("accuracy", lambda row: format_estimate(row["value"], row["low"], row["high"], "z.1%")),
)


def _summarise_benchmark(report: OverlapReport) -> Mapping[str, object]:
    verdicts = Counter(report.texts.column("verdict").to_pylist())
    counts = {"texts": report.texts.num_rows, "contaminated": report.contaminated}
    return {"benchmark": report.benchmark, **counts, "verdicts": dict(verdicts)}


def print_overlap(result: SearchResult, texts: pa.Table, spans: pa.Table, *, quoted: bool) -> None:
    """Print the longest passages, the verdicts, and the problems of reading the corpus."""
    from audit_pipeline.extras.corpora.overlap_tables import describe_overlap
    from audit_pipeline.tables import OVERLAP_SPANS

    rows = texts.to_pylist()
    hidden: set[str] = set()
    if not quoted:
        hidden = {column.name for column in OVERLAP_SPANS.columns if column.quotes_text}
    longest = sorted(spans.to_pylist(), key=lambda row: (row["is_common"], -row["words"]))[:_SHOWN_PASSAGES]
    passages: list[Row] = []
    for row in longest:
        passages.append({name: value for name, value in row.items() if name not in hidden})
    console.show_table("passages", passages, _QUOTED_PASSAGES if quoted else _PASSAGES)
    contaminated = sum(bool(row["contaminated"]) for row in rows)
    if contaminated:
        record_exit_state("contaminated")
    verdicts = Counter(row["verdict"] for row in rows)
    console.print_result(
        describe_overlap(result, verdicts, len(rows)) + ".",
        texts=len(rows),
        verdicts=dict(verdicts),
        documents_read=result.document_count,
        shards_read=result.whole_shards,
        shards=len(result.corpus.shards),
        is_complete=result.is_complete,
    )
    console.print_result(
        f"Contaminated by the rule {result.rule.name} ({result.rule.source}): {contaminated:,} of {len(rows):,}.",
        contaminated=contaminated,
        rule=result.rule.name,
    )
    print_ignored_files(result.corpus.ignored, result.corpus.name)
    for report in result.reports.values():
        if report.problem is not None:
            console.print_message(f"not read completely: {report.problem}")
        elif report.skipped:
            console.print_message(
                f"{report.name}: {report.skipped:,} row(s) could not be used. The first of them: {report.first_skipped}"
            )


def print_ignored_files(names: Sequence[str], corpus: object) -> None:
    """Print how many files of the corpus were skipped because of their format, and the first of their names."""
    if names:
        shown = f"{', '.join(names[:_SHOWN_FILES])}{', …' if len(names) > _SHOWN_FILES else ''}"
        console.print_message(
            f"skipped {len(names):,} file(s) in {escape_unprintable(str(corpus))} that have no readable format: {shown}"
        )


def print_corpus(found: CorpusFindings) -> None:
    """Print the searched corpus, the rule, and the share of the corpus that was read."""
    read = found.overlap.slice(0, 1).to_pylist()[0]
    part = f"{read['shards_read']} of {read['shards']} shards were read"
    facts = {name: read[name] for name in ("rule", "n", "shards_read", "shards", "is_complete")}
    console.print_result(
        f"Corpus {found.corpus}: {'the whole corpus was read' if read['is_complete'] else part}; rule {read['rule']}",
        corpus={"name": found.corpus, **facts},
    )


def print_items(judged: Sequence[BenchmarkItem]) -> None:
    """Print up to ``_SHOWN_ITEMS`` items that are not clean, worst first, and the number of items with each verdict."""
    from audit_pipeline.extras.corpora.item_verdicts import VERDICTS

    counts = Counter(item.verdict for item in judged)
    shown = sorted(
        (item for item in judged if item.verdict != "clean"),
        key=lambda item: (VERDICTS.index(item.verdict), -(item.covered or 0), item.document_id, item.example_id),
    )
    listed_items = judged if console.is_json_output() else shown[:_SHOWN_ITEMS]
    console.show_table("items", [asdict(item) for item in listed_items], _ITEMS)
    if len(shown) > _SHOWN_ITEMS:
        console.print_result(
            f"{len(shown) - _SHOWN_ITEMS:,} further items are not clean. Use --json to list all items."
        )
    if counts["contaminated"]:
        record_exit_state("contaminated")
    listed = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in VERDICTS if counts[verdict])
    console.print_result(f"{len(judged):,} items: {listed}", counts={verdict: counts[verdict] for verdict in VERDICTS})


def print_accuracy(judged: Sequence[BenchmarkItem]) -> None:
    """Print the accuracy per verdict, and its difference between contaminated and clean items."""
    from audit_pipeline.extras.corpora.item_verdicts import (
        DIFFERENCE_CAVEAT,
        VERDICTS,
        compare_accuracy,
        measure_accuracy,
    )

    kinds = [("all", VERDICTS), *((verdict, (verdict,)) for verdict in VERDICTS)]
    rates = [{"items": name, **asdict(measure_accuracy(judged, *verdicts))} for name, verdicts in kinds]
    console.show_table("accuracy", [rate for rate in rates if rate["n"]], _ACCURACY)
    compared = compare_accuracy(judged)
    shown = format_estimate(compared.difference, compared.interval.low, compared.interval.high, "+z.1%", "unknown")
    console.print_result(
        f"Accuracy on contaminated minus clean items: {shown}, p = {format_probability(compared.p_value)} "
        f"({compared.method}).\n"
        f"{DIFFERENCE_CAVEAT}",
        comparison={**asdict(compared), "caveat": DIFFERENCE_CAVEAT},
    )


def print_benchmarks(reports: Sequence[OverlapReport]) -> None:
    """Print one row per benchmark with its verdicts."""
    console.show_table("benchmarks", [_summarise_benchmark(report) for report in reports], _BENCHMARKS)
