"""The number of threads that a model uses."""

from __future__ import annotations

import os
import subprocess
import sys

import joblib
import pytest
import torch

from audit_pipeline.token_statistics.layer_tuning import ONE_THREAD_BELOW, set_threads

WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")

pytestmark = pytest.mark.usefixtures("one_thread")


def test_threads_match_the_usable_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    torch.set_num_threads(2)
    assert set_threads() == 1 == torch.get_num_threads()
    monkeypatch.delenv("LOKY_MAX_CPU_COUNT")
    assert set_threads() == joblib.cpu_count(only_physical_cores=True) == torch.get_num_threads()


def test_a_small_model_gets_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(joblib, "cpu_count", lambda **options: 2)
    assert [set_threads(ONE_THREAD_BELOW - 1), set_threads(ONE_THREAD_BELOW), set_threads()] == [1, 2, 2]


def test_the_users_thread_setting_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    torch.set_num_threads(2)
    assert set_threads() == 2


@pytest.mark.parametrize(
    ("module", "set_by_user", "expected"),
    [
        ("audit_pipeline.cli", {}, "PASSIVE 0 0"),
        pytest.param("audit_pipeline.definitions", {}, "PASSIVE 0 0", marks=pytest.mark.slow),
        ("corpus_audit", {"GOMP_SPINCOUNT": "300"}, "PASSIVE 300 0"),
    ],
)
def test_waiting_threads_sleep_by_default(module: str, set_by_user: dict[str, str], expected: str) -> None:
    """torch reads the variables when it is loaded, so every entry point of ours sets them before."""
    look = (
        "import os, sys\n"
        "class Look:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'torch':\n"
        "            print(os.environ['OMP_WAIT_POLICY'], os.environ['GOMP_SPINCOUNT'], os.environ['KMP_BLOCKTIME'])\n"
        "            raise SystemExit\n"
        "sys.meta_path.insert(0, Look())\n"
        f"import {module}, torch\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in WAITING} | set_by_user
    done = subprocess.run([sys.executable, "-c", look], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected
