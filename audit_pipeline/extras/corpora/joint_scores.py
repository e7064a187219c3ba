"""The scores of models on the items of a benchmark, and on calibration items that the models are known to have read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark
from audit_pipeline.config.problems import did_you_mean
from audit_pipeline.detectors.recall import MEMBER_PREFIX, NONMEMBER_PREFIX
from audit_pipeline.detectors.registry import REGISTRY
from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.statistics.roc import Floats
from audit_pipeline.statistics.score_columns import ScoredSetting, iterate_settings
from audit_pipeline.statistics.thresholds import ScoredTexts, compute_sampling_keys
from audit_pipeline.store.ledger import has_entries, read_latest_run
from audit_pipeline.store.ledger_records import Entry
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import read
from audit_pipeline.tables import EXAMPLES, MEMBER, PAIR_ANSWERS, RANKED_AMONG_ALL, SCORES, Pair

_UNKNOWN_LABEL = -1


@dataclass(frozen=True, eq=False)
class ModelScores:
    """The scores of a model on the items and on its calibration items, by one detector at its default setting.

    Attributes:
        model: Name of the model.
        detector: Name of the detector.
        parameters: The setting as JSON.
        members: Benchmark of the calibration items.
        scores: Float array of shape (n_items,), NaN if the item has no score.
        reasons: Why an item has no score, by example_id.
        n_members: Number of scored members.
        calibration: The scores of the calibration items, one member per group, of shape (n_groups,).
    """

    model: str
    detector: str
    parameters: str
    members: BuiltBenchmark
    scores: Floats
    reasons: Mapping[str, str]
    n_members: int
    calibration: Floats


def assign_members(options: Sequence[str], models: Sequence[str], benchmark: str) -> dict[str, str]:
    """Return the benchmark of the calibration items by model.

    Args:
        options: ``BENCHMARK`` for all models, or ``MODEL=BENCHMARK`` for one model.
        models: The names of the models.
        benchmark: The benchmark of models without an option.

    Raises:
        ConfigError: If an option names another model, or several options apply to one model in the same way.
    """
    for_all: list[str] = []
    for_model: dict[str, str] = {}
    for option in options:
        model, separator, name = option.rpartition("=")
        if not separator:
            for_all.append(name)
            continue
        if model not in models:
            raise ConfigError(f"--members {option}: --model does not name '{model}'; {did_you_mean(model, models)}")
        if model in for_model:
            raise ConfigError(f"--members names two benchmarks for {model}. Choose one of them.")
        for_model[model] = name
    if len(for_all) > 1:
        raise ConfigError(
            f"--members names several benchmarks for all models: {', '.join(for_all)}. Choose one of them, or use "
            "MODEL=BENCHMARK."
        )
    members = dict.fromkeys(models, benchmark)
    if for_all:
        members = dict.fromkeys(models, for_all[0])
    return members | for_model


def read_model_scores(
    paths: DataPaths, built: BuiltBenchmark, members: BuiltBenchmark, entry: ModelEntry, detector: str | None
) -> ModelScores:
    """Read the scores of a model on the items and on its calibration items.

    Args:
        paths: The data folder.
        built: The benchmark of the items.
        members: The benchmark whose members the model has read.
        entry: The model.
        detector: The detector. None: the headline detector of the model's audit on ``built``.

    Raises:
        DataError: If the model was not audited, if it has no calibration items, or if the scores of the two benchmarks
            cannot be compared.
    """
    model = entry.name
    if entry.control is not None and entry.control.role == "twin":
        raise DataError(
            f"{model} has no calibration items: it is the control model that was trained on other texts than the "
            f"members of {members.name}. Remove it from --model."
        )
    if detector is None:
        detector = _read_headline_detector(paths, Pair(built.name, model))
    run = _find_run(paths, built, model)
    setting, reasons = _read_setting(paths, built, run, model, detector)
    calibration = setting
    if members.name != built.name:
        members_run = _find_run(paths, members, model)
        calibration, _ = _read_setting(paths, members, members_run, model, detector)
        _require_same_weights(run, members_run, Pair(built.name, model), members.name)
        _require_comparable(setting, calibration, model, members.name)
    texts = _select_members(members.examples, calibration)
    if not len(texts):
        raise DataError(
            f"{model} has no calibration items: {detector} scored no labelled member of {members.name}. Name a "
            f"benchmark whose members the model has read: --members {model}=BENCHMARK"
        )
    scores = np.full(len(built.examples), np.nan)
    scores[setting.places] = setting.scores
    return ModelScores(
        model=model,
        detector=detector,
        parameters=setting.parameters,
        members=members,
        scores=scores,
        reasons=reasons,
        n_members=len(texts),
        calibration=texts.draw_one_per_group().scores,
    )


def _read_headline_detector(paths: DataPaths, pair: Pair) -> str:
    detector = None
    if has_entries(paths, PAIR_ANSWERS, pair):
        run_id = read_latest_run(paths, PAIR_ANSWERS.name, pair.partition).run_id
        answers = read(paths, PAIR_ANSWERS, pair, label=f"the answer of {pair.partition}", run_id=run_id)
        detector = answers["detector"][0].as_py()
    if detector is None:
        raise DataError(
            f"{pair.model} has no headline detector on {pair.benchmark}. Name a detector with --detector, or audit the "
            f"model: {_format_audit_command(pair)}"
        )
    return str(detector)


def _format_audit_command(pair: Pair) -> str:
    return f"corpus-audit audit --model {pair.model} --benchmark {pair.benchmark}"


def _find_run(paths: DataPaths, built: BuiltBenchmark, model: str) -> Entry:
    """Return the ledger entry of a model's latest scores.

    Raises:
        DataError: If the model has no scores of this build of the benchmark.
    """
    pair = Pair(built.name, model)
    if not has_entries(paths, SCORES, pair):
        raise DataError(f"{model} has no scores on {built.name} yet. Audit the model: {_format_audit_command(pair)}")
    run = read_latest_run(paths, SCORES.name, pair.partition)
    if run.benchmark_digest != built.digest:
        raise DataError(
            f"the scores of {model} on {built.name} were computed for an earlier build of the benchmark. Compute them "
            f"again: {_format_audit_command(pair)}"
        )
    return run


def _read_setting(
    paths: DataPaths, built: BuiltBenchmark, run: Entry, model: str, detector: str
) -> tuple[ScoredSetting, dict[str, str]]:
    """Return the scores of a run by a detector at its default setting, and the reasons of missing scores.

    The reasons are by example_id.
    """
    pair = Pair(built.name, model)
    all_scores = read(paths, SCORES, pair, label=f"the scores of {pair.partition}", run_id=run.run_id)
    default_scores = all_scores.filter(all_scores["is_default"])
    scores = default_scores.filter(pc.equal(default_scores["detector"], detector))
    reasons: dict[str, str] = {}
    for row in scores.filter(pc.not_equal(scores["status"], "ok")).to_pylist():
        reasons[row["example_id"]] = row["reason"] or row["status"]
    example_ids = built.examples["example_id"]
    settings = list(iterate_settings(scores, example_ids, example_ids, pair))
    if not settings:
        scored = sorted(pc.unique(default_scores["detector"]).to_pylist())
        raise DataError(f"{model} has no scores by {detector} on {built.name}; {did_you_mean(detector, scored)}")
    return settings[0], reasons


def _require_same_weights(items_run: Entry, members_run: Entry, pair: Pair, members: str) -> None:
    """Raise DataError if the items and the calibration items were scored with different weights or tokenizers."""
    weights = (items_run.model_fingerprint, items_run.tokenizer_fingerprint)
    if weights != (members_run.model_fingerprint, members_run.tokenizer_fingerprint):
        raise DataError(
            f"{pair.model} was scored with other weights or another tokenizer on {members} than on {pair.benchmark}, "
            "so the scores cannot be ranked together. Audit the model again on both: "
            f"corpus-audit audit --model {pair.model} --benchmark {pair.benchmark},{members}"
        )


def _require_comparable(items: ScoredSetting, calibration: ScoredSetting, model: str, members: str) -> None:
    """Raise DataError if the scores of two benchmarks cannot be ranked together."""
    detector = items.detector
    if items.parameters != calibration.parameters:
        raise DataError(
            f"{model} was scored by {detector} with {items.parameters} on the items and with {calibration.parameters} "
            f"on {members}. Choose another detector with --detector, or other members with --members."
        )
    needs = REGISTRY[detector].needs if detector in REGISTRY else ()
    reads_prefix = NONMEMBER_PREFIX in needs or MEMBER_PREFIX in needs
    if detector == RANKED_AMONG_ALL or reads_prefix:
        raise DataError(
            f"scores by {detector} depend on the other texts of their benchmark, so the members of {members} cannot "
            "calibrate it. Choose another detector with --detector."
        )


def _select_members(examples: pa.Table, setting: ScoredSetting) -> ScoredTexts:
    """Return the labelled members that the setting has scored."""
    labels = np.asarray(pc.fill_null(examples["label"], _UNKNOWN_LABEL).to_numpy(), dtype=np.int8)
    groups = examples["group"].to_pylist()
    keys = compute_sampling_keys(groups, examples["example_id"].to_pylist(), seed=0)
    places = setting.places
    return ScoredTexts(setting.scores, labels[places], np.array(groups)[places], keys[places]).members


def find_known_items(built: BuiltBenchmark, model_scores: Sequence[ModelScores]) -> list[str | None]:
    """Return for each item the reason why it is known to be contaminated, or None.

    An item is known to be contaminated if its text is the text of a labelled member. The member may belong to the
    benchmark of the items or to a benchmark of calibration items.
    """
    benchmarks = {built.name: built}
    for scored in model_scores:
        benchmarks[scored.members.name] = scored.members
    benchmark_of_text: dict[str, str] = {}
    for name, benchmark in benchmarks.items():
        members = benchmark.examples.filter(pc.equal(benchmark.examples["label"], MEMBER))
        for text in EXAMPLES.texts(members):
            benchmark_of_text.setdefault(text, name)
    reasons: list[str | None] = []
    for text in EXAMPLES.texts(built.examples):
        reason = None
        if text in benchmark_of_text:
            reason = f"known to be contaminated: a labelled member of {benchmark_of_text[text]}"
        reasons.append(reason)
    return reasons
