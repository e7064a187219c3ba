"""Commands on corpora: overlap, items, count."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.cli.listed_command import SHARDS_KEPT, ListedCommand, Section, record_exit_state
from audit_pipeline.cli.run_setup import (
    get_writable_paths,
    open_texts,
    publish,
    resolve_built_benchmark,
    resolve_model_option,
)
from audit_pipeline.cli.shared_options import (
    AT_LEAST_1,
    FILE,
    INPUT_FILE,
    PATH,
    fail_on_option,
    id_column_option,
    quiet_option,
    table_output_options,
    text_column_option,
)
from audit_pipeline.errors import DataError, escape_unprintable
from audit_pipeline.pipeline.console import (
    Columns,
    Row,
    is_json_output,
    print_message,
    print_result,
    print_skipped,
    print_step,
    show_progress,
    show_table,
)
from audit_pipeline.report.number_format import format_estimate, format_percent, format_probability, format_thousands
from audit_pipeline.store.paths import DataPaths, is_text_output_allowed

if TYPE_CHECKING:
    import pyarrow as pa

    from audit_pipeline.extras.corpora.benchmark_search import OverlapReport
    from audit_pipeline.extras.corpora.item_verdicts import BenchmarkItem, CorpusFindings
    from audit_pipeline.extras.corpora.model_results import MatchedResults
    from audit_pipeline.extras.corpora.search import AuditedTexts, SearchResult
    from audit_pipeline.readers.text_rows import TextRow

_SHOWN_PASSAGES, _SHOWN_ITEMS = 10, 20


def _format_place(row: Row) -> str:
    if not row["found_in"]:
        return ""
    url, shard = row["urls"][0], row["shards"][0]
    return f"{row['found_in'][0]}{f' ({url})' if url else ''} in {shard}, character {row['starts'][0]:,}"


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
    ("first place", "first_place"),
    ("reason", "reason"),
)
_ACCURACY: Columns = (
    ("items", "items"),
    ("with a result", "n", format_thousands),
    ("groups", "n_groups", format_thousands),
    ("accuracy", lambda row: format_estimate(row["value"], row["low"], row["high"], "z.1%")),
)


@dataclass(frozen=True)
class _ItemsFile:
    """A file of items, and the columns that the user named; None: the usual one."""

    path: Path
    text_column: str | None
    answer_column: str | None
    id_column: str | None


@click.command(cls=ListedCommand, section=Section.AUDIT, position=40, keeps=SHARDS_KEPT)
@click.option(
    "--corpus",
    required=True,
    help="Name of a corpus in config/references.yaml, or a file or folder: .jsonl, .parquet, .txt, .csv …, also as .gz "
    "and .zst. A .txt file is one document.",
)
@click.option(
    "--benchmark",
    help="The texts of a built benchmark, of several (a,b,c), or all. Results are stored in warehouse and report.",
)
@click.option("--texts", type=PATH, help="The texts of a file, one per row, or of standard input (-).")
@text_column_option
@click.option("--answer-column", help="With --texts: the column that holds the answer to each text. Default: answer.")
@id_column_option
@click.option(
    "--rule",
    default="evidence",
    show_default=True,
    help="Rule of contamination: evidence, gpt-3, palm, llama-2 or tulu-3.",
)
@click.option(
    "--words", type=AT_LEAST_1, help="Number of consecutive words that must match. Default: the rule's number."
)
@click.option(
    "--only", metavar="PATTERN", help="Read only shards (files) whose names match the pattern, such as 'part-00*'."
)
@click.option("--corpus-column", help="Column of the text in the corpus.")
@click.option("--processes", type=AT_LEAST_1, help="Number of processes that read shards. Default: one per core.")
@click.option("--out", type=PATH, help="With --texts: folder for corpus_overlap.parquet and overlap_spans.parquet.")
@click.option("--no-text", is_flag=True, help="Show only locations, and quote no text.")
@fail_on_option("contaminated")
@table_output_options
def overlap(
    corpus: str,
    benchmark: str | None,
    texts: Path | None,
    text_column: str | None,
    answer_column: str | None,
    id_column: str | None,
    rule: str,
    words: int | None,
    only: str | None,
    corpus_column: str | None,
    processes: int | None,
    out: Path | None,
    no_text: bool,
) -> None:
    """Find the passages of texts that are in a corpus, and their locations.

    By the rule evidence, up to a fifth of a passage's words may differ. The published rules compare word for word. The
    search reads the corpus once, shard by shard, and builds no index. A stopped search continues at the next shard.
    docs/overlap.md explains the rules and the results.
    """
    if (benchmark is None) == (texts is None):
        raise click.UsageError("say which texts: --benchmark NAME or --texts FILE, one of them")
    if out is not None and texts is None:
        raise click.UsageError("--out goes with --texts: what is found of a benchmark is kept in the data folder")
    import joblib
    import pyarrow as pa

    from audit_pipeline.extras.corpora.benchmark_search import search_benchmarks
    from audit_pipeline.extras.corpora.corpus_shards import open_sharded_corpus
    from audit_pipeline.extras.corpora.rules import choose_rule
    from audit_pipeline.store.store import read
    from audit_pipeline.tables import OVERLAP_SPANS

    chosen = choose_rule(rule, words)
    opened = open_sharded_corpus(corpus, corpus_column, only)
    quoted = is_text_output_allowed() and not no_text

    work: dict[str, Any] = {
        "processes": processes or int(joblib.cpu_count()),
        "on_progress": lambda words: show_progress(f"{opened.name}: {words}"),
    }
    if texts is not None:
        items_file = _ItemsFile(texts, text_column, answer_column, id_column)
        _search_file(items_file, out, (opened, chosen), work, quoted=quoted)
        return
    paths = get_writable_paths()
    names = _list_benchmarks(str(benchmark), paths)
    reports = search_benchmarks(names, opened, paths, f"overlap-{uuid.uuid4()}", chosen, **work)
    spans = [
        read(paths, OVERLAP_SPANS, f"{name}|{opened.name}", label="the passages that were found") for name in names
    ]
    if len(names) > 1:
        show_table("benchmarks", [_summarise_benchmark(report) for report in reports], _BENCHMARKS)
    result = reports[0].result
    _show_overlap(
        result, pa.concat_tables([report.texts for report in reports]), pa.concat_tables(spans), quoted=quoted
    )
    publish(paths, include_text=quoted)
    print_result(f"Report: {paths.report}", report=paths.report)


def _list_benchmarks(names: str, paths: DataPaths) -> list[str]:
    """Return the built benchmarks of a list of names, or all."""
    from audit_pipeline.config.problems import split_names
    from audit_pipeline.errors import ConfigError
    from audit_pipeline.store.store import iterate_partitions
    from audit_pipeline.tables import EXAMPLES

    if names != "all":
        return list(dict.fromkeys(resolve_built_benchmark(name, paths) for name in split_names(names)))
    found = [name for name, _ in iterate_partitions(paths, EXAMPLES)]
    if not found:
        raise ConfigError("no benchmark is built yet. Build one: corpus-audit benchmarks --build NAME")
    return found


def _summarise_benchmark(report: OverlapReport) -> Mapping[str, object]:
    verdicts = Counter(report.texts.column("verdict").to_pylist())
    counts = {"texts": report.texts.num_rows, "contaminated": report.contaminated}
    return {"benchmark": report.benchmark, **counts, "verdicts": dict(verdicts)}


def _search_file(
    file: _ItemsFile,
    out: Path | None,
    search: Any,
    work: Mapping[str, Any],
    *,
    quoted: bool,
) -> None:
    """Search the texts of a file; ``search`` are corpus and rule, ``work`` says how search_corpus works."""
    from audit_pipeline.extras.corpora.search import search_corpus
    from audit_pipeline.extras.corpora.tables import build_overlap_tables
    from audit_pipeline.store.files import write_table
    from audit_pipeline.tables import CORPUS_OVERLAP, OVERLAP_SPANS

    names, audited = _read_items(file)
    checkpoint = None
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        checkpoint = out / ".search.partial"
    result = search_corpus(audited, *search, checkpoint=checkpoint, **work)
    tables = build_overlap_tables(result, [(file.path.stem, name) for name in names], run_id="overlap")
    if out is not None and checkpoint is not None:
        for table, found in tables.items():
            hidden = [] if quoted else [column.name for column in table.columns if column.quotes_text]
            write_table(out / f"{table.name}.parquet", found.drop_columns(hidden))
        checkpoint.unlink(missing_ok=True)
    _show_overlap(result, tables[CORPUS_OVERLAP], tables[OVERLAP_SPANS], quoted=quoted)
    if out is not None:
        print_result(f"Every text and every passage: {out}", out=out)


def _read_items(file: _ItemsFile) -> tuple[list[str], AuditedTexts]:
    """Return the names of a file's rows and their texts: question and answer, as context and text of a benchmark.

    Raises:
        DataError: If a named column is missing, ``answer_column`` holds no answer, or named ids are not unique.
    """
    from audit_pipeline.benchmarks.builders.templated import build_question_context
    from audit_pipeline.extras.corpora.search import AuditedTexts

    stream = open_texts(file.path, file.text_column)
    answers_in = stream.include_column(file.answer_column or "answer", required=file.answer_column is not None)
    ids_in = stream.include_column(file.id_column or "id", required=file.id_column is not None)
    rows = list(stream)
    print_skipped(stream.skipped.first, stream.skipped.count)
    texts: list[str] = []
    borders: list[int] = []
    for row in rows:
        value = row.values.get(answers_in)
        answer = "" if value is None else str(value)
        question = build_question_context(row.text) if answer.strip() else ""
        texts.append(f"{question}{answer}" if question else row.text)
        borders.append(len(question))
    if file.answer_column is not None and not any(borders):
        raise DataError(f"{file.path}: no row has an answer in the column {file.answer_column}")
    return name_rows(rows, ids_in, required=file.id_column is not None), AuditedTexts(texts, borders)


def name_rows(rows: Sequence[TextRow], column: str, *, required: bool) -> list[str]:
    """Return each row's own id, or the places of the rows in their file if ids are missing or not unique."""
    from audit_pipeline.readers.text_rows import read_own_id

    ids = [read_own_id(row.values, column) for row in rows]
    names = [identity for identity in ids if identity is not None]
    distinct = len(set(names))
    if distinct == len(rows):
        return names
    if required:
        raise DataError(f"--id-column {column}: {distinct:,} different ids for {len(rows):,} texts. Give each an id.")
    return [row.location for row in rows]


