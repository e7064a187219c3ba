"""Benchmark of the time until a command has its result: for the first text, for later texts, and from the cache.

    python bench/bench_startup.py [--repeats 3]

The script times whole commands in data folders of its own. The model is smollm2-135m, and a text has a dozen words.
Every line is the median of the repeats. The first text is scored once per repeat, in an empty data folder. *Model in
memory* is the time from the start of the process until the weights are loaded. bench_token_statistics.py measures the
passes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

MODEL = "smollm2-135m"
CHECK = ("instrument_check_exposed", "instrument_check")
_IN_MEMORY = f"""
import sys, time
from audit_pipeline.models.config import load_models
from audit_pipeline.models.tokenized_model import load_tokenized
from audit_pipeline.store.paths import DataPaths
paths = DataPaths.from_environment()
model = load_tokenized(load_models()["{MODEL}"], paths)
from audit_pipeline.models.weights import load_weights
load_weights(model, "cpu")
"""


def measure_seconds(command: list[str], environment: Mapping[str, str]) -> float:
    """Run a command and return its time in seconds. Raise CalledProcessError if it fails."""
    started = time.perf_counter()
    subprocess.run(command, env=dict(environment), check=True, capture_output=True)
    return time.perf_counter() - started


def write_text(folder: Path, number: int) -> Path:
    path = folder / f"text{number}.txt"
    path.write_text(f"The quick brown fox number {number} jumps over the lazy dog and goes home.\n", encoding="utf-8")
    return path


def build_score_command(file: Path, out: Path) -> list[str]:
    program = str(Path(sys.executable).with_name("corpus-audit"))
    return [program, "score", "--model", MODEL, "--texts", str(file), "--out", str(out)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats: int = parser.parse_args().repeats
    measured: dict[str, list[float]] = {}
    program = str(Path(sys.executable).with_name("corpus-audit"))
    with tempfile.TemporaryDirectory(prefix="corpus-audit-startup-") as name:
        root = Path(name)
        for repeat in range(repeats):
            environment = {**os.environ, "CORPUS_AUDIT_DATA": str(root / f"data{repeat}")}
            first, second = write_text(root, 2 * repeat), write_text(root, 2 * repeat + 1)
            runs = {
                "score, first text": build_score_command(first, root / "a.parquet"),
                "score, second text": build_score_command(second, root / "b.parquet"),
                "model in memory, not the first start": [sys.executable, "-c", _IN_MEMORY],
                "score, text in the cache": build_score_command(first, root / "a.parquet"),
            }
            for what, command in runs.items():
                measured.setdefault(what, []).append(measure_seconds(command, environment))
        audit = [program, "audit", "--model", CHECK[0], "--benchmark", CHECK[1]]
        measure_seconds(audit, environment)
        scores = root / "scores.csv"
        rows = (f"{(index * 37) % 101 / 100 + 0.1 * (index % 2)},{index % 2}" for index in range(400))
        scores.write_text("score,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
        evaluate = [program, "evaluate", "--scores", str(scores), "--out", str(root / "found")]
        measure_seconds(evaluate, environment)
        for _ in range(repeats):
            measured.setdefault("audit, everything up to date", []).append(measure_seconds(audit, environment))
            measured.setdefault("evaluate, 400 scores again", []).append(measure_seconds(evaluate, environment))
    for what, found in measured.items():
        spread = f"{min(found):.1f} to {max(found):.1f}"
        print(f"{what:45} {statistics.median(found):6.1f} s   ({spread})")


if __name__ == "__main__":
    main()
