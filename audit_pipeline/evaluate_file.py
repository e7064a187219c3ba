"""`corpus-audit evaluate`: findings, warehouse and report of a table of scores, without a model and without Dagster.

What belongs here: the order of read, find, write and publish, in a folder of its own. What does not: the file's columns
(given_scores.py), statistics (findings.py), the command's options (cli/).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from audit_pipeline.benchmarks.build import count_examples, read_manifest
from audit_pipeline.contracts import MEMBER, Pair, digest
from audit_pipeline.data_folder import require_writable
from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.evaluation.claims import Design as DesignName
from audit_pipeline.findings import Design, Findings, find
from audit_pipeline.given_scores import GivenScores, read_given
from audit_pipeline.lineage import Step, keep, table_version
from audit_pipeline.paths import DataPaths, unsegment
from audit_pipeline.stages import assess_split, write_findings
from audit_pipeline.tables import write_json
from audit_pipeline.warehouse.build import build_warehouse
from audit_pipeline.warehouse.report import build_reports

CODE_VERSION = "1"
_MARKER = "evaluated_scores.json"
# As benchmarks have them where their entry says nothing.
_UNIT, _NEAR_DUPLICATE = "whitespace", 0.5


@dataclass(frozen=True)
class Evaluated:
    """What a table of scores came to, and where it lies."""

    pair: Pair
    given: GivenScores
    findings: Findings
    paths: DataPaths
    report: Path


@dataclass(frozen=True)
class Asked:
    """What the user says of the table.

    ``design``: how the two sides came about (evaluation/claims.py); None: selected, or unlabelled where no text is a
    member.
    """

    model: str
    benchmark: str
    design: DesignName | None = None
    language: str = "en"
    calibration: float = 0.5
    seed: int = 0


def evaluate_file(file: Path, out: Path, asked: Asked, *, include_text: bool = True) -> Evaluated:
    """Evaluate the scores in ``file`` and write tables, warehouse and reports into the folder ``out``.

    The tables lie there as they do in a data folder. What an earlier evaluation wrote there stays as history. Raises
    DataError for a file that cannot be used, and for a folder that holds something else.
    """
    _check(out, asked)
    paths = DataPaths(out.expanduser().resolve())
    pair = Pair(asked.benchmark, asked.model)
    content = hashlib.sha256(_bytes(file)).hexdigest()
    # One evaluation of one content with the same words is one run: repeated, it replaces itself.
    run_id = (
        f"evaluate-{digest(content, pair.partition, asked.design, asked.language, asked.calibration, asked.seed)[:16]}"
    )
    given = read_given(file, pair, run_id, calibration=asked.calibration, seed=asked.seed, language=asked.language)
    design = asked.design or ("selected" if MEMBER in given.examples["label"].to_pylist() else "unlabelled")
    findings = find(given.scores, given.examples, pair, Design(design, asked.language), run_id)

    version = table_version(given.examples)
    _refuse_other_texts(paths, pair, version)
    write_json(paths.root / _MARKER, {"file": str(file), "sha256": content, "run_id": run_id})
    examples = Step.now(run_id, "given_examples", CODE_VERSION)
    keep(
        paths,
        examples,
        given.examples,
        table="examples",
        partition=pair.benchmark,
        data_version=version,
        upstream={f"file/{file.name}": content},
        benchmark_digest=version,
    )
    write_json(paths.benchmark_manifest(pair.benchmark), _manifest(file, content, version, asked, design, given))
    scores = Step.now(run_id, "given_scores", CODE_VERSION)
    scores_version = table_version(given.scores)
    upstream = {f"examples/{pair.benchmark}": version, f"file/{file.name}": content}
    keep(
        paths,
        scores,
        given.scores,
        table="scores",
        partition=pair.partition,
        data_version=scores_version,
        upstream=upstream,
        benchmark_digest=version,
    )
    write_findings(
        findings,
        pair,
        paths,
        Step.now(run_id, "evaluations", CODE_VERSION),
        upstream={f"examples/{pair.benchmark}": version, f"scores/{pair.partition}": scores_version},
        benchmark_digest=version,
    )
    if given.has_text:
        assess_split(pair.benchmark, paths, Step.now(run_id, "split_quality", CODE_VERSION))
    build_warehouse(paths, include_text=include_text, config=paths.root)
    summary = build_reports(paths.warehouse, paths.reports, include_text=include_text)
    return Evaluated(pair, given, findings, paths, summary.path)


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error


def _check(out: Path, asked: Asked) -> None:
    for name in (asked.model, asked.benchmark):
        if not name or "|" in name:
            raise ConfigError(f"{name!r} cannot be a name: it is empty or holds a bar; choose another")
    if not 0 <= asked.calibration < 1:
        raise ConfigError(f"the share for calibration is at least 0 and below 1, not {asked.calibration}")
    if out.exists() and not out.is_dir():
        raise DataError(f"{out} is a file: name a folder to write into")
    if out.is_dir() and any(out.iterdir()) and not (out / _MARKER).exists():
        raise DataError(f"{out} holds something else already: name a folder of its own")
    require_writable(out, "name another with --out")


def _refuse_other_texts(paths: DataPaths, pair: Pair, version: str) -> None:
    """Raise DataError where another model has scores there on a benchmark of this name that is of other texts.

    Texts without ids are numbered, so the earlier scores would be read with this file's labels.
    """
    if not paths.benchmark_manifest(pair.benchmark).exists():
        return
    if read_manifest(paths, pair.benchmark)["digest"] == version:
        return
    others = {
        Pair(*unsegment(folder.name.removeprefix("partition=")).split("|", 1))
        for folder in paths.table("scores").glob("partition=*")
    }
    models = sorted(other.model for other in others if other.benchmark == pair.benchmark and other != pair)
    if models:
        raise DataError(
            f"{paths.root} holds scores of {models[0]} on other texts under the name {pair.benchmark}: "
            "give another --benchmark or --out"
        )


def _manifest(
    file: Path, content: str, version: str, asked: Asked, design: str, given: GivenScores
) -> dict[str, object]:
    notes: Sequence[str] = given.notes
    return {
        "benchmark": asked.benchmark,
        "family": asked.benchmark,
        "description": f"Scores handed over in {file.name}.",
        "design": design,
        "words": None,
        "digest": version,
        "spec": {
            "builder": "given",
            "unit": _UNIT,
            "near_duplicate_threshold": _NEAR_DUPLICATE,
            "calibration_fraction": asked.calibration,
            "seed": asked.seed,
        },
        "source_versions": {f"file/{file.name}": content},
        "origin": f"the file {file.name}",
        "counts": count_examples(given.examples),
        "skipped": {
            "rows": len(given.skipped),
            "first": [{"row": one.location, "reason": one.reason} for one in given.skipped[:20]],
        },
        "notes": list(notes),
        "checks": [],
    }
