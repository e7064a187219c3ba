"""The reductions over the vocabulary against a float64 twin, for logits that are difficult in float32."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples
from tiny_models import twin_of_logits

from audit_pipeline.tables import DECODINGS, MEASURED
from audit_pipeline.token_statistics import reductions
from audit_pipeline.token_statistics.reductions import sweep
from audit_pipeline.token_statistics.vocabulary_blocks import (
    ComputedLogits,
    Head,
    HeadLogits,
    Reduced,
    Scratch,
    begin_fetch,
)

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")


ALL = tuple(measured.name for measured in MEASURED)


def reduce(logits: torch.Tensor, target: list[int], *also: str) -> Reduced:
    return sweep(ComputedLogits(logits), torch.tensor(target), Scratch(CPU, 7, 11), {*ALL, *also})


def assert_like_twin(logits: torch.Tensor, target: list[int], tolerance: float = 2e-5) -> None:
    ours, twin = reduce(logits, target), twin_of_logits(logits.float().numpy(), target)
    for name in ("logprob", "mean", "std", "max_logprob"):
        values = ours[name].numpy()
        assert values.dtype == np.float32
        scale = np.maximum(1.0, np.abs(np.where(np.isfinite(twin[name]), twin[name], 1.0)))
        with np.errstate(invalid="ignore"):  # -inf - -inf, equal by the first comparison
            same = (values == twin[name]) | (np.abs(values - twin[name]) <= tolerance * scale)
        assert same.all(), (name, values, twin[name])
    for name in ("argmax_id", "rank"):
        assert ours[name].dtype == torch.int32
        np.testing.assert_array_equal(ours[name].numpy(), twin[name])


@max_examples(60)
@given(st.integers(0, 2**31), st.integers(1, 70), st.integers(2, 300), st.sampled_from([0.0, 0.1, 1.0, 5.0, 30.0]))
def test_random_logits(seed: int, n: int, vocabulary: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, vocabulary, generator=generator) * scale
    assert_like_twin(logits, torch.randint(vocabulary, (n,), generator=generator).tolist())


@given(
    st.lists(
        st.floats(-100, 100, width=32) | st.just(float("-inf")) | st.sampled_from([-3e38, -1e9, -1e4]),
        min_size=1,
        max_size=12,
    ),
    st.floats(-50, 50, width=32),
)
def test_extreme_and_impossible_tokens(others: list[float], anchor: float) -> None:
    logits = torch.tensor([[anchor, *others]])
    for target in range(logits.shape[1]):
        assert_like_twin(logits, [target], 1e-4)


def test_impossible_tokens_weigh_nothing() -> None:
    half = reduce(torch.tensor([[0.0, 0.0, -torch.inf]]), [0])
    assert half["mean"].item() == pytest.approx(np.log(0.5), abs=1e-6)
    assert half["std"].item() == pytest.approx(0.0, abs=1e-6)
    impossible = reduce(torch.tensor([[0.0, 0.0, -torch.inf]]), [2])
    assert impossible["logprob"].item() == -np.inf
    assert impossible["rank"].item() == 2
    assert torch.isfinite(impossible["mean"]).all()


def test_one_certain_token() -> None:
    certain = reduce(torch.tensor([[0.0, -torch.inf, -torch.inf], [1000.0, 0.0, 0.0]]), [0, 0])
    assert certain["logprob"].tolist() == [0.0, 0.0]
    assert certain["mean"].tolist() == [0.0, 0.0]
    assert certain["std"].tolist() == [0.0, 0.0]
    assert certain["max_logprob"].tolist() == [0.0, 0.0]


def test_flat_distributions_have_no_spread() -> None:
    flat = reduce(torch.full((3, 4915), 7.25), [0, 5, 4914])
    # The sweep adds blocks of 11 tokens to the sum. Each addition rounds once.
    rounding = 4915 / 11 * np.finfo(np.float32).eps
    np.testing.assert_allclose(flat["logprob"].numpy(), -np.log(4915), atol=rounding)
    np.testing.assert_allclose(flat["mean"].numpy(), -np.log(4915), atol=2 * rounding)
    # E[x^2] - E[x]^2 in float32 would leave about 1e-3 here.
    assert flat["std"].max() < 1e-4
    assert flat["rank"].tolist() == [0, 0, 0]


def test_ties_share_the_better_rank() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.0, 1.0]] * 5)
    assert reduce(logits, [0, 1, 2, 3, 4])["rank"].tolist() == [3, 0, 0, 2, 3]
    assert set(reduce(logits, [0, 1, 2, 3, 4])["argmax_id"].tolist()) <= {1, 2}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_reduced_in_float32(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(2)
    logits = (torch.randn(40, 500, generator=generator) * 6).to(dtype)
    assert_like_twin(logits, torch.randint(500, (40,), generator=generator).tolist())


def test_topk_is_sorted_and_equals_the_twin() -> None:
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(50, 200, generator=generator) * 3
    ours = reduce(logits, [0] * 50, "topk")
    assert ours["topk_id"].shape == (50, 20)
    log_p = torch.log_softmax(logits.double(), -1).numpy()
    order = np.argsort(-log_p, axis=1)[:, :20]
    np.testing.assert_array_equal(ours["topk_id"].numpy(), order)
    np.testing.assert_allclose(ours["topk_logprob"].numpy(), np.take_along_axis(log_p, order, 1), atol=1e-5)
    assert (np.diff(ours["topk_logprob"].numpy(), axis=1) <= 0).all()
    np.testing.assert_array_equal(ours["topk_id"][:, 0].numpy(), ours["argmax_id"].numpy())
    assert "topk_id" not in reduce(logits, [0] * 50)


def test_every_declared_statistic_is_computed_in_its_type() -> None:
    ours = reduce(torch.randn(4, 30, generator=torch.Generator().manual_seed(6)), [0, 1, 2, 3])
    assert set(ours) == {measured.name for measured in MEASURED}
    for field in MEASURED:
        assert ours[field.name].shape == (4,)
        assert ours[field.name].numpy().dtype == field.type.value_type.to_pandas_dtype(), field.name


def test_topk_mass_and_collision_match_the_plain_formula() -> None:
    generator = torch.Generator().manual_seed(7)
    for scale in (0.01, 1.0, 30.0):
        logits = torch.randn(20, 203, generator=generator) * scale
        ours = reduce(logits, [0] * 20, "log_mass_40", "log_sum_p2")
        p = np.sort(torch.softmax(logits.double(), -1).numpy(), axis=1)
        np.testing.assert_allclose(ours["log_mass_40"].numpy(), np.log(p[:, -40:].sum(axis=1)), atol=2e-5)
        np.testing.assert_allclose(ours["log_sum_p2"].numpy(), np.log((p**2).sum(axis=1)), atol=2e-5)


def test_only_requested_statistics_are_computed() -> None:
    logits = ComputedLogits(torch.zeros(2, 5))
    assert set(sweep(logits, torch.tensor([0, 1]), Scratch(CPU), {"logprob"})) == {"logprob"}
    assert set(sweep(logits, torch.tensor([0, 1]), Scratch(CPU), {"mean"})) == {"logprob", "mean", "std"}


def head_and_hidden(
    seed: int, vocabulary: int, dtype: torch.dtype, softcap: float | None, scale: float, with_bias: bool
) -> HeadLogits:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(vocabulary, 24, generator=generator)
    bias = torch.randn(vocabulary, generator=generator) if with_bias else None
    head = Head(weight.to(dtype), bias if bias is None else bias.to(dtype), scale, softcap)
    return HeadLogits(head, torch.randn(33, 24, generator=generator).to(dtype))


def written_out(logits: HeadLogits) -> torch.Tensor:
    """Return the logits [n, V] of the whole product, in the model's dtype."""
    whole = torch.nn.functional.linear(logits.hidden, logits.head.weight, logits.head.bias) * logits.head.scale
    cap = logits.head.softcap
    return torch.tanh(whole / cap) * cap if cap else whole


