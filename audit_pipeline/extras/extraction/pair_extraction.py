"""Searches a benchmark's documents for what a model can be made to say of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, read_built
from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.benchmarks.settings import ExtractionSettings
from audit_pipeline.errors import AuditError, DataError, TransientError
from audit_pipeline.extras.extraction.defaults import BEAMS
from audit_pipeline.extras.extraction.documents import Quotation, SearchedDocument, parse_places
from audit_pipeline.extras.extraction.memorisation import windows_from_rows
from audit_pipeline.extras.extraction.result_tables import Passages, build_extraction_tables
from audit_pipeline.extras.extraction.search import Extraction, Search
from audit_pipeline.extras.extraction.window_exclusions import Exclusions
from audit_pipeline.extras.extraction.window_probabilities import explain_window_too_long
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import TokenizedModel, build_reference_upstream, load_reference_model
from audit_pipeline.pipeline.stage import StageResult, UiMetadata
from audit_pipeline.sources.config import all_sources
from audit_pipeline.statistics.claims import TOO_SHORT
from audit_pipeline.store import store
from audit_pipeline.store.control_files import count_training_occurrences
from audit_pipeline.store.control_names import EXPOSED
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths, model_page_path
from audit_pipeline.store.store import read_documents
from audit_pipeline.tables import (
    DOCUMENT_MEMORISATION,
    EXAMPLES,
    EXTRACTION,
    NON_MEMBER,
    Pair,
)
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.cached_texts import Caches
from audit_pipeline.token_statistics.pair_origin import build_pair_origin, compute_statistics_version
from audit_pipeline.token_statistics.run import Progress

EXTRACTION_VERSION = "4"
"""Of the code that searches and concludes: where it is raised, pairs that are done are done again."""


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
    """Search the benchmark's documents for passages that the model gives word for word, and keep what was found.

    Where a window does not fit into the model's context nothing is searched, and every document says so. A reference
    model that cannot be had is told, and nothing is called predictable then. Without ``generate`` the model is not let
    go on, and what would come of that is empty: all else is in the cache the second time. Raises DataError where the
    benchmark is not built, is not fit, or is another control's.
    """
    benchmark = read_built(paths, pair.benchmark)
    benchmark.require_passed_checks()
    documents = read_searched_documents(pair.benchmark, model.entry, paths)
    reference, no_reference = _load_reference(model, paths)
    no_window = explain_window_too_long(model, settings.lengths)
    if no_window is None:
        search = Search(model, documents, settings, Caches(paths), reference)
        found = search.run(backend_of, on_progress)
        grid = search.run_grid(backend_of, on_progress)
        # The weights of a model behind an interface are not here.
        can_generate = generate and model.entry.host.is_here
        passages = [
            _generate_for_passages(search, extraction, backend_of, quotes, gives=grid is not None)
            if can_generate and extraction.document.side == "audited"
            else Passages(quotes)
            for extraction, quotes in zip(found, search.quote_strongest(found), strict=True)
        ]
        damaged = search.unreadable_parts
    else:
        nothing, unjudged = windows_from_rows(EXTRACTION.empty_table()), Exclusions((), np.empty(0), np.empty(0))
        found = [Extraction(document, nothing, np.zeros(0, np.bool_), unjudged) for document in documents]
        grid, damaged = None, ()
        passages = [Passages() for _ in documents]
    tables = build_extraction_tables(found, passages, grid, pair, settings, step.run_id, no_window or TOO_SHORT)
    upstream = {
        f"examples/{pair.benchmark}": benchmark.digest,
        # How the model is run: its start token among it.
        f"token_statistics/{pair.partition}": compute_statistics_version(model, benchmark.digest),
        **build_reference_upstream(reference),
    }
    origin = build_pair_origin(model, benchmark, settings.recorded)
    versions = {
        table: store.write(paths, step, table, pair, rows, upstream=upstream, **origin)
        for table, rows in tables.items()
    }
    data_version, rows = versions[DOCUMENT_MEMORISATION], tables[DOCUMENT_MEMORISATION].to_pylist()
    searched = Counter(row["side"] for row in rows if row["windows"])
    reproduced = Counter(row["side"] for row in rows if row["claim"] == "reproduced")
    values = {
        **({"reason": rows[0]["reason"]} if rows and not searched else {}),
        **({"reference model": f"there is none: {no_reference}"} if no_reference is not None else {}),
        **({"damaged parts set aside": len(damaged)} if damaged else {}),
        **{"audited documents": searched["audited"], "documents reproduced in part": reproduced["audited"]},
        **{"held-out documents": searched["held_out"]},
        **{"held-out documents reproduced in part": reproduced["held_out"]},
        **{"windows": sum(row["windows"] for row in rows), "data_version": data_version},
    }
    # The page of the report has the passages.
    return StageResult(data_version, UiMetadata(len(rows), values, page=model_page_path(paths.reports, pair.model)))


def build_search_version(settings: ExtractionSettings) -> str:
    """The version of the code, and the settings where they are not the usual ones; a price changes nothing."""
    if settings.model_copy(update={"price_per_million": None}) == ExtractionSettings():
        return EXTRACTION_VERSION
    more = "" if settings.characters is None else f", first {settings.characters} characters"
    more += "" if settings.near_verbatim is None else f", {settings.near_verbatim} may differ"
    more += ", grid" if settings.grid else ""
    return f"{EXTRACTION_VERSION}: {settings.prefix} + {settings.suffix}, {settings.stride}{more}"


def find_extraction_settings(benchmark: str) -> ExtractionSettings | None:
    """How audits search the benchmark's documents; None where they do not, and for one that is in no entry."""
    known = load_benchmarks()
    return known[benchmark].settings.extraction if benchmark in known else None


