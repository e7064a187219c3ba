"""The search of a benchmark's documents for passages that a model reproduces, and the storage of its results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, read_built
from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.benchmarks.conversation_rows import ConversationSettings
from audit_pipeline.benchmarks.model_inputs import build_example_inputs, build_template_upstream
from audit_pipeline.benchmarks.settings import BenchmarkSpec, ExtractionSettings
from audit_pipeline.errors import AuditError, DataError, TransientError
from audit_pipeline.extras.extraction import BEAMS, COARSE_TO_FINE, PREFIX
from audit_pipeline.extras.extraction.documents import Quotation, SearchedAnswer, SearchedDocument, parse_places
from audit_pipeline.extras.extraction.memorisation import windows_from_rows
from audit_pipeline.extras.extraction.result_tables import Passages, build_extraction_tables
from audit_pipeline.extras.extraction.search import Extraction, Search
from audit_pipeline.extras.extraction.settings_grid import GridFindings
from audit_pipeline.extras.extraction.window_exclusions import Exclusions
from audit_pipeline.extras.extraction.window_probabilities import explain_too_long_windows
from audit_pipeline.models.tokenized_model import TokenizedModel, build_reference_upstream, load_reference_model
from audit_pipeline.pipeline.stage import StageResult, UiMetadata
from audit_pipeline.readers.conversations import ScoredPart
from audit_pipeline.sources.config import all_sources
from audit_pipeline.statistics.claims import TOO_SHORT
from audit_pipeline.store import store
from audit_pipeline.store.control_files import count_training_occurrences
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import EXPOSED, DataPaths, model_page_path
from audit_pipeline.store.store import read_documents
from audit_pipeline.tables import (
    DOCUMENT_MEMORISATION,
    EXAMPLES,
    EXTRACTION,
    NON_MEMBER,
    Pair,
    Side,
)
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.cached_texts import Caches, build_pair_origin, compute_statistics_version
from audit_pipeline.token_statistics.run import Progress

# The scored parts of conversations that are answers.
_ANSWERS: tuple[ScoredPart, ...] = ("response", "last_response")

EXTRACTION_VERSION = "4"
"""The version of the code that searches documents and draws conclusions. A new version makes stored results stale."""


def extract_pair(
    pair: Pair,
    model: TokenizedModel,
    paths: DataPaths,
    backend_of: BackendOf,
    step: LineageStep,
    settings: ExtractionSettings,
    on_progress: Callable[[Progress], None] | None = None,
    *,
    generate: bool = True,
) -> StageResult:
    """Search the benchmark's documents for passages that the model reproduces verbatim, and store the results.

    If a window does not fit into the model's context, nothing is searched, and the row of each document states the
    reason. If the reference model cannot be loaded, the result states the reason, and no window is called predictable.

    Args:
        pair: The benchmark and model.
        model: The model.
        paths: The data folder.
        backend_of: Loads a model.
        step: The step for the ledger.
        settings: The settings of the search.
        on_progress: Receives the progress of a pass.
        generate: Whether the model generates text after the prefixes of passages. If not, the columns of generated text
            are empty. A second run then needs no pass of the model, because all other results are cached.

    Raises:
        DataError: If the benchmark is not built, fails its checks, or belongs to another control.
    """
    benchmark = read_built(paths, pair.benchmark)
    benchmark.require_passed_checks()
    documents = read_searched_documents(pair.benchmark, model, paths)
    reference, no_reference_reason = _load_reference(model, paths)
    no_window_reason = explain_too_long_windows(model, documents, settings.lengths)
    grid: GridFindings | None = None
    unreadable_parts: tuple[str, ...] = ()
    passages: list[Passages] = []
    if no_window_reason is None:
        search = Search(model, documents, settings, Caches(paths), reference)
        extractions = search.run(backend_of, on_progress)
        grid = search.run_grid(backend_of, on_progress)
        # A model behind an API cannot generate here, because generation needs the weights on this machine.
        can_generate = generate and model.entry.host.is_here
        for extraction, quotes in zip(extractions, search.quote_strongest_passages(extractions), strict=True):
            if can_generate and extraction.document.side == "audited":
                passages.append(
                    _generate_for_passages(search, extraction, backend_of, quotes, with_texts=grid is not None)
                )
            else:
                passages.append(Passages(quotes))
        unreadable_parts = search.unreadable_parts
    else:
        no_windows = windows_from_rows(EXTRACTION.empty_table())
        no_exclusions = Exclusions((), np.empty(0), np.empty(0))
        extractions = [Extraction(document, no_windows, np.zeros(0, np.bool_), no_exclusions) for document in documents]
        passages = [Passages()] * len(documents)
    tables = build_extraction_tables(
        extractions, passages, grid, pair, settings, step.run_id, no_window_reason or TOO_SHORT
    )
    upstream = {
        f"examples/{pair.benchmark}": benchmark.digest,
        # The version includes how the model is run, such as its start token.
        f"token_statistics/{pair.partition}": compute_statistics_version(model, benchmark.digest),
        **build_reference_upstream(reference),
    }
    if any(document.answer is not None for document in documents):
        upstream |= build_template_upstream(benchmark, model)
    origin = build_pair_origin(model, benchmark, settings.recorded)
    versions = {
        table: store.write(paths, step, table, pair, rows, upstream=upstream, **origin)
        for table, rows in tables.items()
    }
    rows = tables[DOCUMENT_MEMORISATION].to_pylist()
    data_version = versions[DOCUMENT_MEMORISATION]
    values = _summarise_results(rows, no_reference_reason, unreadable_parts)
    values["data_version"] = data_version
    # The report page shows the passages.
    return StageResult(data_version, UiMetadata(len(rows), values, page=model_page_path(paths.reports, pair.model)))


def _summarise_results(
    rows: Sequence[Mapping[str, Any]], no_reference_reason: str | None, unreadable_parts: Sequence[str]
) -> dict[str, object]:
    """Return the counts and problems that the UI shows for a pair, from its rows of DOCUMENT_MEMORISATION."""
    searched = Counter(row["side"] for row in rows if row["windows"])
    reproduced = Counter(row["side"] for row in rows if row["claim"] == "reproduced")
    values: dict[str, object] = {}
    if rows and not searched:
        values["reason"] = rows[0]["reason"]
    if no_reference_reason is not None:
        values["reference model"] = f"not loaded: {no_reference_reason}"
    if unreadable_parts:
        values["damaged files"] = len(unreadable_parts)
    values["audited documents"] = searched["audited"]
    values["documents reproduced in part"] = reproduced["audited"]
    values["held-out documents"] = searched["held_out"]
    values["held-out documents reproduced in part"] = reproduced["held_out"]
    values["windows"] = sum(row["windows"] for row in rows)
    return values


def build_search_version(settings: ExtractionSettings, spec: BenchmarkSpec | None = None) -> str:
    """Return the code version, followed by the settings if they are not the defaults.

    The price is not included, because it changes no stored result. If the benchmark ``spec`` has answers, settings that
    do not apply to answers are not included either.
    """
    unused: dict[str, object] = {"price_per_million": None}
    has_answers = spec is not None and are_answers_searched(spec)
    if has_answers:
        unused |= {"prefix": PREFIX, "stride": COARSE_TO_FINE, "characters": None, "grid": False}
    settings = settings.model_copy(update=unused)
    if settings == ExtractionSettings():
        return EXTRACTION_VERSION
    if has_answers:
        version = f"{EXTRACTION_VERSION}: first {settings.suffix} tokens of answers"
        if settings.near_verbatim is not None:
            version += f", {settings.near_verbatim} may differ"
        return version
    version = f"{EXTRACTION_VERSION}: {settings.prefix} + {settings.suffix}, {settings.stride}"
    if settings.characters is not None:
        version += f", first {settings.characters} characters"
    if settings.near_verbatim is not None:
        version += f", {settings.near_verbatim} may differ"
    if settings.grid:
        version += ", grid"
    return version


def find_spec(benchmark: str) -> BenchmarkSpec | None:
    """Return the entry of a benchmark, or None if it is missing."""
    benchmarks = load_benchmarks()
    if benchmark not in benchmarks:
        return None
    return benchmarks[benchmark]


def find_extraction_settings(benchmark: str) -> ExtractionSettings | None:
    """Return the extraction settings of a benchmark's entry, or None if they or the entry are missing."""
    spec = find_spec(benchmark)
    if spec is None:
        return None
    return spec.settings.extraction


