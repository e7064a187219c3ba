"""The command `corpus-audit evaluate`: findings, warehouse and report of a table of scores.

Neither a model nor Dagster is needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from audit_pipeline.benchmarks.build import count_examples
from audit_pipeline.benchmarks.built_benchmark import (
    SPLIT_VERSION,
    BuiltBenchmark,
    assess_split,
    read_built,
    read_split_assessment,
)
from audit_pipeline.config.problems import did_you_mean
from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.pipeline.evaluate_pair import EVALUATIONS_VERSION, collect_pair_facts, write_findings
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.report.files import build_reports
from audit_pipeline.report.pair_answer import answer_pair
from audit_pipeline.scoring.external_scores import (
    NEAR_DUPLICATE,
    ExternallyScoredTexts,
    ExternalScores,
    read_external_scores,
    read_scored_texts,
)
from audit_pipeline.scoring.pair_scores import SCORES_VERSION
from audit_pipeline.splits.evaluation_split import AssessedSplit, compute_assessed_split
from audit_pipeline.statistics.claims import WHOEVER_RAN_THIS
from audit_pipeline.statistics.evaluate_options import EvaluateOptions
from audit_pipeline.statistics.findings import Findings, compute_findings
from audit_pipeline.statistics.score_columns import relabel_for_comparison
from audit_pipeline.store import store
from audit_pipeline.store.files import write_atomically, write_json
from audit_pipeline.store.integrity import file_sha256, table_version
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths, explain_unwritable, make_private
from audit_pipeline.tables import EXAMPLES, MEMBER, NON_MEMBER, SCORES, Pair, digest

CODE_VERSION = "2"
_MARKER = "evaluated_scores.json"
# The default unit of benchmarks.
_UNIT = "whitespace"


@dataclass(frozen=True)
class FileEvaluation:
    """The evaluation of a table of scores.

    Attributes:
        pair: The pair under which the scores are evaluated.
        external_scores: The scores and examples that were read from the file.
        findings: The findings.
        paths: The folder with the tables, the warehouse and the reports.
        report: The main page of the report.
    """

    pair: Pair
    external_scores: ExternalScores
    findings: Findings
    paths: DataPaths
    report: Path


def evaluate_file(options: EvaluateOptions) -> FileEvaluation:
    """Evaluate the scores in a file and write tables, warehouse and reports into the output folder.

    The output folder has the layout of a data folder. Results of earlier evaluations in the folder are kept.

    Raises:
        DataError: If the file is unusable or has nothing to compare, or if the folder has other content.
        ConfigError: If the options are invalid.
    """
    _require_usable(options)
    paths = DataPaths(options.folder.expanduser().resolve())
    pair = Pair(options.name, options.model)
    try:
        content_sha256 = file_sha256(options.scores)
    except OSError as error:
        raise DataError(f"{options.scores} cannot be read: {error.strerror}") from error
    settings = {**options.settings(), "sha256": content_sha256}
    texts = None if options.texts is None else read_scored_texts(options.texts, options.text_column)
    run_id = _build_run_id(settings, texts)
    external_scores = read_external_scores(
        options.scores,
        pair,
        run_id,
        calibration=options.calibration,
        seed=options.seed,
        language=options.language,
        texts=texts,
    )
    _require_scored_headline(options, external_scores.scores)
    version = table_version(external_scores.examples)
    has_members = _count_label(external_scores.examples, MEMBER) > 0
    design = options.design or ("unstated" if has_members else "unlabelled")
    earlier = read_built(paths, options.name) if paths.benchmark_manifest(options.name).exists() else None
    is_unchanged = earlier is not None and (earlier.digest, earlier.design) == (version, design)
    split = read_split_assessment(earlier, paths) if earlier is not None and is_unchanged else None
    if split is not None:
        assessed = split.assessed
    else:
        compared_examples = relabel_for_comparison(external_scores.examples)
        assessed = compute_assessed_split(compared_examples, design, options.language)
    external_scores = _note_missing_control(external_scores, assessed)
    findings = compute_findings(external_scores.scores, external_scores.examples, pair, assessed, run_id)
    _require_comparison(options.scores, external_scores, findings)
    if earlier is not None and not is_unchanged:
        _require_no_other_model(paths, pair, earlier)
    make_private(paths.root)
    write_json(paths.root / _MARKER, {"written_by": "corpus-audit evaluate"})
    store.write(
        paths,
        LineageStep.now(run_id, "given_examples", CODE_VERSION),
        EXAMPLES,
        options.name,
        external_scores.examples,
        data_version=version,
        # Several files can contain scores of the same texts, so the file is not recorded as an input of the examples.
        upstream={},
        benchmark_digest=version,
    )
    manifest = _build_manifest(options, external_scores, version, design, earlier)
    write_json(paths.benchmark_manifest(options.name), manifest)
    upstream = {f"examples/{pair.benchmark}": version}
    scores_version = store.write(
        paths,
        LineageStep.now(run_id, "given_scores", SCORES_VERSION),
        SCORES,
        pair,
        external_scores.scores,
        upstream={**upstream, f"file/{options.scores.name}": content_sha256},
        settings=settings,
        benchmark_digest=version,
    )
    upstream[f"scores/{pair.partition}"] = scores_version
    if split is None and external_scores.has_text:
        step = LineageStep.now(run_id, "split_quality", SPLIT_VERSION)
        split = assess_split(read_built(paths, pair.benchmark), paths, step, assessed=assessed)
    if split is not None:
        upstream |= split.versions
    facts = collect_pair_facts(
        pair,
        manifest,
        external_scores.examples,
        external_scores.scores,
        paths=paths,
        config=paths.root,
        named_detector=options.headline,
    )
    write_findings(
        findings,
        answer_pair(pair, findings.tables, facts, run_id),
        pair,
        paths,
        LineageStep.now(run_id, "evaluations", EVALUATIONS_VERSION),
        upstream=upstream,
        benchmark_digest=version,
    )
    build_warehouse(paths, include_text=not options.no_text, config=paths.root)
    summary = build_reports(paths.warehouse, paths.reports, include_text=not options.no_text)
    return FileEvaluation(pair, external_scores, findings, paths, summary.path)


def _build_run_id(settings: Mapping[str, Any], texts: ExternallyScoredTexts | None) -> str:
    """Return the run id, a digest of content and options, so that a repeated evaluation replaces its earlier results.

    The locations of the files do not change the id.
    """
    content: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in ("scores", "texts", "out", "no_text"):
            content[name] = value
    content["texts"] = texts and sorted(texts.by_digest)
    return f"evaluate-{digest(content)[:16]}"


def _note_missing_control(external_scores: ExternalScores, assessed: AssessedSplit) -> ExternalScores:
    """Add a note if there are texts but the blind control could not be computed."""
    reason = assessed.control.reason
    if not external_scores.has_text or reason is None:
        return external_scores
    note = reason
    if "calibration" in external_scores.examples["split"].to_pylist():
        note += "; with --calibration 0, the blind control can use all texts"
    return replace(external_scores, notes=(*external_scores.notes, note))


def write_scores_file(scores: pa.Table, options: EvaluateOptions) -> Path:
    """Write a table of scores into the folder of its evaluation, and return the file.

    The file name has the digest of the table, so other tables in the folder are not replaced.

    Args:
        scores: The scores.
        options: The options of the evaluation. Their file of scores is not read.

    Raises:
        ConfigError: If the options are invalid. In this case nothing is written.
        DataError: If the folder has other content or is not writable.
    """
    _require_usable(options)
    folder = options.folder.expanduser().resolve()
    make_private(folder)
    write_json(folder / _MARKER, {"written_by": "corpus-audit evaluate"})
    sink = pa.BufferOutputStream()
    pq.write_table(scores, sink)
    content = sink.getvalue().to_pybytes()
    file = folder / f"scores-{hashlib.sha256(content).hexdigest()[:12]}.parquet"
    with write_atomically(file) as temporary:
        temporary.write_bytes(content)
    return file


def _require_usable(options: EvaluateOptions) -> None:
    for name in (options.model, options.name):
        if not name or "|" in name:
            raise ConfigError(
                f"{name!r} cannot be the name of a model or a benchmark, because it is empty or contains '|'. Choose "
                "another name."
            )
    if not 0 <= options.calibration < 1:
        raise ConfigError(
            f"the share for calibration is {options.calibration}. Choose a number from 0 up to, but not including, 1."
        )
    out = options.folder
    if out.exists() and not out.is_dir():
        raise DataError(f"{out} is a file. Name a folder with --out.")
    if out.is_dir() and any(out.iterdir()) and not (out / _MARKER).exists():
        raise DataError(
            f"the folder {out} has files that were not written by corpus-audit evaluate. Name an empty or new folder "
            "with --out."
        )
    if explain_unwritable(out) is not None:
        raise DataError(f"the folder {out} is not writable, so nothing was evaluated. Name another folder with --out.")


def _require_scored_headline(options: EvaluateOptions, scores: pa.Table) -> None:
    """Raise ConfigError if the detector that the user chose has no score."""
    scored = sorted(pc.unique(scores.filter(pc.equal(scores["status"], "ok"))["detector"]).to_pylist())
    if options.headline is None or options.headline in scored:
        return
    hint = did_you_mean(options.headline, scored)
    raise ConfigError(f"--headline: {options.scores} has no score of '{options.headline}'; {hint}")


def _require_comparison(file: Path, external_scores: ExternalScores, findings: Findings) -> None:
    """Raise DataError if the findings neither compare two sides nor test groups against held-out groups."""
    has_metrics = pc.any(pc.is_valid(findings.tables["evaluations"]["value"])).as_py()
    tested_labels = set(findings.tables["group_tests"]["label"].to_pylist())
    has_group_tests = None in tested_labels or (external_scores.names_splits and MEMBER in tested_labels)
    if has_group_tests or has_metrics:
        return
    notes = "".join(f" Note: {note.rstrip('.')}." for note in external_scores.notes)
    raise DataError(f"{file}: there is nothing to compare: {_explain_no_findings(external_scores)}{notes}")


def _explain_no_findings(external_scores: ExternalScores) -> str:
    scored = external_scores.scores.filter(pc.equal(external_scores.scores["status"], "ok"))["example_id"]
    texts = external_scores.examples.filter(pc.is_in(external_scores.examples["example_id"], value_set=scored))
    n_members = _count_label(texts, MEMBER)
    n_nonmembers = _count_label(texts, NON_MEMBER)
    counts = {"members": n_members, "non-members": n_nonmembers, "texts of unknown label": texts["label"].null_count}
    description = " and ".join(f"{n} {kind}" for kind, n in counts.items() if n)
    if not n_nonmembers:
        hint = (
            "Add texts that the model cannot have read (label 0). Labels come from the column label of the file that "
            "was scored."
        )
    elif n_nonmembers == len(texts):
        hint = "Add members (label 1), or texts to be audited (label empty)."
    elif external_scores.names_splits:
        hint = "By the file's column 'split', only one side is evaluated. Correct the column, or remove it."
    else:
        hint = "All texts of the other side are used for calibration. Use --calibration 0, or add texts."
    return f"the {len(texts)} texts with a score are {description}. {hint}"


def _count_label(examples: pa.Table, label: int) -> int:
    return int(pc.sum(pc.equal(examples["label"], label)).as_py() or 0)


def _require_no_other_model(paths: DataPaths, pair: Pair, earlier: BuiltBenchmark) -> None:
    """Raise DataError if the folder has scores of another model on an earlier benchmark of this name.

    Texts without ids are numbered, so the earlier scores would get the labels of this file.
    """
    others = (Pair(*partition.split("|", 1)) for partition, _ in store.iterate_partitions(paths, SCORES))
    for other in others:
        if other.benchmark == pair.benchmark and other != pair:
            raise DataError(
                f"{paths.root} already contains scores of {other.model} for the benchmark {pair.benchmark}, with other "
                f"texts or options. The earlier options are --design {earlier.design} --calibration "
                f"{earlier.spec['calibration_fraction']} --seed {earlier.spec['seed']}. The texts or --language may "
                "differ, too. Use the same texts and options, or another --benchmark or --out."
            )


def _build_manifest(
    options: EvaluateOptions, external_scores: ExternalScores, version: str, design: str, earlier: BuiltBenchmark | None
) -> Mapping[str, Any]:
    """Return the manifest of the texts, which also lists the unusable rows of each model's file."""
    skipped_by_model: dict[str, Any] = {}
    if earlier is not None and earlier.digest == version:
        # Earlier evaluations of the same texts can have other models.
        skipped_by_model |= earlier.manifest.get("left_out", {})
    skipped_by_model[options.model] = {
        "rows": len(external_scores.skipped),
        "reasons": dict(external_scores.unused_counts),
        "notes": list(external_scores.notes),
    }
    return {
        "benchmark": options.name,
        "family": options.name,
        "description": "A table of scores from outside this workspace.",
        "design": design,
        # A table of scores cannot show how the two sides were chosen.
        "design_stated_by": WHOEVER_RAN_THIS,
        "words": None,
        "digest": version,
        "spec": {
            "builder": "given",
            "unit": _UNIT,
            "near_duplicate_threshold": NEAR_DUPLICATE,
            "calibration_fraction": options.calibration,
            "seed": options.seed,
        },
        "counts": count_examples(external_scores.examples),
        "left_out": skipped_by_model,
        "checks": [],
    }
