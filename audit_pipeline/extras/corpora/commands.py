"""Commands on corpora: overlap, items, count."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from audit_pipeline.cli import shared_options
from audit_pipeline.cli.run_setup import resolve_model_option, resolve_models_option
from audit_pipeline.cli.shared_options import SHARDS_KEPT, ListedCommand, Section
from audit_pipeline.pipeline import console
from audit_pipeline.store.paths import DataPaths, is_text_output_allowed

if TYPE_CHECKING:
    from audit_pipeline.extras.corpora.command_actions import CorpusSearch

_DEFAULT_RATE = 0.05
_answer_column_option = click.option(
    "--answer-column", help="With --texts: the column that holds the answer to each text. Default: answer."
)


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
@_answer_column_option
@shared_options.id_column_option
@click.option(
    "--rule",
    default="evidence",
    show_default=True,
    help="Rule by which a text counts as contaminated: evidence, gpt-3, palm, llama-2 or tulu-3.",
)
@click.option(
    "--words",
    type=shared_options.AT_LEAST_1,
    help="Number of consecutive words that must match. Default: the number of --rule.",
)
@click.option(
    "--only",
    metavar="PATTERN",
    help="Read only shards (files) whose names match the pattern, such as 'part-00*'. Default: all shards.",
)
@click.option(
    "--corpus-column",
    help="Column that contains the text in the files of the corpus. Default: text_column of the corpus's entry, else "
    "text, input or the only column.",
)
@click.option(
    "--processes", type=shared_options.AT_LEAST_1, help="Number of processes that read shards. Default: one per core."
)
@click.option(
    "--out",
    type=shared_options.PATH,
    help="With --texts: write corpus_overlap.parquet and overlap_spans.parquet to this folder. Default: the results "
    "are only printed.",
)
@click.option("--no-text", is_flag=True, help="Show only the locations of passages, and quote no text.")
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

    With --rule evidence, up to a fifth of a passage's words may differ. The published rules require identical words.
    The search reads the corpus once, shard by shard, and builds no index. A stopped search continues at the next shard.
    docs/overlap.md explains the rules and the results.
    """
    if (benchmark is None) == (texts is None):
        raise click.UsageError("Give either --benchmark NAME or --texts FILE.")
    if out is not None and texts is None:
        raise click.UsageError("--out requires --texts. The results of a benchmark are stored in the data folder.")
    from audit_pipeline.extras.corpora import command_actions

    search = _open_search(corpus, rule, words, only, corpus_column, processes)
    quoted = is_text_output_allowed() and not no_text
    if texts is not None:
        file = command_actions.ItemsFile(texts, text_column, answer_column, id_column)
        command_actions.search_for_file(file, search, out, quoted=quoted)
    else:
        command_actions.search_for_benchmarks(str(benchmark), search, quoted=quoted)


def _open_search(
    corpus: str,
    rule: str = "evidence",
    words: int | None = None,
    only: str | None = None,
    corpus_column: str | None = None,
    processes: int | None = None,
) -> CorpusSearch:
    """Open a corpus, and choose the rule and the number of processes of its search."""
    import joblib

    from audit_pipeline.extras.corpora.command_actions import CorpusSearch
    from audit_pipeline.extras.corpora.config import choose_rule
    from audit_pipeline.extras.corpora.corpus_shards import open_sharded_corpus

    chosen = choose_rule(rule, words)
    return CorpusSearch(open_sharded_corpus(corpus, corpus_column, only), chosen, processes or int(joblib.cpu_count()))