def are_answers_searched(spec: BenchmarkSpec) -> bool:
    """Return True if the search is for answers of conversations instead of passages of documents."""
    settings = spec.settings
    return isinstance(settings, ConversationSettings) and settings.scored_part in _ANSWERS


def read_searched_documents(benchmark: str, model: TokenizedModel, paths: DataPaths) -> list[SearchedDocument]:
    """Read the whole documents that a built benchmark was drawn from, or its examples if it consists of rows.

    If answers of conversations are scored, there is one document per answer. It is the conversation up to the end of
    the answer, as the model reads it. Non-members are held out. All other documents are audited.

    Raises:
        DataError: If the benchmark is not built, belongs to another control than ``model``, or lacks a document.
        ModelError: If the chat template cannot be read or is not valid.
    """
    built = read_built(paths, benchmark)
    control = None
    if model.entry.control is not None:
        control = model.entry.control.name
    built.require_matching_control(model.entry.name, control)
    if built.scored_part in _ANSWERS:
        return _read_answers(built, model)
    return read_benchmark_documents(built, paths)


def _read_answers(built: BuiltBenchmark, model: TokenizedModel) -> list[SearchedDocument]:
    """Return one document per scored answer. A conversation that the chat template refuses is one document."""
    inputs = build_example_inputs(built.examples, model)
    rows = built.examples.select(["label", "group", "collection"]).to_pylist()
    documents: list[SearchedDocument] = []
    for row, example_id, text, answers in zip(rows, inputs.example_ids, inputs.texts, inputs.spans, strict=True):
        # A refused conversation has no text.
        spans = answers or ((0, 0),)
        for number, (start, end) in enumerate(spans, start=1):
            name = example_id
            if len(spans) > 1:
                name = f"{example_id}/{number}"
            document = SearchedDocument(
                name=name,
                text=text[:end],
                group=row["group"],
                collection=row["collection"],
                side=_choose_side(row["label"]),
                answer=SearchedAnswer(example_id, number, start, text, inputs.refusals.get(example_id)),
            )
            documents.append(document)
    return documents


