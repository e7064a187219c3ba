"""Sums and moments of powers of the probabilities against float64, for every division of the vocabulary into blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.tables import BETAS, KINDS, P_FLOOR
from audit_pipeline.token_statistics.reductions import sweep
from audit_pipeline.token_statistics.vocabulary_blocks import ComputedLogits, Head, HeadLogits, Logits, Scratch

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
NAMES = sorted(name for kind in KINDS.values() if kind.is_from_logits for name in kind.statistics)
Arrays = Mapping[str, npt.NDArray[np.float64]]


def reduced(logits: Logits, rows: int = 7, columns: int = 11) -> Arrays:
    found = sweep(logits, torch.zeros(len(logits), dtype=torch.long), Scratch(CPU, rows, columns), NAMES)
    assert all(found[name].dtype == torch.float32 for name in NAMES)
    return {name: found[name].numpy().astype(np.float64) for name in NAMES}


def twin(logits: npt.ArrayLike) -> Arrays:
    """Compute the sums and moments by the plain formulas over whole softmaxes in float64."""
    x = np.asarray(logits, dtype=np.float64)
    log_p = x - np.logaddexp.reduce(x, axis=1, keepdims=True)
    p = np.exp(log_p)
    q = [np.exp(beta * log_p - np.logaddexp.reduce(beta * log_p, axis=1, keepdims=True)) for beta in BETAS]
    log_q = [np.log(np.where(one > 0, one, 1.0)) for one in q]
    mean = [(one * log).sum(1) for one, log in zip(q, log_q, strict=True)]
    square = [(one * (log - mu[:, None]) ** 2).sum(1) for one, log, mu in zip(q, log_q, mean, strict=True)]
    return {
        "log_sum_p2": np.log((p**2).sum(1)),
        "log_sum_sqrt_p": np.log(np.sqrt(np.clip(p, P_FLOOR, 1 - P_FLOOR)).sum(1)),
        "log_sum_p_beta": np.stack([np.logaddexp.reduce(beta * log_p, axis=1) for beta in BETAS], axis=1),
        "mean_at_beta": np.stack(mean, axis=1),
        "std_at_beta": np.sqrt(np.stack(square, axis=1)),
    }


def assert_like(ours: Arrays, expected: Arrays, tolerance: float = 2e-5) -> None:
    # An error in log p counts beta times in the log of p^beta.
    times = {name: np.maximum(1.0, BETAS) if expected[name].ndim == 2 else 1.0 for name in NAMES}
    for name in NAMES:
        far = np.abs(ours[name] - expected[name])
        assert (far <= tolerance * times[name] * np.maximum(1.0, np.abs(expected[name]))).all(), (name, far.max())


def test_three_tokens_by_hand() -> None:
    ours = reduced(ComputedLogits(torch.tensor([[0.5, 0.25, 0.25]]).log()))
    assert ours["log_sum_p2"] == pytest.approx([math.log(3 / 8)], abs=1e-6)
    assert ours["log_sum_sqrt_p"] == pytest.approx([math.log(math.sqrt(0.5) + 1.0)], abs=1e-6)
    two = BETAS.index(2.0)
    assert ours["log_sum_p_beta"][0, two] == pytest.approx(math.log(3 / 8), abs=1e-6)
    assert ours["log_sum_p_beta"][0, BETAS.index(0.5)] == pytest.approx(math.log(math.sqrt(0.5) + 1.0), abs=1e-6)
    # q is (4, 1, 1) / 6 at beta 2.
    mean = 2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 6)
    assert ours["mean_at_beta"][0, two] == pytest.approx(mean, abs=1e-6)
    assert ours["std_at_beta"][0, two] == pytest.approx(math.log(4) * math.sqrt(2) / 3, abs=1e-6)


def test_a_certain_token_leaves_the_floor_of_other_tokens() -> None:
    logits = torch.full((2, 5001), -torch.inf)
    logits[0, 0] = logits[1, 5000] = 3.0
    ours = reduced(ComputedLogits(logits), columns=64)
    assert ours["log_sum_sqrt_p"] == pytest.approx([math.log(1.0 + 5000 * 1e-5)] * 2, abs=1e-6)
    for name in ("log_sum_p2", "log_sum_p_beta", "mean_at_beta", "std_at_beta"):
        np.testing.assert_array_equal(ours[name], 0.0)


def test_a_token_on_either_side_of_the_floor() -> None:
    """The floor is 1e-10 of the total probability. The mode is in the last block, so earlier blocks do not know it."""
    below, above = math.log(0.5e-10), math.log(2e-10)
    ours = reduced(ComputedLogits(torch.tensor([[below] * 40 + [above] * 40 + [0.0]])))
    exactly = 1.0 + 40 * 1e-5 + 40 * math.sqrt(2e-10)
    assert ours["log_sum_sqrt_p"] == pytest.approx([math.log(exactly)], abs=3e-7)


@max_examples(20)
@given(
    st.integers(0, 2**31),
    st.integers(1, 12),
    st.integers(1, 130),
    st.sampled_from([0.0, 0.1, 1.0, 5.0, 30.0]),
    st.sampled_from([1, 2, 11, 64, 1024]),
    st.booleans(),
)
def test_random_logits_in_blocks_of_every_size(
    seed: int, n: int, vocabulary: int, scale: float, columns: int, impossible: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, vocabulary, generator=generator) * scale + 5.0
    if impossible:
        logits[:, 1:][torch.rand(n, vocabulary - 1, generator=generator) < 0.5] = -torch.inf
    assert_like(reduced(ComputedLogits(logits), columns=columns), twin(logits.numpy()))


@pytest.mark.parametrize("largest", [None, 24.0, 33.0], ids=["flat", "peaked", "sharp"])
@pytest.mark.parametrize("at", [0, 49_151])
def test_a_whole_vocabulary(largest: float | None, at: int) -> None:
    """The floor adds up to half of the sum. The tolerance is the precision of log p."""
    logits = torch.randn(4, 49_152, generator=torch.Generator().manual_seed(1)) * (2.5 if largest else 0.01)
    if largest:
        logits[:, at] = largest
    ours, expected = reduced(ComputedLogits(logits), 1024, 1024), twin(logits.numpy())
    np.testing.assert_allclose(ours["log_sum_sqrt_p"], expected["log_sum_sqrt_p"], atol=4e-6)
    np.testing.assert_allclose(ours["log_sum_p2"], expected["log_sum_p2"], atol=1e-5)
    assert_like(ours, expected)


@pytest.mark.slow
def test_block_and_row_sizes_do_not_change_the_sums() -> None:
    logits = torch.randn(11, 97, generator=torch.Generator().manual_seed(2)) * 8
    whole = reduced(ComputedLogits(logits), 11, 97)
    for rows, columns in ((1, 1), (7, 16), (10, 96), (64, 1024)):
        assert_like(reduced(ComputedLogits(logits), rows, columns), whole, 2e-6)


def test_a_head_gives_the_sums_of_its_logits() -> None:
    generator = torch.Generator().manual_seed(3)
    head = Head(torch.randn(500, 24, generator=generator), None, 1.0, 30.0)
    logits = HeadLogits(head, torch.randn(9, 24, generator=generator))
    written = logits.block(0, 500, torch.empty(9, 500))
    assert_like(reduced(logits), twin(written.numpy()), 1e-4)


@given(st.integers(0, 2**31), st.sampled_from([0.5, 4.0, 12.0]))
def test_entropies_fall_with_their_order(seed: int, scale: float) -> None:
    logits = torch.randn(5, 120, generator=torch.Generator().manual_seed(seed)) * scale
    sums = reduced(ComputedLogits(logits))["log_sum_p_beta"]
    entropies = sums / (1.0 - np.array(BETAS))
    assert (np.diff(entropies, axis=1) <= 1e-4).all()
    assert (entropies >= -1e-4).all()
    assert (entropies <= math.log(120) + 1e-4).all()
