"""The command overlap: which passages of texts stand word for word in a corpus.

What belongs here: options, the order of calls, and what is printed. What does not: any work (overlap/). Heavy packages
are imported by the command that needs them.
"""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.catalogue.paths import DataPaths, texts_are_quoted
from audit_pipeline.cli.options import ENGINE, SHARDS_KEPT, TEXT_COLUMN, json_option, keeps
from audit_pipeline.cli.shared import get_writable_paths, load_dagster_definitions
from audit_pipeline.operate.console import Cell, Row, say, show_table, tell, tell_progress, tell_skipped, tell_step
from audit_pipeline.operate.options import FILE, PATH

if TYPE_CHECKING:
    import pyarrow as pa

    from audit_pipeline.overlap.rules import OverlapRule
    from audit_pipeline.overlap.search import SearchOptions, SearchProgress, SearchResult
    from audit_pipeline.overlap.shards import ShardedCorpus

_SHOWN = 10


@keeps(SHARDS_KEPT)
@click.command()
@click.option(
    "--corpus",
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
@click.option("--exact", is_flag=True, help="Compare words as they are, with case and punctuation.")
@click.option("--only", metavar="PATTERN", help="Read only shards (files) whose names match, as in 'part-00*'.")
@click.option("--corpus-column", help="The column of the corpus that holds the text.")
@click.option("--processes", type=click.IntRange(min=1), help="Processes that read shards. Default: one a core.")
@click.option(
    "--documents", type=FILE, help="A Parquet file to write: the corpus's documents that hold something of the texts."
)
@click.option(
    "--corpus-ids",
    type=PATH,
    help="A list of urls, sha1 (git's, too) or sha256 of a corpus's documents: texts are looked up by identity.",
)
@click.option("--ids-column", help="The column of --corpus-ids that holds them.")
@click.option("--out", type=PATH, help="A folder for corpus_overlap.parquet and overlap_spans.parquet, with --texts.")
@click.option("--no-text", is_flag=True, help="Name places only, quote no text.")
@json_option
@ENGINE
def overlap(
    corpus: str | None,
    benchmark: str | None,
    file: Path | None,
    text_column: str | None,
    rule: str,
    words: int | None,
    exact: bool,
    only: str | None,
    corpus_column: str | None,
    processes: int | None,
    documents: Path | None,
    corpus_ids: Path | None,
    ids_column: str | None,
    out: Path | None,
    no_text: bool,
    **given: Any,
) -> None:
    """Find the passages of texts that stand in a corpus, and where.

    Every passage is found word for word, however long it is. The search goes through the corpus shard by shard and
    builds nothing for it. A search that was stopped goes on at the next shard. docs/overlap.md explains the rules, and
    what it means that a passage was found.
    """
    if (benchmark is None) == (file is None):
        raise click.UsageError("say which texts: --benchmark NAME or --texts FILE, one of them")
    if (corpus is None) == (corpus_ids is None):
        raise click.UsageError("say what they are looked for in: --corpus NAME or --corpus-ids FILE, one of them")
    if out is not None and file is None:
        raise click.UsageError("--out goes with --texts: what is found of a benchmark is kept in the data folder")
    if corpus_ids is not None:
        _look_up_identities(corpus_ids, ids_column, benchmark, file, text_column)
        return
    import joblib

    from audit_pipeline.cluster.engine import choose_engine
    from audit_pipeline.overlap.rules import choose_rule
    from audit_pipeline.overlap.search import SearchOptions
    from audit_pipeline.overlap.shards import open_sharded_corpus

    chosen = choose_rule(rule, words)
    opened = open_sharded_corpus(str(corpus), corpus_column, only)
    parts = None if documents is None else documents.with_name(f".{documents.name}.parts")
    engine = choose_engine({"name": given.pop("engine"), **given})
    options = SearchOptions(processes or joblib.cpu_count(), engine, holders=parts)
    quoted = texts_are_quoted() and not no_text
    if file is not None:
        result = _search_file(file, text_column, opened, chosen, options, out, exact=exact, quoted=quoted)
    else:
        result = _search_benchmark(str(benchmark), opened, chosen, options, exact=exact, quoted=quoted)
    if documents is not None and parts is not None:
        _merge_holders(result, documents)
        shutil.rmtree(parts)


def _search_benchmark(
    name: str, corpus: ShardedCorpus, rule: OverlapRule, options: SearchOptions, *, exact: bool, quoted: bool
) -> SearchResult:
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
        benchmark, corpus, paths, run_id, rule, options, exact=exact, on_progress=_progress_of(corpus.name)
    )
    spans = read(paths, OVERLAP_SPANS, f"{benchmark}|{corpus.name}", label="the passages that were found")
    _show_found(report.result, report.texts, spans, quoted=quoted)
    publish(definitions, paths, tell_step, include_text=quoted)
    say(f"Report: {paths.report}", report=paths.report)
    return report.result


