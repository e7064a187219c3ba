"""`corpus-audit score` on files of many short texts: when it first says something, how long it takes, its memory.

Run by hand: ``python bench/bench_score_file.py [--rows 2000 50000]``.

A tiny random model, so that what is measured is everything but the model; every file is scored twice, the
second time from the cache. One line per run: rows, seconds to the first line, seconds in all, the most memory.
What belongs here: time and memory of the command. What does not: correctness (tests/).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from tiny_models import SENTENCES, save_model

_WORDS = " ".join(SENTENCES).split()


def write_texts(path: Path, rows: int) -> Path:
    chosen = random.Random(rows)
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            text = " ".join([*chosen.choices(_WORDS, k=chosen.randint(5, 15)), str(number)])
            file.write(json.dumps({"text": text, "label": number % 2}) + "\n")
    return path


def measured(arguments: list[str], environment: dict[str, str]) -> tuple[float, float, float]:
    """Seconds to the first line, seconds in all, and the most memory in MB, of one run of the command."""
    began = time.perf_counter()
    run = subprocess.Popen(arguments, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment)
    assert run.stderr is not None
    run.stderr.readline()
    first = time.perf_counter() - began
    run.stderr.read()
    _, status, usage = os.wait4(run.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)} ended with {os.waitstatus_to_exitcode(status)}")
    return first, time.perf_counter() - began, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[2000, 50_000])
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = save_model(folder / "llama")
        print(f"{'rows':>9} {'':8} {'first line':>10} {'in all':>9} {'memory':>9}")
        for count in rows:
            texts = write_texts(folder / f"{count}.jsonl", count)
            environment = {**os.environ, "CORPUS_AUDIT_DATA": str(folder / f"data-{count}")}
            command = [
                sys.executable,
                "-c",
                "from audit_pipeline.cli import main; main()",
                "score",
                "--model",
                str(model),
            ]
            command += ["--texts", str(texts), "--out", str(folder / "scores.parquet")]
            for what in ("computed", "cached"):
                first, seconds, memory = measured(command, environment)
                print(f"{count:9,} {what:8} {first:8.1f} s {seconds:7.0f} s {memory:6,.0f} MB", flush=True)


if __name__ == "__main__":
    main()
