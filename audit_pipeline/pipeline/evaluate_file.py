"""`corpus-audit evaluate`: findings, warehouse and report of a table of scores, without a model and without Dagster."""

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
from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, read_built
from audit_pipeline.benchmarks.stored_split import SPLIT_VERSION, assess_split, read_split_assessment
from audit_pipeline.config.problems import did_you_mean
from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.pipeline.evaluate_pair import EVALUATIONS_VERSION, collect_pair_facts, write_findings
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.report.files import build_reports
from audit_pipeline.report.pair_answer import answer_pair
from audit_pipeline.scoring.external_scores import (
    NEAR_DUPLICATE,
    ExternalScores,
    read_external_scores,
    read_scored_texts,
)
from audit_pipeline.scoring.pair_scores import SCORES_VERSION
from audit_pipeline.splits.assessment import compute_assessed_split
from audit_pipeline.statistics.claims import WHOEVER_RAN_THIS
from audit_pipeline.statistics.evaluate_options import EvaluateOptions
from audit_pipeline.statistics.findings import Findings, compute_findings
from audit_pipeline.statistics.score_columns import relabel_for_comparison
from audit_pipeline.store import store
from audit_pipeline.store.files import write_atomically, write_json
from audit_pipeline.store.integrity import file_sha256
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths, explain_unwritable, make_private
from audit_pipeline.store.versions import table_version
from audit_pipeline.tables import EXAMPLES, MEMBER, NON_MEMBER, SCORES, Pair, digest

CODE_VERSION = "2"
_MARKER = "evaluated_scores.json"
# As benchmarks have it where their entry says nothing.
_UNIT = "whitespace"


@dataclass(frozen=True)
class Evaluated:
    """The findings of a table of scores, and where they lie."""

    pair: Pair
    given: ExternalScores
    findings: Findings
    paths: DataPaths
    report: Path


def evaluate_file(options: EvaluateOptions) -> Evaluated:
    """Evaluate the scores in a file and write tables, warehouse and reports into the folder that is asked for.

    The tables lie there as they do in a data folder. What an earlier evaluation wrote there stays as history. Raises
    DataError for a file that cannot be used or holds nothing to compare, and for a folder that holds something else,
    ConfigError for options that do not fit.
    """
    _require_usable(options)
    paths = DataPaths(options.folder.expanduser().resolve())
    pair = Pair(options.name, options.model)
    try:
        content = file_sha256(options.scores)
    except OSError as error:
        raise DataError(f"{options.scores} cannot be read: {error.strerror}") from error
    settings = {**options.settings(), "sha256": content}
    # One evaluation of one content with the same words is one run: repeated, it replaces itself.
    same = {name: value for name, value in settings.items() if name not in ("scores", "texts", "out", "no_text")}
    texts = None if options.texts is None else read_scored_texts(options.texts, options.text_column)
    run_id = f"evaluate-{digest({**same, 'texts': texts and sorted(texts.by_digest)})[:16]}"
    given = read_external_scores(
        options.scores,
        pair,
        run_id,
        calibration=options.calibration,
        seed=options.seed,
        language=options.language,
        texts=texts,
    )
    _require_scored_headline(options, given.scores)
    version = table_version(given.examples)
    design = options.design or ("unstated" if _count(given.examples, MEMBER) else "unlabelled")
    # The benchmark of the same name that an earlier evaluation wrote into the folder.
    before = read_built(paths, options.name) if paths.benchmark_manifest(options.name).exists() else None
    is_as_before = before is not None and (before.digest, before.design) == (version, design)
    known = read_split_assessment(before, paths) if before is not None and is_as_before else None
    assessed = (
        known.assessed
        if known
        else compute_assessed_split(relabel_for_comparison(given.examples), design, options.language)
    )
    if given.has_text and (reason := assessed.control.reason) is not None:
        hint = "; --calibration 0 leaves it all texts" if "calibration" in given.examples["split"].to_pylist() else ""
        given = replace(given, notes=(*given.notes, f"{reason}{hint}"))
    findings = compute_findings(given.scores, given.examples, pair, assessed, run_id)
    _require_comparison(options.scores, given, findings)
    if before is not None and not is_as_before:
        _require_only_scores(paths, pair, before)
    make_private(paths.root)
    write_json(paths.root / _MARKER, {"written_by": "corpus-audit evaluate"})
    store.write(
        paths,
        LineageStep.now(run_id, "given_examples", CODE_VERSION),
        EXAMPLES,
        options.name,
        given.examples,
        data_version=version,
        # Several files may score the same texts, each with its own scores.
        upstream={},
        benchmark_digest=version,
    )
    manifest = _build_manifest(options, given, version, design, before)
    write_json(paths.benchmark_manifest(options.name), manifest)
    upstream = {f"examples/{pair.benchmark}": version}
    scores_version = store.write(
        paths,
        LineageStep.now(run_id, "given_scores", SCORES_VERSION),
        SCORES,
        pair,
        given.scores,
        upstream={**upstream, f"file/{options.scores.name}": content},
        settings=settings,
        benchmark_digest=version,
    )
    if known is None and given.has_text:
        step = LineageStep.now(run_id, "split_quality", SPLIT_VERSION)
        known = assess_split(read_built(paths, pair.benchmark), paths, step, assessed=assessed)
    about = collect_pair_facts(
        pair,
        manifest,
        given.examples,
        given.scores,
        paths=paths,
        config=paths.root,
        named_detector=options.headline,
    )
    upstream |= {f"scores/{pair.partition}": scores_version, **(known.versions if known is not None else {})}
    write_findings(
        findings,
        answer_pair(pair, findings.tables, about, run_id),
        pair,
        paths,
        LineageStep.now(run_id, "evaluations", EVALUATIONS_VERSION),
        upstream=upstream,
        benchmark_digest=version,
    )
    build_warehouse(paths, include_text=not options.no_text, config=paths.root)
    summary = build_reports(paths.warehouse, paths.reports, include_text=not options.no_text)
    return Evaluated(pair, given, findings, paths, summary.path)