@max_examples(60)
@given(
    st.integers(0, 2**31),
    st.integers(2, 400),
    st.sampled_from([None, 5.0, 30.0]),
    st.sampled_from([1.0, 0.125, 4.0]),
    st.booleans(),
)
def test_a_head_in_blocks_equals_the_whole_head(
    seed: int, vocabulary: int, softcap: float | None, scale: float, with_bias: bool
) -> None:
    logits = head_and_hidden(seed, vocabulary, torch.float32, softcap, scale, with_bias)
    target = torch.randint(vocabulary, (33,), generator=torch.Generator().manual_seed(seed))
    ours = sweep(logits, target, Scratch(CPU, 10, 64), {*ALL, "logits"})
    twin = twin_of_logits(written_out(logits).numpy(), target.tolist())
    for name in ("logprob", "mean", "std", "max_logprob"):
        np.testing.assert_allclose(ours[name].numpy(), twin[name], atol=1e-4, rtol=2e-5, err_msg=name)
    # Two logits that differ only in the last bit may change places.
    whole = written_out(logits)
    own = whole.gather(1, target.unsqueeze(1))
    least, most = (whole > own + 1e-4).sum(1), (whole > own - 1e-4).sum(1)
    assert (least <= ours["rank"]).all()
    assert (ours["rank"] <= most).all()
    best = whole.gather(1, ours["argmax_id"].long().unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(best, whole.amax(1), atol=1e-4, rtol=0)
    torch.testing.assert_close(ours["logits"].float(), whole, atol=0.05, rtol=2e-3)


@pytest.mark.parametrize("softcap", [None, 30.0])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_logit_of_the_target_equals_the_logit_in_its_block(dtype: torch.dtype, softcap: float | None) -> None:
    """The two are bitwise equal, so that tokens tied with the target do not count as larger."""
    logits = head_and_hidden(3, 1000, dtype, softcap, 0.5, True)
    target = torch.randint(1000, (33,), generator=torch.Generator().manual_seed(4))
    block = torch.empty(33, 1000)
    block = logits.block(0, 1000, block)
    assert torch.equal(logits.of(target), block.gather(1, target.unsqueeze(1)).squeeze(1))


def test_a_head_in_half_precision_rounds_as_the_model_does() -> None:
    logits = head_and_hidden(5, 500, torch.bfloat16, 30.0, 1.0, False)
    target = torch.randint(500, (33,), generator=torch.Generator().manual_seed(6))
    ours = sweep(logits, target, Scratch(CPU, 33, 128), ALL)
    twin = twin_of_logits(written_out(logits).float().numpy(), target.tolist())
    for name in ("logprob", "mean", "std", "max_logprob"):
        np.testing.assert_allclose(ours[name].numpy(), twin[name], atol=1e-4, err_msg=name)
    np.testing.assert_array_equal(ours["rank"].numpy(), twin["rank"])


@pytest.mark.parametrize("positions", [0, 1, 2, 129, 130])
def test_the_best_token_has_rank_0_for_any_number_of_positions(positions: int) -> None:
    """The product for the target has another shape than its block, which may change the last bit."""
    generator = torch.Generator().manual_seed(positions)
    head = Head(torch.randn(3000, 576, generator=generator), None, 1.0, None)
    logits = HeadLogits(head, torch.randn(positions, 576, generator=generator))
    best = sweep(logits, torch.zeros(positions, dtype=torch.long), Scratch(CPU), ALL)["argmax_id"].long()
    found = sweep(logits, best, Scratch(CPU), ALL)
    assert found["rank"].tolist() == [0] * positions
    assert torch.equal(found["logprob"], found["max_logprob"])
    second = sweep(logits, (best + 1) % 3000, Scratch(CPU), ALL)
    assert (second["rank"] >= 1).all()


@pytest.mark.parametrize("positions", [0, 1, 9])
def test_fetched_arrays_equal_the_reduced_tensors(positions: int) -> None:
    logits = torch.randn(positions, 50, generator=torch.Generator().manual_seed(1))
    logits[:, 3] = -torch.inf
    reduced = reduce(logits, [3] * positions, "topk", "logits")
    arrays = begin_fetch(reduced)()
    assert list(arrays) == list(reduced)
    for name, values in reduced.items():
        expected = values.numpy()
        assert (arrays[name].dtype, arrays[name].shape) == (expected.dtype, expected.shape), name
        np.testing.assert_array_equal(arrays[name], expected)


def drawn_by_brute_force(row: np.ndarray, token: int) -> tuple[list[float], float]:
    """Return a token's log-probability under each decoding in float64, and the distance of the nearest mass to 0.9."""
    found, nearest = [], 1.0
    order = np.argsort(-row, kind="stable")
    for temperature, drawn_from in DECODINGS:
        p = np.exp((row - row.max()) / temperature)
        p /= p.sum()
        if drawn_from == "top-p 0.9":
            masses = np.cumsum(p[order])
            size = int(np.argmax(masses >= 0.9)) + 1
            nearest = min(nearest, float(np.abs(masses - 0.9).min()))
        else:
            size = {"all": len(row), "top-k 40": min(40, len(row))}[drawn_from]
        is_drawn = row[token] >= row[order[size - 1]] and p[token] > 0
        found.append(float(np.log(p[token] / p[order[:size]].sum())) if is_drawn else -np.inf)
    return found, nearest


@max_examples(60)
@given(
    st.integers(0, 2**31), st.integers(1, 9), st.sampled_from([3, 39, 41, 300, 700]), st.sampled_from([0.1, 1.0, 8.0])
)
def test_decodings_match_a_brute_force_computation(seed: int, n: int, vocabulary: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, vocabulary, generator=generator) * scale
    # Some tokens are tied, some cannot be.
    logits[:, ::5] = logits[:, :1].clone()
    logits[:, 1::7] = -torch.inf
    likely = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator).squeeze(1)
    for target in (likely, torch.randint(vocabulary, (n,), generator=generator)):
        ours = reduce(logits, target.tolist(), "log_p_drawn")["log_p_drawn"]
        assert (ours.shape, ours.dtype) == ((n, len(DECODINGS)), torch.float32)
        for row, token, values in zip(logits.double().numpy(), target.tolist(), ours.numpy(), strict=True):
            expected, nearest = drawn_by_brute_force(row, token)
            # A sum that differs from 0.9 only in the last bit may count either way.
            if nearest > 1e-6:
                np.testing.assert_allclose(values, expected, atol=2e-5, rtol=2e-6)