def _show_overlap(result: SearchResult, texts: pa.Table, spans: pa.Table, *, quoted: bool) -> None:
    from audit_pipeline.extras.corpora.benchmark_search import describe_overlap
    from audit_pipeline.tables import OVERLAP_SPANS

    rows = texts.to_pylist()
    hidden = set() if quoted else {column.name for column in OVERLAP_SPANS.columns if column.quotes_text}
    longest = sorted(spans.to_pylist(), key=lambda row: (row["is_common"], -row["words"]))[:_SHOWN_PASSAGES]
    passages = [{name: value for name, value in row.items() if name not in hidden} for row in longest]
    show_table("passages", passages, _QUOTED_PASSAGES if quoted else _PASSAGES)
    if contaminated := sum(bool(row["contaminated"]) for row in rows):
        record_exit_state("contaminated")
    verdicts = Counter(row["verdict"] for row in rows)
    print_result(
        describe_overlap(result, verdicts, len(rows)) + ".",
        texts=len(rows),
        verdicts=dict(verdicts),
        documents_read=result.document_count,
        shards_read=result.whole_shards,
        shards=len(result.corpus.shards),
        is_complete=result.is_complete,
    )
    print_result(
        f"Contaminated by the rule {result.rule.name} ({result.rule.source}): {contaminated:,} of {len(rows):,}.",
        contaminated=contaminated,
        rule=result.rule.name,
    )
    _print_ignored(result.corpus.ignored, result.corpus.name)
    for report in result.reports.values():
        if report.problem is not None:
            print_message(f"not read to its end: {report.problem}")
        elif report.skipped:
            print_message(
                f"{report.name}: {report.skipped:,} row(s) could not be used; the first: {report.first_skipped}"
            )


