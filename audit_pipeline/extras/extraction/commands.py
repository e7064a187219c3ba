"""The command extract, which finds passages of documents that a model reproduces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.cli import run_setup, shared_options
from audit_pipeline.cli.output import estimate_seconds, format_estimated_time, print_run_resources, print_sending_plan
from audit_pipeline.cli.shared_options import PASSES_KEPT, ListedCommand, Section
from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.extras.extraction import BEAMS, COARSE_TO_FINE, PREFIX, SUFFIX, command_output
from audit_pipeline.extras.extraction.command_output import GenerationOptions
from audit_pipeline.pipeline import console
from audit_pipeline.pipeline.audit_requests import AuditRequest
from audit_pipeline.pipeline.options import AuditOptions, RunOptions
from audit_pipeline.store.paths import DataPaths, is_text_output_allowed

if TYPE_CHECKING:
    from audit_pipeline.benchmarks.settings import BenchmarkSpec, ExtractionSettings
    from audit_pipeline.extras.extraction.documents import SearchedDocument
    from audit_pipeline.extras.extraction.search import Search
    from audit_pipeline.models.tokenized_model import TokenizedModel
    from audit_pipeline.token_statistics.backend import BackendOf


_DEFAULT = "Default: the value in the entry of --benchmark, otherwise {}."
_NOT_CACHED = "This loads the model, and the result is not cached."

_NAMED_EDITIONS = 10


@click.command(cls=ListedCommand, section=Section.AUDIT, position=20, keeps=PASSES_KEPT)
@shared_options.model_option
@click.option(
    "--texts",
    type=shared_options.PATH,
    help="Documents to search: a file or folder in the formats of `corpus-audit check` (.txt, .epub, .pdf, .docx, …), "
    "or a file with one document per row.",
)
@click.option(
    "--benchmark",
    help="Search the documents of a benchmark. The non-members of the benchmark are held out. The results are stored "
    "in the warehouse and the report.",
)
@click.option(
    "--document",
    metavar="ID",
    help="Search a document of a source. ID is the document's value in the column document_id of the table documents.",
)
@click.option(
    "--held-out",
    type=shared_options.PATH,
    help="Documents that you know the model has not read, in the formats of --texts. With them, each audited "
    "document gets a p-value and a q-value.",
)
@click.option(
    "--reference-model",
    help="Model that was not trained on the documents. Passages that it also reproduces count as predictable. "
    "Default: the reference model in the model's entry.",
)
@click.option(
    "--prefix",
    type=shared_options.AT_LEAST_1,
    help=f"Number of tokens of the prefix, which the model reads. {_DEFAULT.format(PREFIX)}",
)
@click.option(
    "--suffix",
    type=click.IntRange(min=2),
    help=f"Number of tokens of the suffix, which the model must reproduce. {_DEFAULT.format(SUFFIX)}",
)
@click.option(
    "--stride",
    help="Starts of windows: tiled (suffixes without gaps), chars:N (every N characters), or coarse-to-fine "
    f"(tiled, and every 10 characters near likely passages). {_DEFAULT.format(COARSE_TO_FINE)}",
)
@click.option(
    "--grid",
    is_flag=True,
    help="Also compute the probabilities at every setting of a grid: lengths of prefix and suffix, temperatures, "
    f"sampling methods. {_DEFAULT.format('no grid')}",
)
@click.option(
    "--price",
    type=shared_options.POSITIVE,
    help="Price of a million tokens, to compute the cost of sampling until a passage is generated. "
    f"{_DEFAULT.format('no cost is shown')}",
)
@click.option(
    "--generate",
    type=shared_options.AT_LEAST_1,
    metavar="N",
    help="Let the model continue the prefixes of the strongest passages: once greedily, and N times by sampling. "
    f"{_NOT_CACHED}",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of the random numbers with which --generate samples."
)
@click.option(
    "--near-verbatim",
    type=shared_options.AT_LEAST_1,
    metavar="D",
    help="For the strongest passages, compute a lower bound of the probability that top-40 sampling gives the suffix "
    f"with at most D different tokens, by beam search. {_NOT_CACHED} {_DEFAULT.format('no bound is computed')}",
)
@click.option(
    "--beams",
    type=shared_options.AT_LEAST_1,
    default=BEAMS,
    show_default=True,
    help="Number of continuations that the beam search of --near-verbatim follows at a time. More beams take longer, "
    "and can raise the bound.",
)
@click.option(
    "--continue",
    "continued",
    envvar="CORPUS_AUDIT_EXTRACT_CONTINUE",
    type=shared_options.AT_LEAST_1,
    metavar="TOKENS",
    help="Let the model greedily continue the first --prefix tokens of the strongest documents for TOKENS tokens, and "
    f"show how much of the document it reproduces. {_NOT_CACHED}",
)
@click.option("--out", type=shared_options.FILE, help="Parquet file to write, with one row per window.")
@shared_options.text_column_option
@click.option("--no-text", is_flag=True, help="Show only the locations of passages, and quote no text.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show the number of windows and tokens, and the estimated time. The model is not run.",
)
@shared_options.run_options
@shared_options.table_output_options
def extract(
    model: str,
    texts: Path | None,
    benchmark: str | None,
    document: str | None,
    held_out: Path | None,
    reference_model: str | None,
    prefix: int | None,
    suffix: int | None,
    stride: str | None,
    grid: bool,
    price: float | None,
    generate: int | None,
    seed: int,
    near_verbatim: int | None,
    beams: int,
    continued: int | None,
    out: Path | None,
    text_column: str | None,
    no_text: bool,
    dry_run: bool,
    **run_settings: Any,
) -> None:
    """Find passages of documents that a model gives word for word.

    For each window of a document, compute the probability that the model continues the prefix with exactly the suffix.
    One forward pass per window suffices, and no text is sampled. Finished windows are kept: after an interruption, the
    same command continues. docs/extraction.md explains the numbers.
    """
    options = AuditOptions(**run_settings)
    if sum(source is not None for source in (texts, benchmark, document)) != 1:
        raise click.UsageError("Give either --texts FILE, --benchmark NAME or --document ID.")
    if benchmark is not None and (held_out is not None or reference_model is not None):
        raise click.UsageError(
            "--held-out and --reference-model cannot be combined with --benchmark. The benchmark has its own held-out "
            "documents, and config/models.yaml names the reference model. Remove these options."
        )
    from audit_pipeline.benchmarks.settings import ExtractionSettings
    from audit_pipeline.store.files import require_usable_output

    spec = None if benchmark is None else _resolve_benchmark(benchmark)
    settings = (None if spec is None else spec.settings.extraction) or ExtractionSettings()
    paths = DataPaths.from_environment() if dry_run else run_setup.get_writable_paths()
    configured = run_setup.resolve_model_option(model)
    if out is not None:
        require_usable_output(out, *(path for path in (texts, held_out) if path is not None))
    audited = _read_file_documents(texts, text_column) if texts else []
    held_out_documents = _read_file_documents(held_out, text_column) if held_out else []

    from audit_pipeline.extras.extraction.documents import read_document_of_source
    from audit_pipeline.extras.extraction.pair_extraction import (
        are_answers_searched,
        load_search_reference,
        read_searched_documents,
    )
    from audit_pipeline.extras.extraction.search import Search
    from audit_pipeline.models.tokenized_model import apply_overrides
    from audit_pipeline.token_statistics.cached_texts import Caches

    asked = settings.override(prefix=prefix, suffix=suffix, stride=stride, grid=grid or None, price_per_million=price)
    entry = apply_overrides(configured, reference_model=reference_model)
    generation = GenerationOptions(generate, seed, near_verbatim or settings.near_verbatim, beams, continued)
    generation.require_consistent(asked.suffix, entry)
    if spec is not None and are_answers_searched(spec):
        _require_options_for_answers(spec.name, prefix=prefix, stride=stride, grid=grid or None, continued=continued)
    if spec is not None:
        # run_extraction writes the results to the cache, and the search below reads them from there.
        if not dry_run:
            run_extraction(AuditRequest([entry], [spec], options), asked, paths)
    else:
        own_documents = audited if document is None else [read_document_of_source(document, paths)]
        documents = _merge_held_out_documents(own_documents, held_out_documents)
    # For a benchmark, run_extraction has already asked the server.
    tokenized, backend_of = run_setup.prepare_model(entry, paths, options, ask_server=not dry_run and spec is None)
    if spec is not None:
        documents = read_searched_documents(spec.name, tokenized, paths)
    reference = load_search_reference(tokenized, paths)
    search = Search(tokenized, documents, asked, Caches(paths), reference)
    if held_out_documents and not any(map(search.is_as_long_as_a_window, held_out_documents)):
        raise DataError(
            f"{held_out}: All held-out documents are shorter than a window of {asked.lengths.window} tokens. Add "
            "longer documents, or use a shorter --prefix or --suffix."
        )
    if dry_run:
        _show_dry_run(search, tokenized, reference, len(documents), options)
    else:
        quoted = not no_text and is_text_output_allowed()
        _search_and_show(search, backend_of, generation, out, quoted=quoted)


def _search_and_show(
    search: Search, backend_of: BackendOf, generation: GenerationOptions, out: Path | None, *, quoted: bool
) -> None:
    """Search all documents, and print the results of the audited ones. Write their windows to ``out`` if it is set."""
    from audit_pipeline.pipeline.progress import progress_bar

    with progress_bar(search.model.entry.name) as on_progress:
        found = search.run(backend_of, on_progress)
        grid = search.run_grid(backend_of, on_progress)
    if search.unreadable_parts:
        console.print_message(
            f"{len(search.unreadable_parts)} corrupt part(s) of the cache were renamed. Their windows were run again."
        )
    audited = [result for result in found if result.document.side == "audited"]
    if out is not None:
        from audit_pipeline.extras.extraction.result_tables import write_windows

        write_windows(out, audited)
    command_output.show_documents(found, search.options)
    shown = command_output.select_strongest_documents(found)
    command_output.show_passages(search, backend_of, shown, generation, quoted=quoted)
    if grid is not None:
        command_output.show_grid(found, shown, grid)
    elif search.options.grid and search.has_answers:
        console.print_result(
            "The grid of settings was not tested, because each answer is searched after the whole conversation before "
            "it.",
            grid=None,
        )
    elif search.options.grid:
        console.print_result(
            f"The grid of settings was not tested, because {search.model.entry.name} runs on a server, and servers do "
            "not return the statistics that a grid needs.",
            grid=None,
        )
    if generation.continued is not None:
        command_output.show_continuations(search, backend_of, shown, generation.continued)
    command_output.show_claims(found)
    if out is not None:
        console.print_result(f"{sum(len(result.windows) for result in audited):,} windows in {out}", out=out)


def _require_options_for_answers(benchmark: str, **options: object) -> None:
    """Raise UsageError if an option has a value that does not apply to answers of conversations."""
    names = {"prefix": "--prefix", "stride": "--stride", "grid": "--grid", "continued": "--continue"}
    unsuitable = [names[option] for option, value in options.items() if value is not None]
    if unsuitable:
        raise click.UsageError(
            f"{benchmark} consists of conversations, and each answer is searched after the whole conversation before "
            f"it. Remove {', '.join(unsuitable)}."
        )


def _resolve_benchmark(name: str) -> BenchmarkSpec:
    specs = run_setup.load_whole_configuration().benchmarks_named(name)
    if len(specs) != 1:
        raise ConfigError(
            f"'{name}' is a family of {len(specs)} benchmarks. Choose one of these benchmarks: "
            f"{', '.join(spec.name for spec in specs)}."
        )
    return specs[0]


def run_extraction(request: AuditRequest, settings: ExtractionSettings, paths: DataPaths) -> None:
    """Search the documents of the request's benchmark, then publish if the request asks for it.

    Raises:
        AuditError: If the search stopped. Finished windows are kept, and the next call continues from there.
    """
    definitions = run_setup.load_dagster_definitions()
    from audit_pipeline.extras.extraction.pair_extraction import are_answers_searched, load_search_reference
    from audit_pipeline.extras.extraction.window_probabilities import explain_window_too_long
    from audit_pipeline.pipeline.dagster import audit, partitions, runs
    from audit_pipeline.pipeline.workspace_state import Scope
    from audit_pipeline.scoring.backends import Endpoints
    from audit_pipeline.tables import Pair

    [spec] = request.benchmarks
    entry = request.model
    options = request.options
    audit.require_same_control(entry, [spec])
    endpoints = Endpoints(options.limits.require_usable_for(entry))
    model = endpoints.probe_and_load(entry, paths, console.print_step)
    problem = explain_window_too_long(model, settings.lengths)
    # The windows of answers differ in length, so each answer has its own reason.
    if problem is not None and not are_answers_searched(spec):
        raise DataError(problem)
    load_search_reference(model, paths)
    asked = {"every_pair": True, **settings.model_dump(include={"prefix", "suffix", "stride", "grid"})}
    with audit.open_runner(definitions, paths, console.print_step) as (plain, _):
        runner = replace(plain, resources=request.resources, limits=options.limits, endpoints=endpoints)
        partitions.register_partitions(runner.instance, models=[entry.name])
        audit.prepare_scope(
            Scope((spec.name,)), runner, audit.resolve_relative_cutoffs([spec], paths, console.print_step)
        )
        console.print_step(f"searching the documents of {spec.name} with {entry.name}")
        partition = Pair(spec.name, entry.name).partition
        runner.run("extract", "corpus-audit extract", partition_key=partition, ops={"extraction": asked})
        if options.publish:
            runs.publish(runner)


def _merge_held_out_documents(
    documents: Sequence[SearchedDocument], held_out_documents: Sequence[SearchedDocument]
) -> list[SearchedDocument]:
    """Return all documents in one list, with the held-out documents marked as held out.

    Raises:
        DataError: If a text is in both lists.
    """
    # The import of numpy would slow down the help.
    from audit_pipeline.splits.shared_text import build_comparison_key

    held_out = {build_comparison_key(document.text): document.name for document in held_out_documents}
    keys = [build_comparison_key(document.text) for document in documents]
    named = zip(documents, keys, strict=True)
    both = [f"{document.name} ({held_out[key]})" for document, key in named if key in held_out]
    if both:
        raise DataError(
            f"{len(both)} document(s) are both audited and held out (in brackets: the name of the held-out copy): "
            f"{', '.join(both[:5])}. Remove these documents from the audited or from the held-out documents."
        )
    return [*documents, *(replace(document, side="held_out") for document in held_out_documents)]


def _read_file_documents(file: Path, text_column: str | None) -> list[SearchedDocument]:
    from audit_pipeline.extras.extraction.documents import read_documents

    documents, skipped = read_documents(file, text_column)
    console.print_skipped(skipped.first, skipped.count, "file(s), part(s) or row(s)")
    editions = [f"{document.name}: {document.edition}" for document in documents if document.edition is not None]
    if editions:
        more = f"; {len(editions) - _NAMED_EDITIONS:,} more" * (len(editions) > _NAMED_EDITIONS)
        console.print_message(f"Edition dates that the files contain: {'; '.join(editions[:_NAMED_EDITIONS])}{more}")
    return documents


def _show_dry_run(
    search: Search, model: TokenizedModel, reference: TokenizedModel | None, documents: int, options: RunOptions
) -> None:
    windows, tokens = search.count_windows_and_tokens()
    grid_tokens = search.count_grid_tokens()
    tokens += grid_tokens
    seconds = estimate_seconds(model, tokens, options)
    grid = f" ({grid_tokens:,} of them for the grid)" if grid_tokens else ""
    adds_windows = search.options.stride == COARSE_TO_FINE and not search.has_answers
    added = " Likely passages add more windows." if adds_windows else ""
    console.print_result(
        f"{documents:,} document(s) have {windows:,} windows with {tokens:,} tokens to run{grid}. Estimated time: "
        f"{format_estimated_time(seconds)}.{added}",
        documents=documents,
        windows=windows,
        tokens=tokens,
        grid_tokens=grid_tokens,
        seconds=seconds,
    )
    print_run_resources(model, options)
    # Each window is a request, for which the server also generates one token.
    to_send = [(model, tokens + windows)]
    if reference is not None:
        # The reference model reads only the passages that the model reproduces. Their number is not known yet.
        to_send.append((reference, 0))
        if not reference.entry.host.is_here:
            console.print_result(
                f"The reference model {reference.entry.name} also receives the passages that the model reproduces. "
                "Their number is not known yet."
            )
    print_sending_plan(to_send, options.limits.require_usable_for(model.entry))