def _choose_side(label: int | None) -> Side:
    if label == NON_MEMBER:
        return "held_out"
    return "audited"


def read_benchmark_documents(built: BuiltBenchmark, paths: DataPaths) -> list[SearchedDocument]:
    """Read the documents of a built benchmark for any model.

    They are the documents of :func:`read_searched_documents`, but conversations are in their plain form and whole.

    Raises:
        DataError: If a document is missing from the sources.
    """
    rows = built.examples.select(["example_id", "document_id", "label", "group", "collection"]).to_pylist()
    whole_documents = read_whole_documents(built, paths)
    texts = EXAMPLES.texts(built.examples)
    occurrences: Sequence[int | None] = [None] * len(texts)
    if built.control is not None:
        # A control has an exposed model, which was trained on the texts, and a twin, which was not. The counts of the
        # exposed model are used for both. The results of the twin should not depend on the counts.
        occurrences = count_training_occurrences(texts, built.control, EXPOSED, paths)
    documents: dict[str, SearchedDocument] = {}
    for row, text, count in zip(rows, texts, occurrences, strict=True):
        example = {"document_id": row["example_id"], "text": text, "title": None, "places": None}
        document = whole_documents.get(row["document_id"], example)
        documents[document["document_id"]] = SearchedDocument(
            name=document["document_id"],
            text=document["text"],
            title=document["title"],
            group=row["group"],
            collection=row["collection"],
            side=_choose_side(row["label"]),
            occurrences=count,
            places=parse_places(document["places"]),
        )
    return list(documents.values())