_SHOWN_FILES = 5


def _print_ignored(names: Sequence[str], corpus: object) -> None:
    if names:
        shown = f"{', '.join(names[:_SHOWN_FILES])}{', …' if len(names) > _SHOWN_FILES else ''}"
        print_message(
            f"not read, of another kind: {len(names):,} file(s) in {escape_unprintable(str(corpus))}: {shown}"
        )


@click.command(cls=ListedCommand, section=Section.AUDIT, position=50)
@click.option("--benchmark", help="The test set: a built benchmark.")
@click.option(
    "--texts", type=PATH, help="The test set: a file of items, one per row, or standard input (-). Searches --corpus."
)
@text_column_option
@click.option("--answer-column", help="With --texts: the column that holds the answer to each text. Default: answer.")
@id_column_option
@click.option(
    "--corpus",
    help="A corpus that `overlap` searched for the benchmark. Default: the only corpus. With --texts: the corpus to "
    "search.",
)
@click.option("--model", help="A model that was audited on the benchmark. Its results are shown as evidence.")
@click.option(
    "--results",
    type=INPUT_FILE,
    help="Answers of a model: samples_*.jsonl of lm-evaluation-harness, or rows with the columns item and correct.",
)
@click.option(
    "--clean",
    type=FILE,
    help="Write the clean items to this .json file, in the format of --samples of lm-evaluation-harness.",
)
@fail_on_option("contaminated")
@table_output_options
def items(
    benchmark: str | None,
    texts: Path | None,
    text_column: str | None,
    answer_column: str | None,
    id_column: str | None,
    corpus: str | None,
    model: str | None,
    results: Path | None,
    clean: Path | None,
) -> None:
    """Classify every item of a test set by whether it is in a corpus.

    Each item gets a verdict with its reason. With --results, the accuracy on contaminated and on clean items is shown.
    With --benchmark nothing is searched and no model is run: use `overlap` and `audit` before. With --texts the corpus
    is searched by the rule evidence. docs/overlap.md explains the verdicts.
    """
    if (benchmark is None) == (texts is None):
        raise click.UsageError("say which items: --benchmark NAME or --texts FILE, one of them")
    if texts is not None:
        if corpus is None:
            raise click.UsageError("--texts needs --corpus: the corpus to search for the items")
        if model is not None or results is not None or clean is not None:
            raise click.UsageError("--model, --results and --clean go with --benchmark: build one of the file")
        _judge_file(_ItemsFile(texts, text_column, answer_column, id_column), corpus)
        return
    if text_column is not None or answer_column is not None or id_column is not None:
        raise click.UsageError("--text-column, --answer-column and --id-column go with --texts")
    _judge_benchmark(str(benchmark), corpus, model, results, clean)


