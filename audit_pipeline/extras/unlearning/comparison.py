"""The comparison of models before and after unlearning: reading the inputs, and writing the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np

from audit_pipeline import tables
from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark
from audit_pipeline.detectors.detector_inputs import explain_missing_columns
from audit_pipeline.errors import DataError
from audit_pipeline.extras.unlearning import comparison_rows, inputs
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.statistics.roc import Bools, Floats
from audit_pipeline.store import store
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.store.ledger import LineageStep, read_ledger
from audit_pipeline.store.paths import DataPaths

CODE_VERSION = "3"


@dataclass(frozen=True, eq=False)
class UnlearningRequest:
    """The models and benchmarks of a comparison.

    Attributes:
        before: The model before unlearning.
        after: The model after unlearning.
        retrained: A model that was trained without the texts, or None.
        forget: The benchmark of the texts to be forgotten.
        holdout: The benchmark of the held-out texts. If it equals ``forget``, its non-members are the held-out texts.
    """

    before: TokenizedModel
    after: TokenizedModel
    retrained: TokenizedModel | None
    forget: BuiltBenchmark
    holdout: BuiltBenchmark

    @property
    def models(self) -> Mapping[tables.ComparedModel, TokenizedModel]:
        """Return the models by their role in the comparison."""
        models: dict[tables.ComparedModel, TokenizedModel] = {"before": self.before, "after": self.after}
        if self.retrained is not None:
            models["retrained"] = self.retrained
        return models

    @property
    def benchmarks(self) -> Sequence[BuiltBenchmark]:
        """Return the benchmark of the texts to be forgotten, then that of the held-out texts if it is another one."""
        return list({benchmark.name: benchmark for benchmark in (self.forget, self.holdout)}.values())


def compare_models(
    request: UnlearningRequest, paths: DataPaths
) -> tuple[Sequence[comparison_rows.ComparisonFinding], int]:
    """Compare the models on the texts to be forgotten and the held-out texts.

    No model is run. All values come from cached statistics and stored tables.

    Returns:
        The rows of the comparison, and the number of texts that are left out because a model has no value for them.

    Raises:
        DataError: If a model is given twice, reads texts in another way than the others, or has not been run on the
            texts. Also if there are no texts to be forgotten or no held-out texts.
    """
    _require_comparable(request.models)
    sides = inputs.read_sides(request.forget, request.holdout)
    # The benchmarks are reversed, because a threshold on the held-out benchmark is preferred.
    threshold = inputs.read_threshold(request.before, request.benchmarks[::-1], paths)
    values = {
        role: inputs.compute_text_values(model, sides, threshold.share, paths) for role, model in request.models.items()
    }
    missing_choices_reason = _explain_missing_choices(request.models)
    is_scored = np.ones(len(sides.forget), dtype=np.bool_)
    for model_values in values.values():
        for name, column in model_values.items():
            if missing_choices_reason is None or name not in comparison_rows.FIRST_CHOICES:
                is_scored &= np.isfinite(column)
    scored_sides = sides.take(is_scored)
    scored_values = {role: _select_rows(model_values, is_scored) for role, model_values in values.items()}
    texts = comparison_rows.ComparedValues(scored_sides.forget, scored_sides.groups, scored_values)
    calibration_mask = inputs.find_calibration_texts(scored_sides, threshold)
    document_values = inputs.read_document_values(request.models, request.benchmarks, paths)
    reproduced = inputs.read_reproduced_documents(request.models, request.benchmarks, paths)
    findings = [
        *comparison_rows.compare_texts(texts, threshold, calibration_mask, missing_choices_reason),
        *comparison_rows.compare_documents(document_values),
        comparison_rows.measure_still_reproduced(reproduced),
    ]
    return findings, int((~is_scored).sum())


def _explain_missing_choices(models: Mapping[tables.ComparedModel, TokenizedModel]) -> str | None:
    """Return why the first choices of a model are unknown, or None if those of all models are known."""
    for model in models.values():
        reason = explain_missing_columns(model.has_statistic, comparison_rows.FIRST_CHOICE_COLUMNS)
        if reason is not None:
            return reason
    return None


def _select_rows(values: comparison_rows.Values, mask: Bools) -> dict[str, Floats]:
    return {name: column[mask] for name, column in values.items()}


def write_comparison(
    request: UnlearningRequest, findings: Sequence[comparison_rows.ComparisonFinding], paths: DataPaths, *, run_id: str
) -> None:
    """Write the rows of a comparison to UNLEARNING, with a ledger entry that lists the data versions of the inputs."""
    upstream = {f"examples/{benchmark.name}": benchmark.digest for benchmark in request.benchmarks}
    for model, benchmark in product(request.models.values(), request.benchmarks):
        partition = tables.Pair(benchmark.name, model.entry.name).partition
        for table in (tables.TOKEN_STATISTICS, tables.DECISIONS, tables.DOCUMENT_MEMORISATION):
            entries = read_ledger(paths).list_entries(table.name, partition)
            if entries:
                upstream[f"{table.name}/{partition}"] = entries[-1].data_version
    retrained_name = None
    if request.retrained is not None:
        retrained_name = request.retrained.entry.name
    shared_columns = {
        "model": request.after.entry.name,
        "benchmark": request.forget.name,
        "before": request.before.entry.name,
        "holdout": request.holdout.name,
        "retrained": retrained_name,
        "run_id": run_id,
    }
    store.write(
        paths,
        LineageStep.now(run_id, "unlearning", CODE_VERSION),
        tables.UNLEARNING,
        tables.Pair(request.forget.name, request.after.entry.name),
        table_from_rows([{**shared_columns, **asdict(finding)} for finding in findings], tables.UNLEARNING),
        upstream=upstream,
        model_fingerprint=request.after.identity.model_fingerprint,
        tokenizer_fingerprint=request.after.identity.tokenizer_fingerprint,
        benchmark_digest=request.forget.digest,
    )


def _require_comparable(models: Mapping[tables.ComparedModel, TokenizedModel]) -> None:
    """Raise DataError if the models are not distinct, or if they would not score the same tokens of a text."""
    names = [model.entry.name for model in models.values()]
    for name in names:
        if names.count(name) > 1:
            raise DataError(
                f"The model {name} is given twice. Give different models with --before, --after and --retrained."
            )
    reference, *others = models.values()
    for other in others:
        both = f"{reference.entry.name} and {other.entry.name}"
        if other.identity.tokenizer_fingerprint != reference.identity.tokenizer_fingerprint:
            raise DataError(
                f"{both} have different tokenizers, so their tokens cannot be compared. Give models with the same "
                "tokenizer."
            )
        reference_settings = _list_reading_settings(reference)
        other_settings = _list_reading_settings(other)
        differences = []
        for name, value in reference_settings.items():
            if value != other_settings[name]:
                differences.append(f"{name} ({value}, {other_settings[name]})")
        if differences:
            raise DataError(
                f"{both} do not read texts in the same way. These settings differ: {', '.join(differences)}. Use the "
                "same settings in config/models.yaml, and audit both models again."
            )


def _list_reading_settings(model: TokenizedModel) -> dict[str, object]:
    """Return all settings, except the tokenizer, that decide which tokens are scored and what precedes them."""
    start_token = None
    if model.entry.start_token_policy == "always":
        start_token = model.start_token_id
    return {
        "start_token_policy": model.entry.start_token_policy,
        "start token": start_token,
        "window": model.entry.window,
        "stride": model.entry.stride,
    }
