"""Adapters on the embedded model: the adapter that was trained on the audited texts is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from audit_pipeline.store.paths import PROJECT_ROOT, DataPaths
from audit_pipeline.warehouse.query import query_warehouse

pytest.importorskip("peft")
pytestmark = pytest.mark.slow

FOUND = ("stands out", "found")


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("proof") / "adapters"
    script = PROJECT_ROOT / "bench" / "bench_adapters.py"
    path = os.pathsep.join([str(PROJECT_ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, script, folder, "--texts", "10", "--calibrating", "0"]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}, check=True)
    return DataPaths(folder / "data").warehouse


def test_only_texts_of_the_training_are_found(warehouse: Path) -> None:
    rows = query_warehouse(warehouse, "SELECT series, step, auroc, sign, reproduced FROM series_findings").to_pylist()
    known, others = ([row for row in rows if row["series"] == name] for name in ("known", "others"))
    assert [row["step"] for row in known] == [row["step"] for row in others] == [1, 3, 6, 12]
    aurocs = [row["auroc"] for row in known]
    assert aurocs == sorted(aurocs)
    assert aurocs[-1] > 0.95
    assert known[-1]["sign"] in FOUND
    assert known[-1]["reproduced"] > 0
    assert not [row for row in others if row["sign"] in FOUND or row["reproduced"]]
    base = query_warehouse(warehouse, "SELECT sign FROM current_pair_answers WHERE model = 'smollm2-135m'").to_pylist()
    assert [row["sign"] in FOUND for row in base] == [False]


def test_documents_are_found_from_a_step_on(warehouse: Path) -> None:
    rows = query_warehouse(warehouse, "FROM series_documents WHERE found_by = 'word for word'").to_pylist()
    assert {row["series"] for row in rows} == {"known"}
    assert all(row["first_step"] > 1 for row in rows)
    assert any(row["found_at"] == row["since_first"] for row in rows)