@click.command(cls=ListedCommand, section=Section.AUDIT, position=50)
@click.option("--benchmark", help="Test set to check: a built benchmark.")
@click.option(
    "--texts",
    type=shared_options.PATH,
    help="Test set to check: a file of items, one per row, or standard input (-). Requires --corpus.",
)
@shared_options.text_column_option
@_answer_column_option
@shared_options.id_column_option
@click.option(
    "--corpus",
    help="With --benchmark: a corpus that `overlap` searched for the texts of the benchmark. Default: the only "
    "searched corpus. With --texts: the corpus to search.",
)
@click.option(
    "--model",
    help="Model that was audited on the benchmark. Signs that the model has read an item count for the verdict. With "
    "--joint: all audited models, separated by commas.",
)
@click.option(
    "--joint",
    is_flag=True,
    help="List the items that are clean for all models of --model, from the scores of their audits and without a "
    "corpus.",
)
@click.option(
    "--members",
    multiple=True,
    metavar="[MODEL=]BENCHMARK",
    help="With --joint: a benchmark whose labelled members the models, or one model, are known to have read. Their "
    "scores are the calibration items. May be repeated. Default: the labelled members of --benchmark.",
)
@click.option(
    "--detector",
    help="With --joint: detector of all models. Default: the headline detector of each model's audit.",
)
@click.option(
    "--rate",
    type=shared_options.BETWEEN_0_AND_1,
    help=f"With --joint: maximum expected share of contaminated items in the list. Default: {_DEFAULT_RATE}.",
)
@click.option(
    "--out",
    type=shared_options.FILE,
    help="With --joint: write all items with their p-values to this .parquet or .csv file.",
)
@click.option(
    "--results",
    type=shared_options.INPUT_FILE,
    help="File with a model's results on the test set: samples_*.jsonl of lm-evaluation-harness, or a table with the "
    "columns item and correct.",
)
@click.option(
    "--clean",
    type=shared_options.FILE,
    help="Write the clean items to this .json file, in the format of --samples of lm-evaluation-harness.",
)
@shared_options.fail_on_option("contaminated", "not-clean")
@shared_options.table_output_options
def items(
    benchmark: str | None,
    texts: Path | None,
    text_column: str | None,
    answer_column: str | None,
    id_column: str | None,
    corpus: str | None,
    model: str | None,
    joint: bool,
    members: tuple[str, ...],
    detector: str | None,
    rate: float | None,
    out: Path | None,
    results: Path | None,
    clean: Path | None,
) -> None:
    """Check which items of a test set are contaminated.

    Each item gets a verdict with its reason. With --results, the accuracy on contaminated and on clean items is shown.
    With --benchmark, the command searches nothing and runs no model: run `overlap` or `audit` first. With --texts, it
    searches the corpus by the rule evidence. With --joint, it lists the items that no model has read, as far as their
    scores show. docs/overlap.md explains the verdicts and the list.
    """
    if (benchmark is None) == (texts is None):
        raise click.UsageError("Give either --benchmark NAME or --texts FILE.")
    if texts is None and (text_column is not None or answer_column is not None or id_column is not None):
        raise click.UsageError("--text-column, --answer-column and --id-column require --texts.")
    if joint:
        if benchmark is None or model is None or corpus is not None:
            raise click.UsageError("--joint requires --benchmark and --model, and uses no --corpus.")
        from audit_pipeline.extras.corpora.command_joint import print_joint_list

        print_joint_list(
            benchmark,
            resolve_models_option(model),
            members,
            detector=detector,
            rate=rate or _DEFAULT_RATE,
            out=out,
            results=results,
            clean=clean,
        )
        return
    if members or detector is not None or rate is not None or out is not None:
        raise click.UsageError("--members, --detector, --rate and --out require --joint.")
    if texts is not None:
        if corpus is None:
            raise click.UsageError("--texts requires --corpus, which names the corpus to search for the items.")
        if model is not None or results is not None or clean is not None:
            raise click.UsageError(
                "--model, --results and --clean require --benchmark. Build a benchmark from the file, and pass the "
                "benchmark instead of --texts."
            )
        from audit_pipeline.extras.corpora import command_actions

        file = command_actions.ItemsFile(texts, text_column, answer_column, id_column)
        command_actions.print_verdicts_of_file(file, _open_search(corpus))
        return
    from audit_pipeline.extras.corpora.command_actions import print_verdicts_of_benchmark

    print_verdicts_of_benchmark(str(benchmark), corpus, model, results, clean)


@click.command(cls=ListedCommand, section=Section.OWN_FILES, position=20, keeps=SHARDS_KEPT)
@click.option("--corpus", type=shared_options.PATH, required=True, help="Corpus to count: a file or a folder of files.")
@click.option(
    "--tokenizer",
    required=True,
    help="Model whose tokenizer is used: a name in config/models.yaml, a hub id, or a path.",
)
@click.option("--out", type=shared_options.FILE, required=True, help="Parquet file to write, with one row per token.")
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

    from audit_pipeline.extras.corpora.command_actions import print_ignored_files
    from audit_pipeline.extras.corpora.corpus_stream import list_corpus_files
    from audit_pipeline.extras.corpora.token_count import CountLimits, count_to_file
    from audit_pipeline.models.tokenized_model import load_tokenized
    from audit_pipeline.readers.formats import has_row_format, open_rows
    from audit_pipeline.store.files import require_usable_output

    require_usable_output(out, corpus)
    if has_row_format(corpus) and corpus.exists():
        note = open_rows(corpus).note
        if note is not None:
            console.print_step(note)
    model = load_tokenized(configured, DataPaths.from_environment())
    limits = CountLimits(max_tokens_per_document=max_tokens_per_document)
    console.print_step(f"counting tokens of {corpus}")
    counted = count_to_file(
        model,
        corpus,
        out,
        text_column,
        limits=limits,
        on_progress=lambda so_far: console.show_progress(so_far.progress_text),
    )
    console.print_skipped(counted.skipped.first, counted.skipped.count)
    print_ignored_files(list_corpus_files(corpus)[1], corpus)
    distinct = int((counted.counts > 0).sum())
    console.print_result(
        f"{out}: {counted.tokens:,} tokens in {counted.documents:,} texts, {distinct:,} distinct tokens"
    )
