"""Products by oneDNN: equal numbers for all shapes, and the choice between oneDNN and torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import SENTENCES, score
from torch.nn import functional

from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.token_statistics import calibration, load_checks
from audit_pipeline.token_statistics import layer_tuning as module
from audit_pipeline.token_statistics.calibration import is_faster_with_onednn
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.layer_tuning import (
    choose_linear_function,
    find_linear_layers,
    use_linear,
)

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
pytestmark = [pytest.mark.usefixtures("one_thread"), needs_onednn]
WEIGHT = torch.randn(300, 300, generator=torch.Generator().manual_seed(1))


@given(
    shape=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    biased=st.booleans(),
    turned=st.booleans(),
    seed=st.integers(0, 99),
)
@torch.inference_mode()
def test_onednn_products_match_float64(
    shape: list[int], size: tuple[int, int], biased: bool, turned: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    outputs, inputs = size
    hidden = torch.randn(*shape, inputs, generator=generator)
    if turned:
        # The same numbers, not one after the other in memory.
        hidden = hidden.transpose(0, -1).contiguous().transpose(0, -1)
    weight = torch.randn(outputs, inputs, generator=generator)
    bias = torch.randn(outputs, generator=generator) if biased else None
    found = choose_linear_function(onednn=True)(hidden, weight, bias)
    expected = hidden.double() @ weight.double().T + (0.0 if bias is None else bias.double())
    assert found.shape == (*shape, outputs)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)


@torch.inference_mode()
def test_other_dtypes_use_the_product_of_torch() -> None:
    hidden, linear = torch.randn(5, 300, dtype=torch.float64), choose_linear_function(onednn=True)
    assert torch.equal(linear(hidden, WEIGHT.double(), None), functional.linear(hidden, WEIGHT.double()))
    assert linear(hidden.bfloat16(), WEIGHT.bfloat16(), None).dtype == torch.bfloat16


@torch.inference_mode()
def test_layers_use_onednn_only_inside_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[torch.Size] = []
    operator = module._find_onednn_operator()
    assert operator is not None

    def counted(hidden: torch.Tensor, *others: object) -> torch.Tensor:
        calls.append(hidden.shape)
        return operator(hidden, *others)

    monkeypatch.setattr(module, "_find_onednn_operator", lambda: counted)
    model, hidden = torch.nn.Sequential(torch.nn.Linear(300, 20), torch.nn.ReLU(), torch.nn.Linear(20, 3)), WEIGHT[:7]
    layers = find_linear_layers(model)
    expected = model(hidden)
    with use_linear(layers, onednn=False):
        model(hidden)
    assert calls == []
    with use_linear(layers, onednn=True):
        torch.testing.assert_close(model(hidden), expected)
    assert calls == [(7, 300), (7, 20)]
    # An error inside the block also restores the layers.
    with pytest.raises(RuntimeError), use_linear(layers, onednn=True):
        model(hidden[:, 1:])
    model(hidden)
    assert len(calls) == 3


def test_the_load_check_uses_the_same_head_as_the_pass(
    tiny: Callable[[str], tuple[TokenizedModel, ForwardPass]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, forward = tiny("llama")
    checked: list[object] = []
    compute_split_logits = load_checks.compute_split_logits

    def seen(forward: ForwardPass, ids: torch.Tensor) -> torch.Tensor:
        checked.append(forward.separate_head)
        return compute_split_logits(forward, ids)

    monkeypatch.setattr(load_checks, "compute_split_logits", seen)
    monkeypatch.setattr(calibration, "is_model_faster_with_onednn", lambda layers: True)
    fresh = ForwardPass(forward.model, model.vocab_size)
    assert fresh._head is not None
    assert fresh._head.called is None
    assert checked == [fresh._head]
    assert checked[0] is fresh._head


@pytest.mark.parametrize(("own", "onednn", "chosen"), [(2.0, 1.0, True), (1.05, 1.0, False), (1.0, 2.0, False)])
def test_the_faster_library_is_chosen(monkeypatch: pytest.MonkeyPatch, own: float, onednn: float, chosen: bool) -> None:
    seconds = cycle([own, onednn])
    monkeypatch.setattr(calibration, "_measure_seconds", lambda work: next(seconds))
    assert is_faster_with_onednn(WEIGHT) is chosen


def test_onednn_is_not_chosen_if_wrong_missing_or_irrelevant(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = cycle([2.0, 1.0])
    monkeypatch.setattr(calibration, "_measure_seconds", lambda work: next(seconds))
    assert not is_faster_with_onednn(WEIGHT.bfloat16())
    assert not is_faster_with_onednn(WEIGHT[:100])
    monkeypatch.setattr(
        module, "_find_onednn_operator", lambda: lambda hidden, weight, *others: 1.01 * (hidden @ weight.T)
    )
    assert not is_faster_with_onednn(WEIGHT)
    monkeypatch.setattr(module, "_find_onednn_operator", lambda: None)
    assert not is_faster_with_onednn(WEIGHT)


@pytest.mark.parametrize("family", ["llama", "gemma2", "mamba"])
def test_statistics_with_onednn_match_those_of_torch(
    tiny: Callable[[str], tuple[TokenizedModel, ForwardPass]], family: str
) -> None:
    model, forward = tiny(family)
    other = ForwardPass(forward.model, model.vocab_size, replace(forward.checked, onednn=True))
    texts = ["a", SENTENCES[0], " ".join(SENTENCES * 2)]
    whole, alone = score(model, other, texts, budget=200), [score(model, other, [text])[0] for text in texts]
    for expected, among, single in zip(score(model, forward, texts), whole, alone, strict=True):
        for name in ("logprob", "mean", "std", "max_logprob"):
            assert np.abs(expected[name] - among[name]).max() < 1e-4
            assert np.abs(single[name] - among[name]).max() < 1e-4