def _search_file(
    file: Path,
    text_column: str | None,
    corpus: ShardedCorpus,
    rule: OverlapRule,
    options: SearchOptions,
    out: Path | None,
    *,
    exact: bool,
    quoted: bool,
) -> SearchResult:
    from dataclasses import replace

    from audit_pipeline.catalogue.contracts import CORPUS_OVERLAP, OVERLAP_SPANS
    from audit_pipeline.catalogue.files import write_table
    from audit_pipeline.overlap.search import search_corpus
    from audit_pipeline.overlap.tables import build_overlap_tables

    names, texts = _read_texts(file, text_column)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        options = replace(options, checkpoint=out / ".search.partial")
    result = search_corpus(texts, corpus, rule, options, exact=exact, on_progress=_progress_of(corpus.name))
    tables = build_overlap_tables(result, file.stem, names, texts, run_id="overlap")
    for table, rows in tables.items() if out is not None else ():
        hidden = [] if quoted else [column.name for column in table.columns if column.quotes_text]
        write_table(Path(str(out)) / f"{table.name}.parquet", rows.drop_columns(hidden))
    if options.checkpoint is not None:
        options.checkpoint.unlink(missing_ok=True)
    _show_found(result, tables[CORPUS_OVERLAP], tables[OVERLAP_SPANS], quoted=quoted)
    if out is not None:
        say(f"Every text and every passage: {out}", out=out)
    return result


def _read_texts(file: Path, text_column: str | None) -> tuple[list[str], list[str]]:
    """The places of the texts of a file, and the texts."""
    from audit_pipeline.fetch.formats import open_texts

    stream = open_texts(file, text_column)
    rows = list(stream)
    tell_skipped(stream.skipped.first, stream.skipped.count)
    return [row.location for row in rows], [row.text for row in rows]


def _progress_of(corpus: str) -> Any:
    def show(progress: SearchProgress) -> None:
        tell_progress(f"{corpus}: {progress.in_words}")

    return show


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
    contaminated = sum(bool(row["contaminated"]) for row in rows)
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


def _merge_holders(result: SearchResult, out: Path) -> None:
    """One file of the documents of all shards that were read."""
    import pyarrow.parquet as pq

    from audit_pipeline.catalogue.files import write_atomically
    from audit_pipeline.overlap.search import HOLDERS, holders_file

    if result.holders is None:
        raise TypeError("the search was not asked for documents")
    count = 0
    with write_atomically(out) as temporary, pq.ParquetWriter(temporary, HOLDERS) as writer:
        for number in sorted(result.reports):
            rows = pq.read_table(holders_file(result.holders, number))
            count += rows.num_rows
            writer.write_table(rows)
    say(f"{count:,} documents hold something of the texts: {out}", holders=count, documents=out)


def _look_up_identities(
    ids: Path, column: str | None, benchmark: str | None, file: Path | None, text_column: str | None
) -> None:
    """Say which documents the list holds; of a benchmark the documents that it was drawn from, else its texts."""
    from audit_pipeline.overlap.identities import match_identities

    if file is not None:
        names, texts = _read_texts(file, text_column)
        urls: list[str | None] = [None] * len(texts)
    else:
        names, texts, urls = _read_documents(str(benchmark))
    found = match_identities(texts, urls, ids, column)
    members = [{"document": name, "found_by": kind} for name, kind in zip(names, found.kinds, strict=True) if kind]
    show_table("members", members, [("document", "document"), ("found by", "found_by")])
    say(
        f"{len(members):,} of {len(texts):,} documents are in the list by their identity; {found.ids_read:,} read. "
        "A document in another form (a changed line end, another address) is not found this way.",
        documents=len(texts),
        found=len(members),
        ids_read=found.ids_read,
        unusable=found.unusable,
    )
    if found.unusable:
        tell(f"{found.unusable:,} row(s) of {ids.name} are no identity; the first: {found.first_unusable}")


def _read_documents(benchmark: str) -> tuple[list[str], list[str], list[str | None]]:
    """The names, texts and urls of what a built benchmark was drawn from; where it is made of rows, of its texts."""
    from audit_pipeline.benchmarks.built_benchmark import read_built
    from audit_pipeline.catalogue.contracts import EXAMPLES
    from audit_pipeline.operate.stages.extraction import read_whole_documents

    paths = DataPaths.from_environment()
    built = read_built(paths, benchmark)
    documents = read_whole_documents(built, paths)
    if documents:
        rows = documents.values()
        return list(documents), [row["text"] for row in rows], [row["url"] for row in rows]
    texts = EXAMPLES.texts(built.examples)
    return built.examples.column("example_id").to_pylist(), texts, [None] * len(texts)