def _judge_file(file: _ItemsFile, corpus: str) -> None:
    """Search a corpus for the items of a file and show the verdicts."""
    import joblib
    import pyarrow as pa

    from audit_pipeline.extras.corpora.corpus_shards import open_sharded_corpus
    from audit_pipeline.extras.corpora.item_verdicts import CorpusFindings, judge_items
    from audit_pipeline.extras.corpora.rules import choose_rule
    from audit_pipeline.extras.corpora.search import search_corpus
    from audit_pipeline.extras.corpora.tables import build_overlap_tables
    from audit_pipeline.tables import CORPUS_OVERLAP, OVERLAP_SPANS

    opened = open_sharded_corpus(corpus)
    names, audited = _read_items(file)
    result = search_corpus(
        audited,
        opened,
        choose_rule(),
        processes=int(joblib.cpu_count()),
        on_progress=lambda words: show_progress(f"{opened.name}: {words}"),
    )
    tables = build_overlap_tables(result, [(file.path.stem, name) for name in names], run_id="items")
    found = CorpusFindings(opened.name, tables[CORPUS_OVERLAP], tables[OVERLAP_SPANS])
    contexts = [text[:border] or None for text, border in zip(audited.texts, audited.borders, strict=True)]
    columns = {"example_id": names, "document_id": names, "group": names, "context": contexts}
    _show_corpus(found)
    _print_ignored(opened.ignored, opened.name)
    _show_items(judge_items(pa.table(columns), found))


