"""Commands on corpora: overlap, items, count."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.cli import shared_options
from audit_pipeline.cli.listed_command import SHARDS_KEPT, ListedCommand, Section
from audit_pipeline.cli.run_setup import (
    get_writable_paths,
    open_texts,
    publish,
    resolve_built_benchmark,
    resolve_model_option,
)
from audit_pipeline.errors import DataError
from audit_pipeline.extras.corpora import command_output
from audit_pipeline.pipeline.console import (
    print_message,
    print_result,
    print_skipped,
    print_step,
    show_progress,
)
from audit_pipeline.store.paths import DataPaths, is_text_output_allowed

if TYPE_CHECKING:
    import pyarrow as pa

    from audit_pipeline.extras.corpora.model_results import MatchedResults
    from audit_pipeline.extras.corpora.search import AuditedTexts
    from audit_pipeline.readers.text_rows import TextRow


@dataclass(frozen=True)
class _ItemsFile:
    """A file of items with its column names. None stands for the default column."""

    path: Path
    text_column: str | None
    answer_column: str | None
    id_column: str | None


@click.command(cls=ListedCommand, section=Section.AUDIT, position=40, keeps=SHARDS_KEPT)
@click.option(
    "--corpus",
    required=True,
    help="Name of a corpus in config/references.yaml, or a file or folder: .jsonl, .parquet, .txt, .csv and others, "
    "also compressed as .gz or .zst. A .txt file is one document.",
)
@click.option(
    "--benchmark",
    help="Search for the texts of a built benchmark, of several benchmarks (a,b,c), or of all built benchmarks (all). "
    "The results are stored in warehouse and report.",
)
@click.option(
    "--texts", type=shared_options.PATH, help="Search for the texts of a file, one per row, or of standard input (-)."
)
@shared_options.text_column_option
@click.option("--answer-column", help="With --texts: the column that holds the answer to each text. Default: answer.")
@shared_options.id_column_option
@click.option(
    "--rule",
    default="evidence",
    show_default=True,
    help="Rule of contamination: evidence, gpt-3, palm, llama-2 or tulu-3.",
)
@click.option(
    "--words",
    type=shared_options.AT_LEAST_1,
    help="Number of consecutive words that must match. Default: the rule's number.",
)
@click.option(
    "--only", metavar="PATTERN", help="Read only shards (files) whose names match the pattern, such as 'part-00*'."
)
@click.option("--corpus-column", help="Column that contains the text in the files of the corpus.")
@click.option(
    "--processes", type=shared_options.AT_LEAST_1, help="Number of processes that read shards. Default: one per core."
)
@click.option(
    "--out",
    type=shared_options.PATH,
    help="With --texts: write corpus_overlap.parquet and overlap_spans.parquet to this folder.",
)
@click.option("--no-text", is_flag=True, help="Show only locations, and quote no text.")
@shared_options.fail_on_option("contaminated")
@shared_options.table_output_options
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
    """Find passages of texts in a corpus.

    With the rule evidence, up to a fifth of a passage's words may differ. The published rules compare word for word.
    The search reads the corpus once, shard by shard, and builds no index. A stopped search continues at the next shard.
    docs/overlap.md explains the rules and the results.
    """
    if (benchmark is None) == (texts is None):
        raise click.UsageError("Give either --benchmark NAME or --texts FILE.")
    if out is not None and texts is None:
        raise click.UsageError("--out requires --texts. The results of a benchmark are stored in the data folder.")
    import joblib
    import pyarrow as pa

    from audit_pipeline.extras.corpora.config import choose_rule
    from audit_pipeline.extras.corpora.corpus_shards import open_sharded_corpus
    from audit_pipeline.extras.corpora.overlap_tables import search_benchmarks
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
        command_output.print_benchmarks(reports)
    result = reports[0].result
    command_output.print_overlap(
        result, pa.concat_tables([report.texts for report in reports]), pa.concat_tables(spans), quoted=quoted
    )
    publish(paths, include_text=quoted)
    print_result(f"Report: {paths.report}", report=paths.report)


def _list_benchmarks(names: str, paths: DataPaths) -> list[str]:
    """Return the names of the built benchmarks in a comma-separated list, or of all of them if it is ``all``."""
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


def _search_file(
    file: _ItemsFile,
    out: Path | None,
    search: Any,
    work: Mapping[str, Any],
    *,
    quoted: bool,
) -> None:
    """Search a corpus for the texts of a file, print the results, and write them to a folder.

    Args:
        file: The file with the texts.
        out: Folder for the result tables. None: nothing is written.
        search: Corpus and rule, the positional arguments of search_corpus after the texts.
        work: Keyword arguments of search_corpus.
        quoted: Whether text may be quoted.
    """
    from audit_pipeline.extras.corpora.overlap_tables import build_overlap_tables
    from audit_pipeline.extras.corpora.search import search_corpus
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
            hidden: list[str] = []
            if not quoted:
                hidden = [column.name for column in table.columns if column.quotes_text]
            write_table(out / f"{table.name}.parquet", found.drop_columns(hidden))
        checkpoint.unlink(missing_ok=True)
    command_output.print_overlap(result, tables[CORPUS_OVERLAP], tables[OVERLAP_SPANS], quoted=quoted)
    if out is not None:
        print_result(f"Tables of all texts and passages: {out}", out=out)


def _read_items(file: _ItemsFile) -> tuple[list[str], AuditedTexts]:
    """Return the names of a file's rows and their texts.

    If a row has an answer, its text is the question followed by the answer, as in a benchmark.

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
        raise DataError(
            f"{file.path}: no row has an answer in the column {file.answer_column}. Name another column with "
            "--answer-column."
        )
    return name_rows(rows, ids_in, required=file.id_column is not None), AuditedTexts(texts, borders)


