"""The work of the commands overlap and items: the search of a corpus, the verdicts on items, and their output."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from audit_pipeline.benchmarks.builders.templated import build_question_context
from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.cli import run_setup
from audit_pipeline.cli.shared_options import record_exit_state
from audit_pipeline.config.problems import split_names
from audit_pipeline.errors import ConfigError, DataError, escape_unprintable
from audit_pipeline.extras.corpora import item_verdicts, model_results, overlap_tables
from audit_pipeline.extras.corpora.config import OverlapRule
from audit_pipeline.extras.corpora.corpus_shards import ShardedCorpus
from audit_pipeline.extras.corpora.search import AuditedTexts, SearchResult, search_corpus
from audit_pipeline.pipeline import console
from audit_pipeline.pipeline.console import Columns, Row
from audit_pipeline.readers.text_rows import TextRow, read_own_id
from audit_pipeline.report.number_format import format_estimate, format_percent, format_probability, format_thousands
from audit_pipeline.store.files import write_atomically, write_table
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import iterate_partitions, read
from audit_pipeline.tables import CORPUS_OVERLAP, EXAMPLES, OVERLAP_SPANS, Pair

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


@dataclass(frozen=True)
class ItemsFile:
    """A file of items with its column names. None stands for the default column."""

    path: Path
    text_column: str | None
    answer_column: str | None
    id_column: str | None


@dataclass(frozen=True)
class CorpusSearch:
    """A search of a corpus by a rule in several processes."""

    corpus: ShardedCorpus
    rule: OverlapRule
    processes: int

    def show_progress(self, progress: str) -> None:
        """Print the progress of the search."""
        console.show_progress(f"{self.corpus.name}: {progress}")

    def run(self, audited: AuditedTexts, checkpoint: Path | None = None) -> SearchResult:
        """Search the corpus for texts."""
        return search_corpus(
            audited,
            self.corpus,
            self.rule,
            processes=self.processes,
            checkpoint=checkpoint,
            on_progress=self.show_progress,
        )


def search_for_benchmarks(names: str, search: CorpusSearch, *, quoted: bool) -> None:
    """Search a corpus for the texts of benchmarks, store and print the results, and publish them.

    Args:
        names: The names of built benchmarks, separated by commas, or ``all``.
        search: The search.
        quoted: Whether text may be quoted.
    """
    paths = run_setup.get_writable_paths()
    benchmarks = _list_benchmarks(names, paths)
    reports = overlap_tables.search_benchmarks(
        benchmarks,
        search.corpus,
        paths,
        f"overlap-{uuid.uuid4()}",
        search.rule,
        processes=search.processes,
        on_progress=search.show_progress,
    )
    spans: list[pa.Table] = []
    for name in benchmarks:
        spans.append(read(paths, OVERLAP_SPANS, f"{name}|{search.corpus.name}", label="the passages that were found"))
    if len(benchmarks) > 1:
        console.show_table("benchmarks", [_summarise_benchmark(report) for report in reports], _BENCHMARKS)
    texts = pa.concat_tables([report.texts for report in reports])
    print_overlap(reports[0].result, texts, pa.concat_tables(spans), quoted=quoted)
    run_setup.publish(paths, include_text=quoted)
    console.print_result(f"Report: {paths.report}", report=paths.report)


def _list_benchmarks(names: str, paths: DataPaths) -> list[str]:
    """Return the names of the built benchmarks in a comma-separated list. The list ``all`` stands for all of them."""
    if names != "all":
        return list(dict.fromkeys(run_setup.resolve_built_benchmark(name, paths) for name in split_names(names)))
    found = [name for name, _ in iterate_partitions(paths, EXAMPLES)]
    if not found:
        raise ConfigError("no benchmark is built yet. Build a benchmark: corpus-audit benchmarks --build NAME")
    return found


def search_for_file(file: ItemsFile, search: CorpusSearch, out: Path | None, *, quoted: bool) -> None:
    """Search a corpus for the texts of a file, print the results, and write them to a folder if ``out`` is set.

    Args:
        file: The file with the texts.
        search: The search.
        out: Folder for the result tables. None: nothing is written.
        quoted: Whether text may be quoted.
    """
    names, audited = _read_items(file)
    checkpoint = None
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        checkpoint = out / ".search.partial"
    result = search.run(audited, checkpoint)
    tables = overlap_tables.build_overlap_tables(result, [(file.path.stem, name) for name in names], run_id="overlap")
    if out is not None and checkpoint is not None:
        for table, found in tables.items():
            hidden: list[str] = []
            if not quoted:
                hidden = [column.name for column in table.columns if column.quotes_text]
            write_table(out / f"{table.name}.parquet", found.drop_columns(hidden))
        checkpoint.unlink(missing_ok=True)
    print_overlap(result, tables[CORPUS_OVERLAP], tables[OVERLAP_SPANS], quoted=quoted)
    if out is not None:
        console.print_result(f"Tables of all texts and passages: {out}", out=out)


def _read_items(file: ItemsFile) -> tuple[list[str], AuditedTexts]:
    """Return the names of a file's rows and their texts.

    If a row has an answer, its text is the question followed by the answer, as in a benchmark.

    Raises:
        DataError: If a named column is missing, ``answer_column`` holds no answer, or named ids are not unique.
    """
    stream = run_setup.open_texts(file.path, file.text_column)
    answers_in = stream.include_column(file.answer_column or "answer", required=file.answer_column is not None)
    ids_in = stream.include_column(file.id_column or "id", required=file.id_column is not None)
    rows = list(stream)
    console.print_skipped(stream.skipped.first, stream.skipped.count)
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
    return choose_row_names(rows, ids_in, required=file.id_column is not None), AuditedTexts(texts, borders)


def choose_row_names(rows: Sequence[TextRow], column: str, *, required: bool) -> list[str]:
    """Return the ids of the rows, or their locations in the file if ids are missing or not unique.

    Raises:
        DataError: If ``required`` is true and ids are missing or not unique.
    """
    ids = [read_own_id(row.values, column) for row in rows]
    names = [identity for identity in ids if identity is not None]
    distinct = len(set(names))
    if distinct == len(rows):
        return names
    if required:
        raise DataError(
            f"--id-column {column}: The {len(rows):,} texts have only {distinct:,} different ids. Give each text its "
            "own id, or remove --id-column."
        )
    return [row.location for row in rows]


def print_verdicts_of_file(file: ItemsFile, search: CorpusSearch) -> None:
    """Search a corpus for the items of a file, and print the verdicts."""
    names, audited = _read_items(file)
    result = search.run(audited)
    tables = overlap_tables.build_overlap_tables(result, [(file.path.stem, name) for name in names], run_id="items")
    found = item_verdicts.CorpusFindings(search.corpus.name, tables[CORPUS_OVERLAP], tables[OVERLAP_SPANS])
    contexts = [text[:border] or None for text, border in zip(audited.texts, audited.borders, strict=True)]
    columns = {"example_id": names, "document_id": names, "group": names, "context": contexts}
    print_corpus(found)
    print_ignored_files(search.corpus.ignored, search.corpus.name)
    print_items(item_verdicts.classify_items(pa.table(columns), found))


def print_verdicts_of_benchmark(
    benchmark: str, corpus: str | None, model: str | None, results: Path | None, clean: Path | None
) -> None:
    """Print the verdicts on the items of a benchmark, based on earlier searches and audits.

    If ``clean`` is set, write the positions of the clean items to this file.
    """
    paths = DataPaths.from_environment()
    name = run_setup.resolve_built_benchmark(benchmark, paths)
    built = read_built(paths, name)
    evidence = None
    if model is not None:
        pair = Pair(name, run_setup.resolve_model_option(model).name)
        evidence = item_verdicts.read_model_evidence(paths, pair)
    chosen = item_verdicts.choose_corpus(paths, name, corpus, required=evidence is None)
    found = None if chosen is None else item_verdicts.read_corpus_findings(paths, name, chosen)
    task = str(built.manifest["family"])
    matched = None
    if results is not None:
        task, matched = match_results_file(results, built.examples, built.manifest)
    judged = item_verdicts.classify_items(built.examples, found, evidence, None if matched is None else matched.correct)
    if found is not None:
        print_corpus(found)
    print_items(judged)
    if matched is not None:
        print_accuracy(judged)
    if clean is not None:
        write_clean_items(clean, task, judged, built.manifest, matched)


def write_clean_items(
    path: Path,
    task: str,
    judged: Sequence[item_verdicts.BenchmarkItem],
    manifest: Mapping[str, Any],
    matched: model_results.MatchedResults | None,
) -> None:
    """Write the positions of the clean items in the data set, for --samples of lm-evaluation-harness.

    Args:
        path: The .json file.
        task: The name of the harness' task.
        judged: The items with their verdicts.
        manifest: The manifest of the benchmark.
        matched: The results of a model, which may contain the positions.
    """
    positions, unknown = model_results.list_clean_positions(judged, manifest, matched)
    # lm-evaluation-harness reads every key of the file as a task, so the file cannot contain a digest.
    with write_atomically(path) as temporary:
        temporary.write_text(json.dumps({task: positions}), encoding="utf-8")
    if unknown:
        console.print_message(f"{unknown:,} clean item(s) have no result, so they are not in {path}")
    console.print_result(
        f"{path} lists {len(positions):,} clean items of the task {task}", clean={"file": path, "task": task}
    )


def match_results_file(
    path: Path, examples: pa.Table, manifest: Mapping[str, Any]
) -> tuple[str, model_results.MatchedResults]:
    """Read a model's results, and print their measure and the skipped rows.

    Returns:
        The name of the task, and the results by item.
    """
    file = model_results.read_results(path)
    console.print_skipped(file.skipped.first, file.skipped.count)
    matched = model_results.match_results(file, examples, manifest)
    others = f" (other metrics are not used: {', '.join(file.other_measures)})" if file.other_measures else ""
    means = f" ({matched.averaged:,} of them have several answers, whose mean counts)" if matched.averaged else ""
    console.print_result(
        f"Results of the kind {file.kind}, measured by {file.measure}{others}. {len(matched.correct):,} of "
        f"{len(examples):,} items have a result{means}. {matched.unmatched:,} result(s) belong to no item.",
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


def _summarise_benchmark(report: overlap_tables.OverlapReport) -> Mapping[str, object]:
    verdicts = Counter(report.texts.column("verdict").to_pylist())
    counts = {"texts": report.texts.num_rows, "contaminated": report.contaminated}
    return {"benchmark": report.benchmark, **counts, "verdicts": dict(verdicts)}


def print_overlap(result: SearchResult, texts: pa.Table, spans: pa.Table, *, quoted: bool) -> None:
    """Print the longest passages, the verdicts, and the problems of reading the corpus."""
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
        overlap_tables.describe_overlap(result, verdicts, len(rows)) + ".",
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
            console.print_message(f"The corpus was not read completely: {report.problem}")
        elif report.skipped:
            console.print_message(
                f"{report.name}: {report.skipped:,} row(s) could not be used. The first unusable row: "
                f"{report.first_skipped}"
            )


def print_ignored_files(names: Sequence[str], corpus: object) -> None:
    """Print how many files of the corpus were skipped because of their format, and the first of their names."""
    if names:
        shown = f"{', '.join(names[:_SHOWN_FILES])}{', …' if len(names) > _SHOWN_FILES else ''}"
        console.print_message(
            f"{len(names):,} file(s) in {escape_unprintable(str(corpus))} were skipped, because their format cannot be "
            f"read: {shown}"
        )


def print_corpus(found: item_verdicts.CorpusFindings) -> None:
    """Print the searched corpus, the rule, and the share of the corpus that was read."""
    read = found.overlap.slice(0, 1).to_pylist()[0]
    part = f"{read['shards_read']} of {read['shards']} shards were read"
    facts = {name: read[name] for name in ("rule", "n", "shards_read", "shards", "is_complete")}
    console.print_result(
        f"Corpus {found.corpus}: {'the whole corpus was read' if read['is_complete'] else part}; rule {read['rule']}",
        corpus={"name": found.corpus, **facts},
    )


def print_items(judged: Sequence[item_verdicts.BenchmarkItem]) -> None:
    """Print up to ``_SHOWN_ITEMS`` items that are not clean, worst first, and the number of items with each verdict."""
    counts = Counter(item.verdict for item in judged)
    shown = sorted(
        (item for item in judged if item.verdict != "clean"),
        key=lambda item: (
            item_verdicts.VERDICTS.index(item.verdict),
            -(item.covered or 0),
            item.document_id,
            item.example_id,
        ),
    )
    listed_items = judged if console.is_json_output() else shown[:_SHOWN_ITEMS]
    console.show_table("items", [asdict(item) for item in listed_items], _ITEMS)
    if len(shown) > _SHOWN_ITEMS:
        console.print_result(
            f"{len(shown) - _SHOWN_ITEMS:,} further item(s) are not clean. Use --json to list all items."
        )
    if counts["contaminated"]:
        record_exit_state("contaminated")
    if shown:
        record_exit_state("not-clean")
    listed = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in item_verdicts.VERDICTS if counts[verdict])
    console.print_result(
        f"{len(judged):,} items: {listed}", counts={verdict: counts[verdict] for verdict in item_verdicts.VERDICTS}
    )


def print_accuracy(judged: Sequence[item_verdicts.BenchmarkItem]) -> None:
    """Print the accuracy per verdict, and its difference between contaminated and clean items."""
    kinds = [("all", item_verdicts.VERDICTS), *((verdict, (verdict,)) for verdict in item_verdicts.VERDICTS)]
    rates = [{"items": name, **asdict(item_verdicts.measure_accuracy(judged, *verdicts))} for name, verdicts in kinds]
    console.show_table("accuracy", [rate for rate in rates if rate["n"]], _ACCURACY)
    compared = item_verdicts.compare_accuracy(judged)
    shown = format_estimate(compared.difference, compared.interval.low, compared.interval.high, "+z.1%", "unknown")
    console.print_result(
        f"Accuracy on contaminated minus clean items: {shown}, p = {format_probability(compared.p_value)} "
        f"({compared.method}).\n"
        f"{item_verdicts.DIFFERENCE_CAVEAT}",
        comparison={**asdict(compared), "caveat": item_verdicts.DIFFERENCE_CAVEAT},
    )
