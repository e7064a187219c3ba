"""Benchmark of `corpus-audit evaluate` on a user's table of scores: time and memory.

Run by hand: ``python bench/bench_evaluate.py [--shapes 10000x30 300000x1] [--formats .csv .jsonl .parquet]``.

A file has one row per text and detector: id, group of ten texts, label, text of a dozen words, and score. The command
runs in a process of its own. Each run prints one line: numbers of texts and detectors, format, total seconds and peak
memory.

This script measures time and memory. Correctness is tested in tests/.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from tiny_models import SENTENCES

_WORDS = np.array(" ".join(SENTENCES).split())
_TEXTS_OF_A_GROUP = 10


def draw_scores(texts: int, detectors: int) -> pa.Table:
    """Draw scores of ``texts`` texts by ``detectors`` detectors. Half of the groups are members, with higher scores."""
    chosen = np.random.default_rng(texts)
    groups = np.arange(texts) // _TEXTS_OF_A_GROUP
    labels = groups % 2
    words = [" ".join([*chosen.choice(_WORDS, 12), str(one)]) for one in range(texts)]
    of_row = np.tile(np.arange(texts), detectors)
    return pa.table(
        {
            "example_id": pa.array([f"text-{one}" for one in range(texts)]).take(pa.array(of_row)),
            "group": pa.array([f"book {one}" for one in groups.tolist()]).take(pa.array(of_row)),
            "label": labels[of_row],
            "detector": pa.array(np.repeat([f"detector {one}" for one in range(detectors)], texts)),
            "score": chosen.normal(0.3 * labels[of_row]),
            "text": pa.array(words).take(pa.array(of_row)),
        }
    )


def write_scores(path: Path, table: pa.Table) -> Path:
    """Write the table in the format of the file's suffix."""
    with duckdb.connect() as connection:
        connection.register("scores", table)
        connection.execute(f"COPY (FROM scores) TO '{path}' (FORMAT {path.suffix[1:].removesuffix('l')})")
    return path


def measure_command(arguments: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Run a command and return its time in seconds and its peak memory in MB."""
    began = time.perf_counter()
    run = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(run.pid, 0)
    if status:
        raise SystemExit(f"the command ended with exit code {os.waitstatus_to_exitcode(status)}: {' '.join(arguments)}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--shapes",
        nargs="+",
        default=["10000x30", "300000x1"],
        help="Numbers of texts and detectors, as TEXTSxDETECTORS.",
    )
    parser.add_argument(
        "--formats", nargs="+", default=[".csv", ".jsonl", ".parquet"], help="Suffixes of the file formats."
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"{'texts':>9} {'detectors':>9} {'format':8} {'time':>9} {'memory':>9}")
        for shape in asked.shapes:
            texts, detectors = map(int, shape.split("x"))
            table = draw_scores(texts, detectors)
            for suffix in asked.formats:
                file = write_scores(folder / f"{shape}{suffix}", table)
                command = [sys.executable, "-c", "from audit_pipeline.cli import main; main()", "evaluate"]
                command += ["--scores", str(file), "--out", str(folder / f"{shape}-{suffix[1:]}")]
                environment = {**os.environ, "CORPUS_AUDIT_DATA": str(folder / "data")}
                seconds, memory = measure_command(command, environment)
                print(f"{texts:9,} {detectors:9} {suffix:8} {seconds:7.1f} s {memory:6,.0f} MB", flush=True)


if __name__ == "__main__":
    main()