def name_rows(rows: Sequence[TextRow], column: str, *, required: bool) -> list[str]:
    """Return the ids of the rows, or their locations in the file if ids are missing or not unique.

    Raises:
        DataError: If ``required`` is true and ids are missing or not unique.
    """
    from audit_pipeline.readers.text_rows import read_own_id

    ids = [read_own_id(row.values, column) for row in rows]
    names = [identity for identity in ids if identity is not None]
    distinct = len(set(names))
    if distinct == len(rows):
        return names
    if required:
        raise DataError(
            f"--id-column {column}: the {len(rows):,} texts have {distinct:,} different ids. Give each text its own id."
        )
    return [row.location for row in rows]


@click.command(cls=ListedCommand, section=Section.AUDIT, position=50)
@click.option("--benchmark", help="The test set: a built benchmark.")
@click.option(
    "--texts",
    type=shared_options.PATH,
    help="The test set: a file of items, one per row, or standard input (-). Requires --corpus.",
)
@shared_options.text_column_option
@click.option("--answer-column", help="With --texts: the column that holds the answer to each text. Default: answer.")
@shared_options.id_column_option
@click.option(
    "--corpus",
    help="With --benchmark: a corpus that `overlap` searched for the benchmark. Default: the only searched corpus. "
    "With --texts: the corpus to search.",
)
@click.option("--model", help="A model that was audited on the benchmark. Its results are shown as evidence.")
@click.option(
    "--results",
    type=shared_options.INPUT_FILE,
    help="A model's results: samples_*.jsonl of lm-evaluation-harness, or a table with the columns item and correct.",
)
@click.option(
    "--clean",
    type=shared_options.FILE,
    help="Write the clean items to this .json file, in the format of --samples of lm-evaluation-harness.",
)
@shared_options.fail_on_option("contaminated")
@shared_options.table_output_options
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
    """Check which items of a test set are in a corpus.

    Each item gets a verdict with its reason. With --results, the accuracy on contaminated and on clean items is shown.
    With --benchmark, the command searches nothing and runs no model: run `overlap` or `audit` first. With --texts, it
    searches the corpus by the rule evidence. docs/overlap.md explains the verdicts.
    """
    if (benchmark is None) == (texts is None):
        raise click.UsageError("Give either --benchmark NAME or --texts FILE.")
    if texts is not None:
        if corpus is None:
            raise click.UsageError("--texts requires --corpus, the corpus to search for the items.")
        if model is not None or results is not None or clean is not None:
            raise click.UsageError(
                "--model, --results and --clean require --benchmark. Build a benchmark from the file."
            )
        _judge_file(_ItemsFile(texts, text_column, answer_column, id_column), corpus)
        return
    if text_column is not None or answer_column is not None or id_column is not None:
        raise click.UsageError("--text-column, --answer-column and --id-column require --texts.")
    _judge_benchmark(str(benchmark), corpus, model, results, clean)


