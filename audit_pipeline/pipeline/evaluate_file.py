"""`corpus-audit evaluate`: findings, warehouse and report of a table of scores, without a model and without Dagster."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.benchmarks.assessed_split import SPLIT_VERSION, KnownSplit, assess_split, read_known_split
from audit_pipeline.benchmarks.build import count_examples
from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, read_built
from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.pipeline.stages.evaluations import EVALUATIONS_VERSION, collect_pair_context, write_findings
from audit_pipeline.pipeline.stages.warehouse import build_warehouse
from audit_pipeline.report.files import build_reports
from audit_pipeline.report.pair_answer import answer_pair
from audit_pipeline.scoring.given_scores import NEAR_DUPLICATE, GivenScores, read_given, read_scored_texts
from audit_pipeline.scoring.pair_scores import SCORES_VERSION
from audit_pipeline.splits.assessment import compute_assessed_split
from audit_pipeline.statistics.claims import WHOEVER_RAN_THIS
from audit_pipeline.statistics.evaluate_options import EvaluateOptions
from audit_pipeline.statistics.findings import Findings, compute_findings
from audit_pipeline.statistics.sides import relabel_for_comparison
from audit_pipeline.store import store
from audit_pipeline.store.files import write_json
from audit_pipeline.store.integrity import file_sha256
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths, is_writable, make_private, name_from_path_segment
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
    given: GivenScores
    findings: Findings
    paths: DataPaths
    report: Path


def evaluate_file(options: EvaluateOptions) -> Evaluated:
    """Evaluate the scores in a file and write tables, warehouse and reports into the folder that is asked for.

    The tables lie there as they do in a data folder. What an earlier evaluation wrote there stays as history. Raises
    DataError for a file that cannot be used or holds nothing to compare, and for a folder that holds something else,
    ConfigError for options that do not fit.
    """
    _check(options)
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
    given = read_given(
        options.scores,
        pair,
        run_id,
        calibration=options.calibration,
        seed=options.seed,
        language=options.language,
        texts=texts,
    )
    _check_headline(options, given.scores)
    benchmark = _given_benchmark(options, given, paths)
    known = benchmark.known_split(paths)
    assessed = (
        known.assessed
        if known
        else compute_assessed_split(relabel_for_comparison(given.examples), benchmark.design, options.language)
    )
    if given.has_text and (reason := assessed.control.reason) is not None:
        hint = "; --calibration 0 leaves it all texts" if "calibration" in given.examples["split"].to_pylist() else ""
        given = replace(given, notes=(*given.notes, f"{reason}{hint}"))
    findings = compute_findings(given.scores, given.examples, pair, assessed, run_id)
    _require_comparison(options.scores, given, findings)
    _refuse_other_texts(paths, pair, benchmark, given.examples)
    make_private(paths.root)
    write_json(paths.root / _MARKER, {"written_by": "corpus-audit evaluate"})
    manifest = _write_benchmark(benchmark, options, given, paths, run_id)
    upstream = {f"examples/{pair.benchmark}": benchmark.version}
    scores_version = store.write(
        paths,
        LineageStep.now(run_id, "given_scores", SCORES_VERSION),
        SCORES,
        pair,
        given.scores,
        upstream={**upstream, f"file/{options.scores.name}": content},
        benchmark_digest=benchmark.version,
        settings=settings,
    )
    if known is None and given.has_text:
        step = LineageStep.now(run_id, "split_quality", SPLIT_VERSION)
        known = assess_split(read_built(paths, pair.benchmark), paths, step, assessed=assessed)
    about = collect_pair_context(
        pair, manifest, given.examples, given.scores, config=paths.root, named_detector=options.headline
    )
    upstream |= {f"scores/{pair.partition}": scores_version, **(known.versions if known is not None else {})}
    write_findings(
        findings,
        answer_pair(pair, findings.tables, about, run_id),
        pair,
        paths,
        LineageStep.now(run_id, "evaluations", EVALUATIONS_VERSION),
        upstream=upstream,
        benchmark_digest=benchmark.version,
    )
    build_warehouse(paths, include_text=not options.no_text, config=paths.root)
    summary = build_reports(paths.warehouse, paths.reports, include_text=not options.no_text)
    return Evaluated(pair, given, findings, paths, summary.path)


@dataclass(frozen=True)
class _GivenBenchmark:
    """The texts of a file of scores as a benchmark. ``before``: the one of the same name that an earlier evaluation
    wrote into the folder; None where none did."""

    version: str
    design: str
    before: BuiltBenchmark | None

    @property
    def is_as_before(self) -> bool:
        """Whether the earlier evaluation was of the same texts, members and non-members having come about alike."""
        return self.before is not None and (self.before.digest, self.before.design) == (self.version, self.design)

    def known_split(self, paths: DataPaths) -> KnownSplit | None:
        """What an earlier file with scores of the same texts left: how far they differ without a model."""
        return read_known_split(self.before, paths) if self.before is not None and self.is_as_before else None


def _given_benchmark(options: EvaluateOptions, given_scores: GivenScores, paths: DataPaths) -> _GivenBenchmark:
    design = options.design or ("selected" if _count(given_scores.examples, MEMBER) else "unlabelled")
    before = read_built(paths, options.name) if paths.benchmark_manifest(options.name).exists() else None
    return _GivenBenchmark(table_version(given_scores.examples), design, before)


def _write_benchmark(
    benchmark: _GivenBenchmark, options: EvaluateOptions, given_scores: GivenScores, paths: DataPaths, run_id: str
) -> Mapping[str, Any]:
    """Write the texts and their manifest, and return the manifest."""
    store.write(
        paths,
        LineageStep.now(run_id, "given_examples", CODE_VERSION),
        EXAMPLES,
        options.name,
        given_scores.examples,
        data_version=benchmark.version,
        # Several files may score the same texts, each with its own scores.
        upstream={},
        benchmark_digest=benchmark.version,
    )
    manifest = _build_manifest(benchmark, options, given_scores)
    write_json(paths.benchmark_manifest(options.name), manifest)
    return manifest


def _check(options: EvaluateOptions) -> None:
    out = options.folder
    for name in (options.model, options.name):
        if not name or "|" in name:
            raise ConfigError(f"{name!r} cannot be a name: it is empty or holds a bar; choose another")
    if not 0 <= options.calibration < 1:
        raise ConfigError(f"the share for calibration is at least 0 and below 1, not {options.calibration}")
    if out.exists() and not out.is_dir():
        raise DataError(f"{out} is a file: name a folder to write into")
    if out.is_dir() and any(out.iterdir()) and not (out / _MARKER).exists():
        raise DataError(f"{out} holds something else already: name a folder of its own")
    if not is_writable(out):
        raise DataError(f"the folder {out} cannot be written, so nothing was evaluated: name another with --out")


def _check_headline(options: EvaluateOptions, scores: pa.Table) -> None:
    """Raise ConfigError where the detector that is to answer has no score."""
    scored = sorted(pc.unique(scores.filter(pc.equal(scores["status"], "ok"))["detector"]).to_pylist())
    if options.headline is None or options.headline in scored:
        return
    near = difflib.get_close_matches(options.headline, scored, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"it has scores of: {', '.join(scored)}"
    raise ConfigError(f"--headline: {options.scores} has no score of '{options.headline}'; {hint}")


def _require_comparison(file: Path, given_scores: GivenScores, findings: Findings) -> None:
    """Raise DataError where nothing was compared with anything: neither two sides nor groups with held-out ones."""
    values = findings.tables["evaluations"]
    tested = set(findings.tables["group_tests"]["label"].to_pylist())
    by_groups = None in tested or (given_scores.names_splits and MEMBER in tested)
    if by_groups or pc.any(pc.is_valid(values["value"])).as_py():
        return
    notes = "".join(f"; {note}" for note in given_scores.notes)
    raise DataError(f"{file}: there is nothing to compare: {_explain_no_findings(given_scores)}{notes}")


def _explain_no_findings(given_scores: GivenScores) -> str:
    scored = given_scores.scores.filter(pc.equal(given_scores.scores["status"], "ok"))["example_id"]
    texts = given_scores.examples.filter(pc.is_in(given_scores.examples["example_id"], value_set=scored))
    n_members, n_nonmembers = _count(texts, MEMBER), _count(texts, NON_MEMBER)
    n_unknown = len(texts) - n_members - n_nonmembers
    if not n_nonmembers:
        has = [f"{n} {what}" for n, what in ((n_members, "members"), (n_unknown, "of unknown label")) if n]
        return (
            f"of the {len(texts)} texts with a score none is a non-member (label 0), they are {' and '.join(has)}; "
            "add texts that the model cannot have read. Labels come from the column label of the file that was scored"
        )
    if not n_members and not n_unknown:
        return (
            f"all {len(texts)} texts with a score are non-members (label 0); add members (label 1), or texts to be "
            "audited (label empty)"
        )
    which = (
        "the file's column 'split' leaves" if given_scores.names_splits else "what is set aside for calibration leaves"
    )
    hint = "divide them otherwise" if given_scores.names_splits else "give --calibration 0, or more texts"
    return f"{which} one side alone to evaluate, of {n_members} members and {n_nonmembers} non-members; {hint}"


def _count(examples: pa.Table, label: int) -> int:
    return int(pc.sum(pc.equal(examples["label"], label)).as_py() or 0)


def _are_the_same_texts(old: pa.Table, new: pa.Table) -> bool:
    columns = ["example_id", "label", "group", "text"]
    by_id = [("example_id", "ascending")]
    return bool(old.select(columns).sort_by(by_id).equals(new.select(columns).sort_by(by_id)))


def _refuse_other_texts(paths: DataPaths, pair: Pair, benchmark: _GivenBenchmark, examples: pa.Table) -> None:
    """Raise DataError where another model has scores there on another benchmark of this name.

    It is another one if its texts are others (texts without ids are numbered, so the earlier scores would be read with
    this file's labels), and if members and non-members came about otherwise.
    """
    before = benchmark.before
    if before is None or benchmark.is_as_before:
        return
    others = {
        Pair(*name_from_path_segment(folder.name.removeprefix("partition=")).split("|", 1))
        for folder in paths.table("scores").glob("partition=*")
    }
    models = sorted(other.model for other in others if other.benchmark == pair.benchmark and other != pair)
    if not models:
        return
    there = f"{paths.root} holds scores of {models[0]} on"
    if before.digest == benchmark.version:
        raise DataError(
            f"{there} {pair.benchmark} with the design '{before.design}', and this is to be '{benchmark.design}': give "
            "the same --design, or another --benchmark or --out"
        )
    if not _are_the_same_texts(before.examples, examples):
        raise DataError(f"{there} other texts under the name {pair.benchmark}: give another --benchmark or --out")
    raise DataError(
        f"{there} these texts under the name {pair.benchmark}, divided with --calibration "
        f"{before.spec['calibration_fraction']} --seed {before.spec['seed']}, or described otherwise: give the same "
        "--calibration, --seed and --language, or another --benchmark or --out"
    )


def _build_manifest(benchmark: _GivenBenchmark, options: EvaluateOptions, given_scores: GivenScores) -> dict[str, Any]:
    """The facts about the texts, of any model; and by model, what of its file could not be used."""
    before = benchmark.before
    # Of the files of earlier evaluations of the same texts.
    left_out_before = before.manifest.get("left_out", {}) if before and before.digest == benchmark.version else {}
    left_out = {
        "rows": len(given_scores.skipped),
        "reasons": dict(given_scores.left_out),
        "notes": list(given_scores.notes),
    }
    return {
        "benchmark": options.name,
        "family": options.name,
        "description": "A table of scores that was handed over.",
        "design": benchmark.design,
        # Nothing in a table of scores can show how the two sides came about.
        "design_stated_by": WHOEVER_RAN_THIS,
        "words": None,
        "digest": benchmark.version,
        "spec": {
            "builder": "given",
            "unit": _UNIT,
            "near_duplicate_threshold": NEAR_DUPLICATE,
            "calibration_fraction": options.calibration,
            "seed": options.seed,
        },
        "counts": count_examples(given_scores.examples),
        "left_out": {**left_out_before, options.model: left_out},
        "checks": [],
    }
