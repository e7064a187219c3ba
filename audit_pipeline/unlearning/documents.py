"""What was extracted of the documents of a comparison, with one model and with another: read from its table.

What belongs here: reading the rows and saying why they cannot be compared. What does not: extraction itself
(extraction/), means over documents (compared.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from audit_pipeline.benchmarks.built import BuiltBenchmark
from audit_pipeline.catalogue import store
from audit_pipeline.catalogue.contracts import DOCUMENT_MEMORISATION, ComparedModel, Pair
from audit_pipeline.catalogue.lineage import LatestRun, entries_of, latest_run
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.extraction.conclude import LIKELIEST
from audit_pipeline.metrics.curves import Floats
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.unlearning.compared import OF_DOCUMENTS, DocumentValues, ReproducedDocuments, Values

Row = Mapping[str, Any]
Found = Mapping[ComparedModel, list[Row]]

NO_WINDOW = "no document is as long as a window"
_HOW = ("prefix_tokens", "suffix_tokens", "stride")


def read_documents(
    models: Mapping[ComparedModel, TokenizedModel],
    benchmarks: Sequence[BuiltBenchmark],
    paths: DataPaths,
) -> DocumentValues:
    """The documents of both sides of which every model's extraction has a window.

    Of one benchmark the audited documents against its held-out ones, of two all documents of the first against all of
    the second. Where extraction was not run, or in another way, there are none, and the reason says so.
    """
    rows: list[tuple[bool, Mapping[ComparedModel, Row]]] = []
    references: set[tuple[str, ...]] = set()
    for benchmark in benchmarks:
        found: dict[ComparedModel, list[Row]] = {}
        for role, model in models.items():
            written = _latest(model, benchmark, models.values(), paths)
            if isinstance(written, str):
                return _empty_document_values(written)
            references.add(_reference(written.upstream))
            if len(references) > 1:
                return _empty_document_values(
                    "extraction was not run with the same reference model, or none, each time"
                )
            found[role] = _rows(model, benchmark, written, paths)
        together = _of_all_models(found)
        if together is None:
            return _empty_document_values(
                f"extraction of {benchmark.name} was run with other windows on one model than on another"
            )
        is_first = benchmark is benchmarks[0]
        alone = len(benchmarks) == 1
        rows += [(one["after"]["side"] == "audited" if alone else is_first, one) for one in together]
    if not rows:
        return _empty_document_values(NO_WINDOW)
    sides = np.array([is_forget for is_forget, _ in rows])
    groups = [one["after"]["group"] for _, one in rows]
    return DocumentValues(sides, groups, {role: _values([one[role] for _, one in rows]) for role in models}, None)


def read_reproduced(
    models: Mapping[ComparedModel, TokenizedModel],
    benchmarks: Sequence[BuiltBenchmark],
    paths: DataPaths,
) -> ReproducedDocuments:
    """The documents to be forgotten of which the model after, and not the retrained one, reproduces a passage.

    It needs the extraction of the model after alone: what is reproduced is reproduced, whatever was run before.
    """
    forget, alone = benchmarks[0], len(benchmarks) == 1
    found: dict[ComparedModel, list[Row]] = {}
    for role in ("after", "retrained"):
        if role in models:
            written = _latest(models[role], forget, (), paths)
            if isinstance(written, LatestRun):
                found[role] = _rows(models[role], forget, written, paths)
            elif role == "after":
                return ReproducedDocuments([], [], np.empty(0, dtype=np.bool_), written)
    rows = [row for row in found["after"] if row["windows"] and (row["side"] == "audited" or not alone)]
    by_retrained = {row["document_id"] for row in found.get("retrained", ()) if row["claim"] == "reproduced"}
    return ReproducedDocuments(
        [row["title"] or row["document_id"] for row in rows],
        [row["group"] for row in rows],
        np.array([row["claim"] == "reproduced" and row["document_id"] not in by_retrained for row in rows], dtype=bool),
        None if rows else NO_WINDOW,
    )


def _latest(
    model: TokenizedModel, benchmark: BuiltBenchmark, models: Collection[TokenizedModel], paths: DataPaths
) -> LatestRun | str:
    """The latest extraction of a benchmark with a model, or why it cannot be compared with that of ``models``."""
    pair = Pair(benchmark.name, model.entry.name)
    if not any(entries_of(paths, DOCUMENT_MEMORISATION.name, pair.partition)):
        return f"extraction was not run: corpus-audit extract --model {pair.model} --benchmark {pair.benchmark}"
    written = latest_run(paths, DOCUMENT_MEMORISATION.name, pair.partition)
    otherwise = _explain_run_mismatch(written, model, benchmark, models)
    return written if otherwise is None else f"extraction of {pair.model} on {pair.benchmark} was run {otherwise}"


def _rows(model: TokenizedModel, benchmark: BuiltBenchmark, written: LatestRun, paths: DataPaths) -> list[Row]:
    pair = Pair(benchmark.name, model.entry.name)
    what = f"what was extracted of {pair.benchmark} with {pair.model}"
    rows: list[Row] = store.read(paths, DOCUMENT_MEMORISATION, pair, run_id=written.run_id, what=what).to_pylist()
    return rows


def _explain_run_mismatch(
    written: LatestRun, model: TokenizedModel, benchmark: BuiltBenchmark, models: Collection[TokenizedModel]
) -> str | None:
    """With or on what else than is compared now extraction was run, or how else than on the other ``models``."""
    if any(map(_gives_likeliest, models)) and not _gives_likeliest(model):
        return "through an interface that does not give the likeliest tokens, and with another model it was not"
    if written.model_fingerprint not in (None, model.identity.model_fingerprint):
        return "with other weights"
    return None if written.benchmark_digest in (None, benchmark.digest) else "on another build of it"


def _gives_likeliest(model: TokenizedModel) -> bool:
    return all(map(model.gives, LIKELIEST))


def _reference(upstream: Mapping[str, str]) -> tuple[str, ...]:
    """The reference model by which passages were set apart, with its weights; empty: there was none."""
    return tuple(sorted(f"{key} {version}" for key, version in upstream.items() if key.startswith("reference_model/")))


def _of_all_models(found: Found) -> list[Mapping[ComparedModel, Row]] | None:
    """The rows of each document by model, of those with a window; None where the models' windows are not alike."""
    by_document = {role: {row["document_id"]: row for row in rows if row["windows"]} for role, rows in found.items()}
    if len({tuple(row[name] for name in _HOW) for rows in by_document.values() for row in rows.values()}) > 1:
        return None
    common = sorted(set.intersection(*(set(rows) for rows in by_document.values())))
    return [{role: rows[document] for role, rows in by_document.items()} for document in common]


def _values(rows: Sequence[Row]) -> Values:
    reproduced = [float(row["claim"] == "reproduced") for row in rows]
    columns = (_floats(rows, "covered_at_0_001"), _floats(rows, "log_p"), np.array(reproduced))
    return dict(zip(OF_DOCUMENTS, columns, strict=True))


def _floats(rows: Sequence[Row], name: str) -> Floats:
    return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=np.float64)


def _empty_document_values(reason: str) -> DocumentValues:
    return DocumentValues(np.empty(0, dtype=np.bool_), [], {}, reason)