def read_whole_documents(built: BuiltBenchmark, paths: DataPaths) -> Mapping[str, Mapping[str, Any]]:
    """Read the source documents that a benchmark was drawn from.

    Returns:
        The columns document_id, title, text, url and places by document_id. Empty if the benchmark consists of rows.

    Raises:
        DataError: If a document is missing from the sources.
    """
    document_ids = built.examples["document_id"].unique()
    known_sources = all_sources()
    sources = [name for name in built.manifest["source_versions"] if name in known_sources]
    if not sources:
        return {}
    documents: dict[str, Mapping[str, Any]] = {}
    columns = ["document_id", "title", "text", "url", "places"]
    for source in sources:
        table = read_documents(paths, source)
        used = table.filter(pc.is_in(table["document_id"], value_set=document_ids))
        documents |= {row["document_id"]: row for row in used.select(columns).to_pylist()}
    missing = [name for name in document_ids.to_pylist() if name not in documents]
    if missing:
        raise DataError(
            f"{len(missing)} document(s) of {built.name} are no longer in its sources, such as '{missing[0]}'. Build "
            f"the benchmark again: corpus-audit benchmarks --build {built.name}"
        )
    return documents


def load_search_reference(model: TokenizedModel, paths: DataPaths) -> TokenizedModel | None:
    """Return the entry's ``reference_model``, which sets passages apart, or None if the entry names none.

    The default of detectors does not apply. A passage that a model reproduces before and after fine-tuning is still
    reproduced. A series would otherwise lose the passages that its first checkpoint reproduces.

    Raises:
        ConfigError: If :func:`load_reference_model` raises it.
        ModelError: If :func:`load_reference_model` raises it.
    """
    return None if model.entry.reference_model is None else load_reference_model(model, paths)


def _load_reference(model: TokenizedModel, paths: DataPaths) -> tuple[TokenizedModel | None, str | None]:
    """Return the reference model, or None and the reason if it cannot be loaded."""
    try:
        return load_search_reference(model, paths), None
    except TransientError:
        raise
    except AuditError as error:
        return None, str(error)


def _generate_for_passages(
    search: Search, extraction: Extraction, backend_of: BackendOf, quotes: Mapping[int, Quotation], *, with_texts: bool
) -> Passages:
    """Generate text after the prefixes of a document's strongest passages, and compare it with the passages.

    If the settings request it, the near-verbatim bound of the strongest passage is computed, too.

    Args:
        search: The search.
        extraction: The results of the document.
        backend_of: Loads the model.
        quotes: The quotations of the passages.
        with_texts: Whether the model generates text. If it reproduces nothing of the document, it generates text for
            the strongest passage only.
    """
    # The import loads torch, which is not needed if everything is cached.
    from audit_pipeline.extras.extraction.continuations import compare_given_text, generate_suffix  # noqa: PLC0415

    strongest = extraction.memorisation.strongest
    max_differing = search.options.near_verbatim
    near_log_p = None
    if max_differing is not None and strongest:
        near_log_p = search.bound_near_verbatim(extraction, strongest[0], backend_of, max_differing, BEAMS)
    if not with_texts:
        return Passages(quotes, near_log_p=near_log_p)
    if not extraction.memorisation.reproduced:
        strongest = strongest[:1]
    windows = extraction.windows
    generated = {}
    for number in strongest:
        forward = search.load_local_pass(backend_of)
        text = generate_suffix(search.model, forward, search.encode_window(extraction, number))
        suffix = extraction.document.text[windows.begin[number] : windows.end[number]]
        generated[number] = compare_given_text(suffix, text)
    return Passages(quotes, generated, near_log_p)
