"""A comparison before and after, from what is kept of models and benchmarks to its rows, and keeping them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark
from audit_pipeline.detectors.detector_inputs import explain_missing_columns
from audit_pipeline.errors import DataError
from audit_pipeline.extras.unlearning.inputs import (
    find_calibration_texts,
    read_document_values,
    read_reproduced,
    read_sides,
    read_threshold,
    read_values,
)
from audit_pipeline.extras.unlearning.measures import (
    FIRST_CHOICES,
    READS_OF_FIRST_CHOICES,
    ComparedValues,
    ComparisonFinding,
    compare_documents,
    compare_texts,
    find_still_reproduced,
)
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.store import store
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.store.ledger import LineageStep, read_ledger
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import (
    DECISIONS,
    DOCUMENT_MEMORISATION,
    TOKEN_STATISTICS,
    UNLEARNING,
    ComparedModel,
    Pair,
)

CODE_VERSION = "3"


@dataclass(frozen=True, eq=False)
class UnlearningRequest:
    """What is compared; ``holdout`` is ``forget`` where its non-members are the held-out texts."""

    before: TokenizedModel
    after: TokenizedModel
    retrained: TokenizedModel | None
    forget: BuiltBenchmark
    holdout: BuiltBenchmark

    @property
    def models(self) -> Mapping[ComparedModel, TokenizedModel]:
        """The models by what they are in the comparison."""
        known: dict[ComparedModel, TokenizedModel | None] = {
            "before": self.before,
            "after": self.after,
            "retrained": self.retrained,
        }
        return {role: model for role, model in known.items() if model is not None}

    @property
    def benchmarks(self) -> Sequence[BuiltBenchmark]:
        """The benchmark of the texts to be forgotten and, where it is another, that of the held-out ones."""
        return list({benchmark.name: benchmark for benchmark in (self.forget, self.holdout)}.values())


def compare_models(request: UnlearningRequest, paths: DataPaths) -> tuple[Sequence[ComparisonFinding], int]:
    """Compare the models on the texts of both sides, from cached statistics and tables alone.

    Returns the numbers, and how many texts are left out, as a model scores no token of them. Raises DataError where a
    model is named twice or reads texts in another way than the others, a side is empty, or a model has not been run on
    the texts.
    """
    _require_comparable(request.models)
    sides = read_sides(request.forget, request.holdout)
    threshold = read_threshold(request.before, request.benchmarks[::-1], paths)
    values = {role: read_values(model, sides, threshold.share, paths) for role, model in request.models.items()}
    reasons = [
        explain_missing_columns(model.has_statistic, READS_OF_FIRST_CHOICES) for model in request.models.values()
    ]
    no_first_choices = next((reason for reason in reasons if reason is not None), None)
    unknown = FIRST_CHOICES if no_first_choices is not None else ()
    read = [column for of in values.values() for name, column in of.items() if name not in unknown]
    scored = np.all([np.isfinite(column) for column in read], axis=0)
    known = sides.take(scored)
    of_scored = {role: {name: column[scored] for name, column in of.items()} for role, of in values.items()}
    texts, chosen_on = ComparedValues(known.forget, known.groups, of_scored), find_calibration_texts(known, threshold)
    findings = [
        *compare_texts(texts, threshold, chosen_on, no_first_choices),
        *compare_documents(read_document_values(request.models, request.benchmarks, paths)),
        find_still_reproduced(read_reproduced(request.models, request.benchmarks, paths)),
    ]
    return findings, int((~scored).sum())


def write_comparison(
    request: UnlearningRequest, findings: Sequence[ComparisonFinding], paths: DataPaths, *, run_id: str
) -> None:
    """Write the rows of a comparison, with the data versions of what was read, as far as the lineage knows them."""
    read = {f"examples/{benchmark.name}": benchmark.digest for benchmark in request.benchmarks}
    for model, benchmark in product(request.models.values(), request.benchmarks):
        partition = Pair(benchmark.name, model.entry.name).partition
        for table in (TOKEN_STATISTICS, DECISIONS, DOCUMENT_MEMORISATION):
            if entries := read_ledger(paths).list_entries(table.name, partition):
                read[f"{table.name}/{partition}"] = entries[-1].data_version
    compared = {
        "model": request.after.entry.name,
        "benchmark": request.forget.name,
        "before": request.before.entry.name,
        "holdout": request.holdout.name,
        "retrained": None if request.retrained is None else request.retrained.entry.name,
        "run_id": run_id,
    }
    store.write(
        paths,
        LineageStep.now(run_id, "unlearning", CODE_VERSION),
        UNLEARNING,
        Pair(request.forget.name, request.after.entry.name),
        table_from_rows([{**compared, **asdict(finding)} for finding in findings], UNLEARNING),
        upstream=read,
        model_fingerprint=request.after.identity.model_fingerprint,
        tokenizer_fingerprint=request.after.identity.tokenizer_fingerprint,
        benchmark_digest=request.forget.digest,
    )


def _require_comparable(models: Mapping[ComparedModel, TokenizedModel]) -> None:
    names = [model.entry.name for model in models.values()]
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"{name} is named twice: a model is compared with another model")
    first, *others = models.values()
    for other in others:
        both = f"{first.entry.name} and {other.entry.name}"
        if other.identity.tokenizer_fingerprint != first.identity.tokenizer_fingerprint:
            raise DataError(f"{both} have different tokenizers: token by token, such models cannot be compared")
        # All settings, apart from the tokenizer, that decide which tokens of a text are scored and what precedes them.
        ours, theirs = (
            {
                "start_token_policy": model.entry.start_token_policy,
                "start token": model.start_token_id if model.entry.start_token_policy == "always" else None,
                "window": model.entry.window,
                "stride": model.entry.stride,
            }
            for model in (first, other)
        )
        unlike = [f"{name} ({ours[name]}, {theirs[name]})" for name in ours if ours[name] != theirs[name]]
        if unlike:
            raise DataError(
                f"{both} do not read texts in the same way: {', '.join(unlike)}; give their entries in "
                "config/models.yaml the same and audit again"
            )