def _judge_benchmark(
    benchmark: str, corpus: str | None, model: str | None, results: Path | None, clean: Path | None
) -> None:
    """Show the verdicts on the items of a benchmark, of what was searched and audited before."""
    from audit_pipeline.benchmarks.built_benchmark import read_built
    from audit_pipeline.extras.corpora.item_verdicts import (
        choose_corpus,
        judge_items,
        read_corpus_findings,
        read_model_evidence,
    )
    from audit_pipeline.extras.corpora.model_results import list_clean_positions
    from audit_pipeline.store.files import write_atomically
    from audit_pipeline.tables import Pair

    paths = DataPaths.from_environment()
    name = resolve_built_benchmark(benchmark, paths)
    built = read_built(paths, name)
    evidence = None if model is None else read_model_evidence(paths, Pair(name, resolve_model_option(model).name))
    chosen = choose_corpus(paths, name, corpus, required=evidence is None)
    found = None if chosen is None else read_corpus_findings(paths, name, chosen)
    task, matched = str(built.manifest["family"]), None
    if results is not None:
        task, matched = _match_results_file(results, built.examples, built.manifest)
    judged = judge_items(built.examples, found, evidence, None if matched is None else matched.correct)
    if found is not None:
        _show_corpus(found)
    _show_items(judged)
    if matched is not None:
        _show_accuracy(judged)
    if clean is not None:
        positions, unknown = list_clean_positions(judged, built.manifest, matched)
        # No digest within: the harness takes every key for a task.
        with write_atomically(clean) as temporary:
            temporary.write_text(json.dumps({task: positions}), encoding="utf-8")
        if unknown:
            print_message(f"{unknown:,} clean item(s) are not among the results and so not in {clean}")
        print_result(
            f"{len(positions):,} clean items of the task {task} in {clean}", clean={"file": clean, "task": task}
        )


def _show_corpus(found: CorpusFindings) -> None:
    """Show which corpus was searched, by which rule, and how much of it was read."""
    read = found.overlap.slice(0, 1).to_pylist()[0]
    part = f"{read['shards_read']} of {read['shards']} shards were read"
    facts = {name: read[name] for name in ("rule", "n", "shards_read", "shards", "is_complete")}
    print_result(
        f"Corpus {found.corpus}: {'all of it was read' if read['is_complete'] else part}; rule {read['rule']}",
        corpus={"name": found.corpus, **facts},
    )


def _match_results_file(path: Path, examples: pa.Table, manifest: Mapping[str, Any]) -> tuple[str, MatchedResults]:
    """Return the task's name and the results by item; what was taken, and what is left out, is reported."""
    from audit_pipeline.extras.corpora.model_results import match_results, read_results

    file = read_results(path)
    print_skipped(file.skipped.first, file.skipped.count)
    matched = match_results(file, examples, manifest)
    others = f"; not taken: {', '.join(file.other_measures)}" if file.other_measures else ""
    means = f"; of {matched.averaged:,} the mean of several answers is taken" if matched.averaged else ""
    print_result(
        f"Results: {file.kind}, {file.measure}{others}. {len(matched.correct):,} of {len(examples):,} items have one; "
        f"{matched.unmatched:,} result(s) belong to no item{means}.",
        results={
            "kind": file.kind,
            "measure": file.measure,
            "items": len(matched.correct),
            "unmatched": matched.unmatched,
            "averaged": matched.averaged,
            "skipped": file.skipped.count,
        },
    )
    return file.task or str(manifest["family"]), matched


