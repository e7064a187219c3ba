"""Benches run, with settings so small that their figures say nothing: what they are is told in docs/measurements.md.

Not here are those that take minutes at their smallest, or need a control or a source that is built before.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

BENCH = Path(__file__).parent.parent.parent / "bench"
RUNS = {
    "bench_ask_matching": "--words 1000 --answers 5",
    "bench_corpus_tests": "orders --data-sets 20",
    "bench_coverage": "--repeats 10",
    "bench_decisions": "--sets 4",
    "bench_evaluate": "--shapes 200x2 --formats .csv",
    "bench_fine_tuning": "--conversations 6 --epochs 1",
    "bench_infilling": "--words 16 --steps 1 --texts 2 --repeats 1",
    "bench_overlap": "--megabytes 0.2 --texts 20 --repeats 1",
    "bench_overlap_evidence": "--each 4 --documents 100",
    "bench_prefix": "--words 16 --shots 1 --tokens 100",
    "bench_sweep_memory": "--vocabularies 2048 --positions 64",
    "bench_token_counts": "--megabytes 0.05 --repeats 1",
    "bench_token_statistics": "--texts 2 --words 16 --repeats 1 --dtypes float32 bfloat16",
    "bench_warehouse": "--rows 2000 --models 2 --benchmarks 2 --texts 20 --runs 1 --repeats 1",
    "gpu_check": "--texts 20 --repeats 1",
}
JUDGED = 1
"""The exit code of a bench whose figures are not as they should be: on so little data they need not be."""


@pytest.mark.parametrize("name", sorted(RUNS))
def test_a_bench_runs(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(BENCH / f"{name}.py"), *RUNS[name].split()],
        env={**os.environ, "CORPUS_AUDIT_DATA": str(tmp_path / "data"), "OMP_NUM_THREADS": "1"},
        cwd=BENCH.parent,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in (0, JUDGED), done.stderr
    assert done.stdout, "it tells something"