def read_searched_documents(benchmark: str, model: ModelEntry, paths: DataPaths) -> list[SearchedDocument]:
    """The documents that a built benchmark was drawn from, whole; of one that is made of rows, its examples.

    Non-members are held out, all others audited. Raises DataError where the benchmark is not built, where it and
    ``model`` are not of one control, and where a document is no longer there.
    """
    built = read_built(paths, benchmark)
    built.require_matching_control(model.name, model.control.name if model.control is not None else None)
    return read_benchmark_documents(built, paths)


def read_benchmark_documents(built: BuiltBenchmark, paths: DataPaths) -> list[SearchedDocument]:
    """The same of a benchmark that is read already, whatever the model.

    Raises DataError where a document is no longer there.
    """
    rows = built.examples.select(["example_id", "document_id", "label", "group", "collection"]).to_pylist()
    whole = read_whole_documents(built, paths)
    texts = EXAMPLES.texts(built.examples)
    trained: Sequence[int | None] = [None] * len(texts)
    if built.control is not None:
        # Of both models: the twin, which was trained on none of them, is to show nothing however often the other was.
        trained = count_training_occurrences(texts, built.control, EXPOSED, paths)
    found: dict[str, SearchedDocument] = {}
    for row, text, times in zip(rows, texts, trained, strict=True):
        own = {"document_id": row["example_id"], "text": text, "title": None, "places": None}
        document = whole.get(row["document_id"], own)
        found[document["document_id"]] = SearchedDocument(
            document["document_id"],
            document["text"],
            document["title"],
            row["group"],
            row["collection"],
            "held_out" if row["label"] == NON_MEMBER else "audited",
            times,
            parse_places(document["places"]),
        )
    return list(found.values())


def read_whole_documents(built: BuiltBenchmark, paths: DataPaths) -> Mapping[str, Mapping[str, Any]]:
    """The documents of the sources that the benchmark was drawn from (title, text, url, places), by document_id; none
    where it is of rows. Raises DataError where one is no longer there.
    """
    wanted = built.examples["document_id"].unique()
    names: list[str] = wanted.to_pylist()
    sources = [name for name in built.manifest["source_versions"] if name in all_sources()]
    found: dict[str, Mapping[str, Any]] = {}
    columns = ["document_id", "title", "text", "url", "places"]
    for source in sources:
        documents = read_documents(paths, source)
        own = documents.filter(pc.is_in(documents["document_id"], value_set=wanted))
        found |= {row["document_id"]: row for row in own.select(columns).to_pylist()}
    gone = [name for name in names if sources and name not in found]
    if gone:
        raise DataError(
            f"{len(gone)} document(s) of {built.name} are no longer in its sources, the first {gone[0]}: build it "
            f"again: corpus-audit benchmarks --build {built.name}"
        )
    return found


def _load_reference(model: TokenizedModel, paths: DataPaths) -> tuple[TokenizedModel | None, str | None]:
    try:
        return load_reference_model(model, paths), None
    except TransientError:
        raise
    except AuditError as error:
        return None, str(error)


def _generate_for_passages(
    search: Search, extraction: Extraction, backend_of: BackendOf, quotes: Mapping[int, Quotation], *, gives: bool
) -> Passages:
    """What the model generates in place of a document's strongest passages.

    How likely it gives the strongest nearly word for word, where the settings ask for it; with ``gives`` its own words,
    in place of the strongest alone where nothing of the document is reproduced.
    """
    # Imported where it runs: what is cached needs no torch.
    from audit_pipeline.extras.extraction.continuations import compare_given_text, generate_suffix  # noqa: PLC0415

    strongest, differing = extraction.memorisation.strongest, search.options.near_verbatim
    near = None
    if differing is not None and strongest:
        near = search.bound_near_verbatim(extraction, strongest[0], backend_of, differing, BEAMS)
    windows, given = extraction.windows, {}
    for number in (strongest if extraction.memorisation.reproduced else strongest[:1]) if gives else ():
        forward, window = search.load_local_pass(backend_of), search.encode_window(extraction, number)
        suffix = extraction.document.text[windows.begin[number] : windows.end[number]]
        given[number] = compare_given_text(suffix, generate_suffix(search.model, forward, window))
    return Passages(quotes, given, near)
