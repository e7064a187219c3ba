"""The command overlap: which passages of texts stand word for word in a corpus."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from audit_pipeline.catalogue.paths import texts_are_quoted
from audit_pipeline.cli.options import SHARDS_KEPT, TEXT_COLUMN, fail_on, json_option, keeps, note_state
from audit_pipeline.cli.shared import get_writable_paths, load_dagster_definitions
from audit_pipeline.operate.console import Cell, Row, say, show_table, tell, tell_progress, tell_skipped, tell_step
from audit_pipeline.operate.options import PATH

if TYPE_CHECKING:
    import pyarrow as pa

    from audit_pipeline.overlap.rules import OverlapRule
    from audit_pipeline.overlap.search import SearchProgress, SearchResult
    from audit_pipeline.overlap.shards import ShardedCorpus

_SHOWN = 10


@keeps(SHARDS_KEPT)
@click.command()
@click.option(
    "--corpus",
    required=True,
    help="A corpus of config/references.yaml by its name, or a file or folder: .jsonl, .parquet, .txt, .csv …, .gz and "
    ".zst too. A .txt file is one document.",
)
@click.option("--benchmark", help="The texts of a built benchmark. What is found is kept, for warehouse and report.")
@click.option("--texts", "file", type=PATH, help="The texts of a file, one a row, or of standard input (-).")
@TEXT_COLUMN
@click.option(
    "--rule",
    default="gpt-3",
    show_default=True,
    help="When a text counts as contaminated: gpt-3, palm, llama-2 or tulu-3 (docs/overlap.md).",
)
@click.option(
    "--words", type=click.IntRange(min=1), help="Words on end that are looked for. Default: as the rule says."
)
@click.option("--only", metavar="PATTERN", help="Read only shards (files) whose names match, as in 'part-00*'.")
@click.option("--corpus-column", help="The column of the corpus that holds the text.")
@click.option("--processes", type=click.IntRange(min=1), help="Processes that read shards. Default: one a core.")
@click.option("--out", type=PATH, help="A folder for corpus_overlap.parquet and overlap_spans.parquet, with --texts.")
@click.option("--no-text", is_flag=True, help="Name places only, quote no text.")
@fail_on("contaminated")
@json_option
def overlap(
    corpus: str,
    benchmark: str | None,
    file: Path | None,
    text_column: str | None,
    rule: str,
    words: int | None,
    only: str | None,
    corpus_column: str | None,
    processes: int | None,
    out: Path | None,
    no_text: bool,
) -> None:
    """Find the passages of texts that stand in a corpus, and where.

    Every passage is found word for word, however long it is. The search goes through the corpus shard by shard and
    builds nothing for it. A search that was stopped goes on at the next shard. docs/overlap.md explains the rules, and
    what it means that a passage was found.
    """
    if (benchmark is None) == (file is None):
        raise click.UsageError("say which texts: --benchmark NAME or --texts FILE, one of them")
    if out is not None and file is None:
        raise click.UsageError("--out goes with --texts: what is found of a benchmark is kept in the data folder")
    import joblib

    from audit_pipeline.overlap.rules import choose_rule
    from audit_pipeline.overlap.shards import open_sharded_corpus

    chosen = choose_rule(rule, words)
    opened = open_sharded_corpus(corpus, corpus_column, only)
    processes = processes or int(joblib.cpu_count())
    quoted = texts_are_quoted() and not no_text
    if file is not None:
        _search_file(file, text_column, opened, chosen, processes, out, quoted=quoted)
    else:
        _search_benchmark(str(benchmark), opened, chosen, processes, quoted=quoted)


def _search_benchmark(name: str, corpus: ShardedCorpus, rule: OverlapRule, processes: int, *, quoted: bool) -> None:
    paths = get_writable_paths()
    definitions = load_dagster_definitions()
    from audit_pipeline.catalogue.contracts import EXAMPLES, OVERLAP_SPANS
    from audit_pipeline.catalogue.store import iterate_partitions, read
    from audit_pipeline.config.hints import resolve_partition
    from audit_pipeline.operate.dagster.audit import publish
    from audit_pipeline.operate.stages.overlap import search_benchmark

    benchmark = resolve_partition(name, [partition for partition, _ in iterate_partitions(paths, EXAMPLES)])
    run_id = f"overlap-{uuid.uuid4()}"
    report = search_benchmark(
        benchmark, corpus, paths, run_id, rule, processes=processes, on_progress=_progress_of(corpus.name)
    )
    spans = read(paths, OVERLAP_SPANS, f"{benchmark}|{corpus.name}", label="the passages that were found")
    _show_found(report.result, report.texts, spans, quoted=quoted)
    publish(definitions, paths, tell_step, include_text=quoted)
    say(f"Report: {paths.report}", report=paths.report)


def _search_file(
    file: Path,
    text_column: str | None,
    corpus: ShardedCorpus,
    rule: OverlapRule,
    processes: int,
    out: Path | None,
    *,
    quoted: bool,
) -> None:
    from audit_pipeline.catalogue.contracts import CORPUS_OVERLAP, OVERLAP_SPANS
    from audit_pipeline.catalogue.files import write_table
    from audit_pipeline.fetch.formats import open_texts
    from audit_pipeline.overlap.search import search_corpus
    from audit_pipeline.overlap.tables import build_overlap_tables

    stream = open_texts(file, text_column)
    rows = list(stream)
    tell_skipped(stream.skipped.first, stream.skipped.count)
    texts = [row.text for row in rows]
    checkpoint = None
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        checkpoint = out / ".search.partial"
    result = search_corpus(
        texts, corpus, rule, processes=processes, checkpoint=checkpoint, on_progress=_progress_of(corpus.name)
    )
    tables = build_overlap_tables(result, file.stem, [row.location for row in rows], texts, run_id="overlap")
    if out is not None:
        for table, found in tables.items():
            hidden = [] if quoted else [column.name for column in table.columns if column.quotes_text]
            write_table(out / f"{table.name}.parquet", found.drop_columns(hidden))
        (out / ".search.partial").unlink(missing_ok=True)
    _show_found(result, tables[CORPUS_OVERLAP], tables[OVERLAP_SPANS], quoted=quoted)
    if out is not None:
        say(f"Every text and every passage: {out}", out=out)


def _progress_of(corpus: str) -> Callable[[SearchProgress], None]:
    return lambda progress: tell_progress(f"{corpus}: {progress.in_words}")


def _show_found(result: SearchResult, texts: pa.Table, spans: pa.Table, *, quoted: bool) -> None:
    from audit_pipeline.catalogue.contracts import OVERLAP_SPANS
    from audit_pipeline.operate.stages.overlap import describe_overlap

    rows = texts.to_pylist()
    verdicts = Counter(row["verdict"] for row in rows)
    passages = sorted(spans.to_pylist(), key=lambda row: (row["is_common"], -row["words"]))[:_SHOWN]
    columns: list[tuple[str, Cell]] = [
        ("text", "example_id"),
        ("words", "words"),
        ("documents", "documents"),
        ("first found in", _format_place),
        *([("begins", lambda row: " ".join(str(row["excerpt"]).split())[:60])] if quoted else []),
    ]
    if not quoted:
        hidden = {column.name for column in OVERLAP_SPANS.columns if column.quotes_text}
        passages = [{name: value for name, value in row.items() if name not in hidden} for row in passages]
    show_table("passages", passages, columns)
    if contaminated := sum(bool(row["contaminated"]) for row in rows):
        note_state("contaminated")
    say(
        describe_overlap(result, verdicts, len(rows)) + ".",
        texts=len(rows),
        verdicts=dict(verdicts),
        documents_read=result.documents,
        shards_read=result.whole_shards,
        shards=len(result.corpus.shards),
        is_complete=result.is_complete,
    )
    say(
        f"Contaminated by the rule {result.rule.name} ({result.rule.source}): {contaminated:,} of {len(rows):,}.",
        contaminated=contaminated,
        rule=result.rule.name,
    )
    if ignored := result.corpus.ignored:
        tell(f"not read, of another kind: {len(ignored):,} file(s) in {result.corpus.name}, the first {ignored[0]}")
    for report in result.reports.values():
        if report.problem is not None:
            tell(f"not read to its end: {report.problem}")
        elif report.skipped:
            tell(f"{report.name}: {report.skipped:,} row(s) could not be used; the first: {report.first_skipped}")


def _format_place(row: Row) -> str:
    if not row["found_in"]:
        return ""
    url, shard = row["urls"][0], row["shards"][0]
    return f"{row['found_in'][0]}{f' ({url})' if url else ''} in {shard}, character {row['starts'][0]:,}"