def _show_items(judged: Sequence[BenchmarkItem]) -> None:
    """Show the items that are not clean (the first of them), worst first, and the counts."""
    from audit_pipeline.extras.corpora.item_verdicts import VERDICTS

    counts = Counter(item.verdict for item in judged)
    shown = sorted(
        (item for item in judged if item.verdict != "clean"),
        key=lambda item: (VERDICTS.index(item.verdict), -(item.covered or 0), item.document_id, item.example_id),
    )
    show_table("items", [asdict(item) for item in (judged if is_json_output() else shown[:_SHOWN_ITEMS])], _ITEMS)
    if len(shown) > _SHOWN_ITEMS:
        print_result(f"and {len(shown) - _SHOWN_ITEMS:,} more that are not clean (--json lists all)")
    if counts["contaminated"]:
        record_exit_state("contaminated")
    listed = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in VERDICTS if counts[verdict])
    print_result(f"{len(judged):,} items: {listed}", counts={verdict: counts[verdict] for verdict in VERDICTS})


def _show_accuracy(judged: Sequence[BenchmarkItem]) -> None:
    from audit_pipeline.extras.corpora.accuracy import DIFFERENCE_CAVEAT, compare_accuracy, measure_accuracy
    from audit_pipeline.extras.corpora.item_verdicts import VERDICTS

    kinds = [("all", VERDICTS), *((verdict, (verdict,)) for verdict in VERDICTS)]
    rates = [{"items": name, **asdict(measure_accuracy(judged, *verdicts))} for name, verdicts in kinds]
    show_table("accuracy", [rate for rate in rates if rate["n"]], _ACCURACY)
    compared = compare_accuracy(judged)
    shown = format_estimate(compared.difference, compared.interval.low, compared.interval.high, "+z.1%", "not known")
    print_result(
        f"Contaminated minus clean: {shown}, p = {format_probability(compared.p_value)} ({compared.method}).\n"
        f"{DIFFERENCE_CAVEAT}",
        comparison={**asdict(compared), "caveat": DIFFERENCE_CAVEAT},
    )


@click.command(cls=ListedCommand, section=Section.OWN_FILES, position=20, keeps=SHARDS_KEPT)
@click.option("--corpus", type=PATH, required=True, help="The corpus: a file, or a folder of files.")
@click.option(
    "--tokenizer",
    required=True,
    help="Model whose tokenizer is used: a name in config/models.yaml, a hub id, or a path.",
)
@click.option("--out", type=FILE, required=True, help="The Parquet file to write.")
@text_column_option
@click.option(
    "--max-tokens-per-document",
    type=AT_LEAST_1,
    help="Maximum number of tokens counted per document. Default: all. The published code of DC-PDD counts 1024.",
)
@quiet_option
def count(
    corpus: Path, tokenizer: str, out: Path, text_column: str | None, max_tokens_per_document: int | None
) -> None:
    """Count how often each token occurs in a reference corpus.

    The result is a token-frequency table for one tokenizer. After an interruption, the same command continues.
    """
    configured = resolve_model_option(tokenizer)

    from audit_pipeline.extras.corpora.corpus_stream import list_corpus_files
    from audit_pipeline.extras.corpora.token_count import CountLimits, count_to_file
    from audit_pipeline.models.tokenized_model import load_tokenized
    from audit_pipeline.readers.formats import has_row_format, open_rows
    from audit_pipeline.store.files import require_usable_output

    require_usable_output(out, corpus)
    if has_row_format(corpus) and corpus.exists() and (note := open_rows(corpus).note) is not None:
        print_step(note)
    model = load_tokenized(configured, DataPaths.from_environment())
    limits = CountLimits(max_tokens_per_document=max_tokens_per_document)
    print_step(f"counting tokens of {corpus}")
    counted = count_to_file(
        model, corpus, out, text_column, limits=limits, on_progress=lambda so_far: show_progress(so_far.progress_text)
    )
    print_skipped(counted.skipped.first, counted.skipped.count)
    _print_ignored(list_corpus_files(corpus)[1], corpus)
    distinct = int((counted.counts > 0).sum())
    print_result(f"{counted.tokens:,} tokens in {counted.documents:,} texts, {distinct:,} distinct, in {out}")