def keep_scores(scores: pa.Table, options: EvaluateOptions) -> Path:
    """Write a table of scores into the folder of its evaluation, and return the file.

    The file's name holds the digest of the table, so that another table in the same folder replaces nothing.

    Args:
        options: The options of the evaluation. Their file of scores is not read.

    Raises:
        ConfigError: If the options do not fit. Nothing is written then.
        DataError: If the folder holds something else or cannot be written.
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
            raise ConfigError(f"{name!r} cannot be a name: it is empty or holds a bar; choose another")
    if not 0 <= options.calibration < 1:
        raise ConfigError(f"the share for calibration is at least 0 and below 1, not {options.calibration}")
    out = options.folder
    if out.exists() and not out.is_dir():
        raise DataError(f"{out} is a file: name a folder to write into")
    if out.is_dir() and any(out.iterdir()) and not (out / _MARKER).exists():
        raise DataError(f"{out} holds something else already: name a folder of its own")
    if explain_unwritable(out) is not None:
        raise DataError(f"the folder {out} cannot be written, so nothing was evaluated: name another with --out")


def _require_scored_headline(options: EvaluateOptions, scores: pa.Table) -> None:
    """Raise ConfigError where the detector that is to answer has no score."""
    scored = sorted(pc.unique(scores.filter(pc.equal(scores["status"], "ok"))["detector"]).to_pylist())
    if options.headline is None or options.headline in scored:
        return
    hint = did_you_mean(options.headline, scored)
    raise ConfigError(f"--headline: {options.scores} has no score of '{options.headline}'; {hint}")


def _require_comparison(file: Path, external_scores: ExternalScores, findings: Findings) -> None:
    """Raise DataError where nothing was compared with anything: neither two sides nor groups with held-out ones."""
    values = findings.tables["evaluations"]
    tested = set(findings.tables["group_tests"]["label"].to_pylist())
    by_groups = None in tested or (external_scores.names_splits and MEMBER in tested)
    if by_groups or pc.any(pc.is_valid(values["value"])).as_py():
        return
    notes = "".join(f"; {note}" for note in external_scores.notes)
    raise DataError(f"{file}: there is nothing to compare: {_explain_no_findings(external_scores)}{notes}")


def _explain_no_findings(external_scores: ExternalScores) -> str:
    scored = external_scores.scores.filter(pc.equal(external_scores.scores["status"], "ok"))["example_id"]
    texts = external_scores.examples.filter(pc.is_in(external_scores.examples["example_id"], value_set=scored))
    n_members, n_nonmembers = _count(texts, MEMBER), _count(texts, NON_MEMBER)
    counts = {"members": n_members, "non-members": n_nonmembers, "of unknown label": texts["label"].null_count}
    has = " and ".join(f"{n} {what}" for what, n in counts.items() if n)
    if not n_nonmembers:
        hint = (
            "add texts that the model cannot have read (label 0). Labels come from the column label of the file that "
            "was scored"
        )
    elif n_nonmembers == len(texts):
        hint = "add members (label 1), or texts to be audited (label empty)"
    elif external_scores.names_splits:
        hint = "the file's column 'split' leaves one side alone to evaluate; divide them otherwise"
    else:
        hint = "calibration leaves one side alone to evaluate; give --calibration 0, or more texts"
    return f"the {len(texts)} texts with a score are {has}; {hint}"


def _count(examples: pa.Table, label: int) -> int:
    return int(pc.sum(pc.equal(examples["label"], label)).as_py() or 0)


def _require_only_scores(paths: DataPaths, pair: Pair, before: BuiltBenchmark) -> None:
    """Raise DataError where another model has scores there on the earlier benchmark of this name.

    Texts without ids are numbered, so the earlier scores would be read with this file's labels.
    """
    others = (Pair(*partition.split("|", 1)) for partition, _ in store.iterate_partitions(paths, SCORES))
    for other in others:
        if other.benchmark == pair.benchmark and other != pair:
            raise DataError(
                f"{paths.root} holds scores of {other.model} under the name {pair.benchmark}, on other texts or on "
                f"these with --design {before.design} --calibration {before.spec['calibration_fraction']} "
                f"--seed {before.spec['seed']} or another --language: give the same, or another --benchmark or --out"
            )


def _build_manifest(
    options: EvaluateOptions, external_scores: ExternalScores, version: str, design: str, before: BuiltBenchmark | None
) -> Mapping[str, Any]:
    """The facts about the texts, of any model; and by model, what of its file could not be used."""
    # Of the files of earlier evaluations of the same texts.
    left_out_before = before.manifest.get("left_out", {}) if before and before.digest == version else {}
    left_out = {
        "rows": len(external_scores.skipped),
        "reasons": dict(external_scores.unused_counts),
        "notes": list(external_scores.notes),
    }
    return {
        "benchmark": options.name,
        "family": options.name,
        "description": "A table of scores that was handed over.",
        "design": design,
        # Nothing in a table of scores can show how the two sides came about.
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
        "left_out": {**left_out_before, options.model: left_out},
        "checks": [],
    }
