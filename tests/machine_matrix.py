"""Tests under the conditions of other machines: other instruction sets and thread counts, and a busy machine.

    python tests/machine_matrix.py numbers                      numeric tests under every setting
    python tests/machine_matrix.py numbers --setting oldest     numeric tests under one setting
    python tests/machine_matrix.py waiting                      tests that wait, at nice 19 beside four busy processes

Float results differ in their last digits between instruction sets and thread counts. So a tolerance must follow from
the type and the size of the sums, and hold under every setting. `numbers` prints for each setting how many tests passed
and the tests that used most of their tolerance. Exit code 1 if a test failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from closest_comparisons import OUTPUT_VARIABLE

TESTS = Path(__file__).parent

SETTINGS: Mapping[str, Mapping[str, str]] = {
    "as-it-is": {},
    "aten-default": {"ATEN_CPU_CAPABILITY": "default"},
    "aten-avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "aten-avx512": {"ATEN_CPU_CAPABILITY": "avx512"},
    "onednn-sse41": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "onednn-avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "onednn-avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    "mkl-avx2": {"MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "two-threads": {"OMP_NUM_THREADS": "2"},
    "three-threads": {"OMP_NUM_THREADS": "3"},
    # The oldest processor that torch runs on: it differs most from the machine that wrote a test.
    "oldest": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
}

# Files of tests that compute with torch or scikit-learn. The settings do not reach float64 sums of numpy and Python.
_COMPUTES = re.compile(r"\b(?:torch|tiny_models|tiny_folder|real_model|sklearn)\b")
_COMPARES = re.compile(r"\bapprox\(|allclose|assert_close|array_equal|torch\.equal")
_WAITING = re.compile(r"\b(?:threading|socket|subprocess|Popen|monotonic|perf_counter|time\.sleep|timeout)\b|_server\b")
_QUICK = "not slow and not browser and not tutorial"
_N_BUSY_PROCESSES = 4
_LOWEST_PRIORITY = 19
_N_CLOSEST = 5


def select_files(*patterns: re.Pattern[str]) -> Sequence[str]:
    """Return the test files whose text matches every pattern, in the order of their names."""
    chosen = []
    for file in sorted(TESTS.rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        if all(pattern.search(text) for pattern in patterns):
            chosen.append(str(file))
    return chosen


def run_numeric_tests(name: str, environment: Mapping[str, str]) -> bool:
    """Run the numeric tests under one setting and print the closest comparisons; return whether all passed."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as shares:
        plugin = {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]), OUTPUT_VARIABLE: shares.name}
        options = ["-p", "closest_comparisons", "-m", _QUICK]
        passed = run_tests(name, [*options, *select_files(_COMPUTES, _COMPARES)], {**plugin, **environment})
        records = [json.loads(line) for line in Path(shares.name).read_text(encoding="utf-8").splitlines()]
    records.sort(key=lambda record: record["share"], reverse=True)
    for record in records[:_N_CLOSEST]:
        print(f"    {record['share']:6.1%} of its tolerance: {record['test']}")
    return passed


def run_waiting_tests() -> bool:
    """Run the tests that wait for threads, ports and clocks at nice 19 beside busy processes."""
    with run_busy_processes():
        options = ["-m", _QUICK, *select_files(_WAITING)]
        return run_tests("nice 19, four busy processes", options, {}, niceness=_LOWEST_PRIORITY)


def run_tests(name: str, options: Sequence[str], environment: Mapping[str, str], niceness: int = 0) -> bool:
    """Run pytest, print its last line behind the name of the setting, and return whether it passed."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-n", "auto", "--maxprocesses", "4", "--dist", "loadfile", *options]
    done = subprocess.run(
        ["nice", "-n", str(niceness), *command],
        cwd=TESTS.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.strip().splitlines() or [done.stderr.strip()]
    print(f"{name}: {lines[-1]} ({time.monotonic() - begin:.0f} s)", flush=True)
    for line in lines:
        if line.startswith(("FAILED", "ERROR")):
            print(f"    {line}", flush=True)
    return done.returncode == 0


@contextmanager
def run_busy_processes() -> Iterator[None]:
    """Keep all cores busy, at the priority of the tests: beside a higher one they would get a hundredth of a core."""
    command = ["nice", "-n", str(_LOWEST_PRIORITY), sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(_N_BUSY_PROCESSES)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> int:
    """Run what the command line asks for; return 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", choices=["numbers", "waiting"])
    parser.add_argument("--setting", action="append", choices=SETTINGS, help="one setting of numbers; repeatable")
    arguments = parser.parse_args()
    if arguments.tests == "waiting":
        return 0 if run_waiting_tests() else 1
    names = arguments.setting or list(SETTINGS)
    results = [run_numeric_tests(name, SETTINGS[name]) for name in names]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
