"""`corpus-audit evaluate` on a table of scores that was handed over: how long it takes, and its memory.

Run by hand: ``python bench/bench_evaluate.py [--shapes 10000x30 300000x1] [--formats .csv .jsonl .parquet]``.

A file has a row per text and detector: id, group of ten texts, label, text of a dozen words, score. One line per run of
the command in a process of its own: texts x detectors, format, seconds in all, the most memory.
What belongs here: time and memory of the command. What does not: correctness (tests/).
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


def scores_of(texts: int, detectors: int) -> pa.Table:
    """Scores of ``texts`` texts by each of ``detectors``, half of the groups members, which score a little higher."""
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
    """The table in the format that the file's name says."""
    with duckdb.connect() as connection:
        connection.register("scores", table)
        connection.execute(f"COPY (FROM scores) TO '{path}' (FORMAT {path.suffix[1:].removesuffix('l')})")
    return path


def measured(arguments: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds in all, and the most memory in MB, of one run of the command."""
    began = time.perf_counter()
    run = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(run.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)} ended with {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--shapes",
        nargs="+",
        default=["10000x30", "300000x1"],
        help="Numbers of texts and detectors, as TEXTSxDETECTORS.",
    )
    parser.add_argument("--formats", nargs="+", default=[".csv", ".jsonl", ".parquet"])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"{'texts':>9} {'detectors':>9} {'':8} {'in all':>9} {'memory':>9}")
        for shape in asked.shapes:
            texts, detectors = map(int, shape.split("x"))
            table = scores_of(texts, detectors)
            for suffix in asked.formats:
                file = write_scores(folder / f"{shape}{suffix}", table)
                command = [sys.executable, "-c", "from audit_pipeline.cli import main; main()", "evaluate"]
                command += ["--scores", str(file), "--out", str(folder / f"{shape}-{suffix[1:]}")]
                seconds, memory = measured(command, {**os.environ, "CORPUS_AUDIT_DATA": str(folder / "data")})
                print(f"{texts:9,} {detectors:9} {suffix:8} {seconds:7.1f} s {memory:6,.0f} MB", flush=True)


if __name__ == "__main__":
    main()
