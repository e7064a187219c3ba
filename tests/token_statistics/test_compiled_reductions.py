"""The compiled reductions against the sweep, compiled for a processor."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import SENTENCES, score

from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.tables import KINDS
from audit_pipeline.token_statistics import load_checks
from audit_pipeline.token_statistics.compiled_reductions import CompiledReductions
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.reductions import sweep
from audit_pipeline.token_statistics.vocabulary_blocks import ComputedLogits, Head, Reduced, Scratch

pytestmark = [
    # The compiler takes half a minute for all statistics of one vocabulary.
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a processor"),
    pytest.mark.usefixtures("one_thread"),
]

CPU = torch.device("cpu")
ALL = {name for kind in KINDS.values() for name in kind.statistics}


@pytest.mark.parametrize(
    ("vocabulary", "dtype"),
    [(vocabulary, dtype) for vocabulary in (17, 49_152, 151_936) for dtype in (torch.float32, torch.bfloat16)],
)
def test_compiled_statistics_equal_the_sweep(vocabulary: int, dtype: torch.dtype) -> None:
    """Seven rows are reduced five at a time, so the last block is padded."""
    generator = torch.Generator().manual_seed(vocabulary)
    # Flat, ordinary and sharp logits, one certain token, impossible tokens, and logits far from 0.
    scale = torch.tensor([0.0, 0.1, 1.0, 5.0, 30.0, 1.0, 1.0]).unsqueeze(1)
    logits = torch.randn(7, vocabulary, generator=generator) * scale
    logits[4, 3] = 1000.0
    logits[5, ::3] = -torch.inf
    logits[6] -= 10.0
    logits = logits.to(dtype)
    target = torch.tensor([0, 1, 2, 3, 3, 3, vocabulary - 1])
    found = CompiledReductions(5)(ComputedLogits(logits), target, Scratch(CPU), ALL)
    expected = sweep(ComputedLogits(logits), target, Scratch(CPU), ALL)
    assert set(found) == set(expected)
    for name, values in expected.items():
        ours, reference = found[name], values
        assert (ours.dtype, ours.shape) == (values.dtype, values.shape)
        if name == "topk_id":
            # Equal logits may come in any order.
            ours, reference = logits.gather(1, ours.long()), logits.gather(1, reference.long())
        # The sweep keeps the roots of probabilities in half precision.
        tolerance = 1e-4 if name == "log_sum_sqrt_p" else 1e-5
        torch.testing.assert_close(ours, reference, rtol=tolerance, atol=tolerance)


def test_the_load_check_tries_compiled_reductions(
    tiny: Callable[[str], tuple[TokenizedModel, ForwardPass]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, forward = tiny("llama")
    assert load_checks._is_compiled_reduction_equal(forward)
    compute = CompiledReductions.__call__

    def skew(*given: Any) -> Reduced:
        return {**(found := compute(*given)), "mean": found["mean"] * 1.001}

    monkeypatch.setattr(CompiledReductions, "__call__", skew)
    assert not load_checks._is_compiled_reduction_equal(forward)

    def fail(*given: Any) -> Reduced:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(CompiledReductions, "__call__", fail)
    assert not load_checks._is_compiled_reduction_equal(forward)


def test_a_checked_model_uses_compiled_reductions(tiny: Callable[[str], tuple[TokenizedModel, ForwardPass]]) -> None:
    model, forward = tiny("llama")
    compiled = ForwardPass(forward.model, model.vocab_size, replace(forward.checked, compiled=True))
    for ours, expected in zip(score(model, compiled, SENTENCES), score(model, forward, SENTENCES), strict=True):
        for name in KINDS["base"].statistics:
            np.testing.assert_allclose(ours[name], expected[name], rtol=1e-5, atol=1e-5)


def test_the_head_is_multiplied_in_blocks_of_equal_row_count() -> None:
    generator = torch.Generator().manual_seed(0)
    head = Head(torch.randn(17, 4, generator=generator), torch.randn(17, generator=generator), 0.5, 3.0)
    hidden, target = torch.randn(7, 4, generator=generator), torch.arange(7)
    found = CompiledReductions(5)(head.logits(hidden), target, Scratch(CPU), ("rank",))
    expected = sweep(head.logits(hidden), target, Scratch(CPU), ("rank",))
    torch.testing.assert_close(found["logprob"], expected["logprob"], rtol=1e-5, atol=1e-5)
    assert torch.equal(found["rank"], expected["rank"])