def test_a_large_nucleus_is_ranked_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(1)
    # Nuclei of thousands of tokens, of about a thousand, and of a few.
    logits = torch.randn(6, 20_000, generator=generator) * torch.tensor([0.3, 0.3, 3.0, 3.0, 9.0, 9.0]).unsqueeze(1)
    target = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator).squeeze(1)
    ours = reduce(logits, target.tolist(), "log_p_drawn")["log_p_drawn"]
    for row, token, values in zip(logits.double().numpy(), target.tolist(), ours.numpy(), strict=True):
        np.testing.assert_allclose(values, drawn_by_brute_force(row, token)[0], atol=2e-5, rtol=2e-6)
    # Blocks, and what is ranked first, make no difference.
    monkeypatch.setattr(reductions, "_RANKED", (1 << 30,))
    whole = sweep(ComputedLogits(logits), target, Scratch(CPU, 2, 8192), {"log_p_drawn"})["log_p_drawn"]
    torch.testing.assert_close(ours, whole, atol=1e-5, rtol=0)


def test_tokens_tied_with_the_last_token_can_be_drawn() -> None:
    flat = reduce(torch.zeros(1, 47), [46], "log_p_drawn")["log_p_drawn"][0].tolist()
    # The nucleus has 43 and the top-k has 40 of 47 equal tokens. Each of the 47 tokens can be drawn.
    sizes = {"all": 47, "top-k 40": 40, "top-p 0.9": 43}
    assert flat == pytest.approx([-np.log(sizes[drawn_from]) for _, drawn_from in DECODINGS], abs=1e-6)
    # A token with 0.9 by itself is the nucleus: it is certain, and no other can be drawn.
    sharp = reduce(torch.tensor([[5.0, 0.0, 0.0], [5.0, 0.0, 0.0]]), [0, 1], "log_p_drawn")["log_p_drawn"]
    of_nucleus = [number for number, (_, drawn_from) in enumerate(DECODINGS) if drawn_from == "top-p 0.9"]
    assert sharp[0, of_nucleus].tolist() == pytest.approx([0.0] * 5, abs=1e-6)
    assert sharp[1, of_nucleus].tolist() == [-np.inf] * 5
