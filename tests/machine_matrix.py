"""Tests under the conditions of other machines: other instruction sets and thread counts, and a busy machine.

    python tests/machine_matrix.py numbers                      numeric tests under every setting
    python tests/machine_matrix.py numbers --setting oldest     numeric tests under one setting
    python tests/machine_matrix.py waiting                      tests that wait, at nice 19 beside four busy processes

Float results differ in their last digits between instruction sets and thread counts. So a tolerance must follow from
the type and the size of the sums, and hold under every setting. The output is one line per setting, and the failed
tests. Exit code 1 if a test failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

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


def select_files(*patterns: re.Pattern[str]) -> Sequence[str]:
    """Return the test files whose text matches every pattern, in the order of their names."""
    chosen = []
    for file in sorted(TESTS.rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        if all(pattern.search(text) for pattern in patterns):
            chosen.append(str(file))
    return chosen


def run_tests(name: str, files: Sequence[str], environment: Mapping[str, str], niceness: int = 0) -> bool:
    """Run pytest, print its last line behind the name of the setting, and return whether it passed."""
    begin = time.monotonic()
    command = ["nice", "-n", str(niceness), sys.executable, "-m", "pytest", "-m", _QUICK]
    done = subprocess.run(
        [*command, "-n", "auto", "--maxprocesses", "4", "--dist", "loadfile", *files],
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


def run_waiting_tests() -> bool:
    """Run the tests that wait for threads, ports and clocks at nice 19 beside busy processes of the same priority."""
    command = ["nice", "-n", str(_LOWEST_PRIORITY), sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(_N_BUSY_PROCESSES)]
    try:
        return run_tests("nice 19, four busy processes", select_files(_WAITING), {}, niceness=_LOWEST_PRIORITY)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> int:
    """Run the tests that the command line selects. Return 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", choices=["numbers", "waiting"])
    parser.add_argument("--setting", action="append", choices=SETTINGS, help="one setting of numbers; repeatable")
    arguments = parser.parse_args()
    if arguments.tests == "waiting":
        return 0 if run_waiting_tests() else 1
    files = select_files(_COMPUTES, _COMPARES)
    results = [run_tests(name, files, SETTINGS[name]) for name in arguments.setting or SETTINGS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