def _judge_file(file: _ItemsFile, corpus: str) -> None:
    """Search a corpus for the items of a file, and print the verdicts."""
    import joblib
    import pyarrow as pa

    from audit_pipeline.extras.corpora.config import choose_rule
    from audit_pipeline.extras.corpora.corpus_shards import open_sharded_corpus
    from audit_pipeline.extras.corpora.item_verdicts import CorpusFindings, judge_items
    from audit_pipeline.extras.corpora.overlap_tables import build_overlap_tables
    from audit_pipeline.extras.corpora.search import search_corpus
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
    command_output.print_corpus(found)
    command_output.print_ignored_files(opened.ignored, opened.name)
    command_output.print_items(judge_items(pa.table(columns), found))


def _judge_benchmark(
    benchmark: str, corpus: str | None, model: str | None, results: Path | None, clean: Path | None
) -> None:
    """Print the verdicts on the items of a benchmark, based on earlier searches and audits.

    If ``clean`` is set, write the positions of the clean items to this file.
    """
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
    task = str(built.manifest["family"])
    matched = None
    if results is not None:
        task, matched = _match_results_file(results, built.examples, built.manifest)
    judged = judge_items(built.examples, found, evidence, None if matched is None else matched.correct)
    if found is not None:
        command_output.print_corpus(found)
    command_output.print_items(judged)
    if matched is not None:
        command_output.print_accuracy(judged)
    if clean is not None:
        positions, unknown = list_clean_positions(judged, built.manifest, matched)
        # lm-evaluation-harness reads every key of the file as a task, so the file cannot contain a digest.
        with write_atomically(clean) as temporary:
            temporary.write_text(json.dumps({task: positions}), encoding="utf-8")
        if unknown:
            print_message(f"{unknown:,} clean item(s) have no result, so they are not in {clean}")
        print_result(
            f"{clean} lists {len(positions):,} clean items of the task {task}", clean={"file": clean, "task": task}
        )


def _match_results_file(path: Path, examples: pa.Table, manifest: Mapping[str, Any]) -> tuple[str, MatchedResults]:
    """Read a model's results, and print their measure and the skipped rows.

    Returns:
        The name of the task, and the results by item.
    """
    from audit_pipeline.extras.corpora.model_results import match_results, read_results

    file = read_results(path)
    print_skipped(file.skipped.first, file.skipped.count)
    matched = match_results(file, examples, manifest)
    others = f"; not used: {', '.join(file.other_measures)}" if file.other_measures else ""
    means = f" ({matched.averaged:,} of them: the mean of several answers)" if matched.averaged else ""
    print_result(
        f"Results: {file.kind}, {file.measure}{others}. {len(matched.correct):,} of {len(examples):,} items have a "
        f"result{means}; {matched.unmatched:,} result(s) belong to no item.",
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


@click.command(cls=ListedCommand, section=Section.OWN_FILES, position=20, keeps=SHARDS_KEPT)
@click.option("--corpus", type=shared_options.PATH, required=True, help="The corpus: a file, or a folder of files.")
@click.option(
    "--tokenizer",
    required=True,
    help="Model whose tokenizer is used: a name in config/models.yaml, a hub id, or a path.",
)
@click.option("--out", type=shared_options.FILE, required=True, help="The Parquet file to write.")
@shared_options.text_column_option
@click.option(
    "--max-tokens-per-document",
    type=shared_options.AT_LEAST_1,
    help="Maximum number of tokens counted per document. Default: all. The published code of DC-PDD counts 1024.",
)
@shared_options.quiet_option
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
    if has_row_format(corpus) and corpus.exists():
        note = open_rows(corpus).note
        if note is not None:
            print_step(note)
    model = load_tokenized(configured, DataPaths.from_environment())
    limits = CountLimits(max_tokens_per_document=max_tokens_per_document)
    print_step(f"counting tokens of {corpus}")
    counted = count_to_file(
        model, corpus, out, text_column, limits=limits, on_progress=lambda so_far: show_progress(so_far.progress_text)
    )
    print_skipped(counted.skipped.first, counted.skipped.count)
    command_output.print_ignored_files(list_corpus_files(corpus)[1], corpus)
    distinct = int((counted.counts > 0).sum())
    print_result(f"{out}: {counted.tokens:,} tokens in {counted.documents:,} texts, {distinct:,} distinct tokens")
