"""What a model is run with: threads."""

from __future__ import annotations

import joblib
import pytest
import torch

from audit_pipeline.token_statistics.layers import use_threads

pytestmark = pytest.mark.usefixtures("one_thread")


def test_as_many_threads_as_cores_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    torch.set_num_threads(2)
    assert use_threads() == 1 == torch.get_num_threads()
    monkeypatch.delenv("LOKY_MAX_CPU_COUNT")
    assert use_threads() == joblib.cpu_count(only_physical_cores=True) == torch.get_num_threads()


def test_what_the_user_set_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    torch.set_num_threads(2)
    assert use_threads() == 2
