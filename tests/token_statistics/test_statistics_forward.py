"""The forward pass against the bare model in float64. No score depends on the other texts of a batch."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples
from tiny_models import (
    SENTENCES,
    Tiny,
    assert_like_twin,
    config_of,
    forward_of,
    save_model,
    score,
    tokenized,
    twin_logits,
    twin_of_logits,
)
from transformers import AutoModelForCausalLM

from audit_pipeline.errors import ModelError
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.tokens import encode

pytestmark = pytest.mark.usefixtures("one_thread")

FAMILIES = ["llama", "gpt_neox", "gemma2", "mamba", "granite", "phi3"]
WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})


@pytest.mark.parametrize("family", FAMILIES)
def test_statistics_equal_the_bare_models(tiny: Tiny, family: str) -> None:
    model, forward = tiny(family)
    texts = ["a", "!!", SENTENCES[0], SENTENCES[4], " ".join(SENTENCES * 2), "🙂"]
    for text, ours in zip(texts, score(model, forward, texts, budget=200), strict=True):
        assert_like_twin(model, forward, text, ours)


texts_of_words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=60).map(" ".join)


@pytest.mark.parametrize("family", FAMILIES)
@max_examples(12)
@given(text=texts_of_words, others=st.lists(texts_of_words | st.sampled_from(["!", "a"]), max_size=6), data=st.data())
def test_no_score_depends_on_the_batch(tiny: Tiny, family: str, text: str, others: list[str], data: Any) -> None:
    model, forward = tiny(family)
    place = data.draw(st.integers(0, len(others)))
    budget = data.draw(st.sampled_from([1, 100, 1 << 14]))
    [alone] = score(model, forward, [text])
    among = score(model, forward, [*others[:place], text, *others[place:]], budget)[place]
    for name in ("logprob", "mean", "std", "max_logprob"):
        assert np.abs(alone[name] - among[name]).max() < 1e-4


def test_a_final_softcap_is_respected(tiny: Tiny) -> None:
    model, forward = tiny("gemma2")
    cap = forward.model.config.final_logit_softcapping
    [ours] = score(model, forward, [SENTENCES[0]], 1 << 14, "logits")
    assert np.abs(ours["logits"]).max() <= cap
    assert np.abs(ours["logits"]).max() > 0.8 * cap, "the cap must bite for the comparison with the twin to mean it"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("scaling", [1.1, 8.0])
def test_scaled_logits_are_not_computed_by_the_bare_head(tmp_path: Path, dtype: str, scaling: float) -> None:
    folder = save_model(tmp_path / "m", "granite", logits_scaling=scaling)
    model = tokenized(folder, tmp_path, dtype=dtype)
    forward = forward_of(model)
    [ours] = score(model, forward, [SENTENCES[0]])
    [encoded] = encode(model, [SENTENCES[0]])
    twin = twin_of_logits(twin_logits(model, forward, encoded), encoded.token_id.tolist())
    np.testing.assert_allclose(ours["logprob"], twin["logprob"], atol=1e-4 if dtype == "float32" else 0.05)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_an_attention_with_other_logits_than_the_default_is_refused(tmp_path: Path, dtype: str) -> None:
    # Eager, Falcon divides its position biases by the root of the heads' size a second time.
    folder = save_model(tmp_path / "m", "falcon", alibi=True)
    model = tokenized(folder, tmp_path / "data", dtype=dtype, attention="eager")
    with pytest.raises(ModelError, match=r"'attention: eager' .* by up to [\d.]+ nats .* default \(sdpa\)") as error:
        forward_of(model)
    assert "\n" not in str(error.value)
    default = forward_of(tokenized(folder, tmp_path / "data", dtype=dtype))
    assert default.model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        *(
            (family, "float32")
            for family in ("llama", "gpt_neox", "gemma2", "gemma3", "mistral", "opt", "bloom", "gpt_neo")
        ),
        *(("llama", dtype) for dtype in ("bfloat16", "float16")),
        *(("gemma2", dtype) for dtype in ("bfloat16", "float16")),
    ],
)
def test_an_attention_that_differs_by_rounding_is_accepted(tmp_path: Path, family: str, dtype: str) -> None:
    folder = save_model(tmp_path / "m", family)
    forward = forward_of(tokenized(folder, tmp_path / "data", dtype=dtype, attention="eager"))
    assert forward.model.config._attn_implementation == "eager"


def test_longrope_windows_of_different_encodings_share_no_batch(tmp_path: Path) -> None:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4,
        "original_max_position_embeddings": 32,
    }
    folder = save_model(tmp_path / "m", "phi3", rope_parameters=rope, original_max_position_embeddings=32)
    model = tokenized(folder, tmp_path)
    forward = forward_of(model)
    assert forward.length_step == 32
    texts = [SENTENCES[0], SENTENCES[1] + SENTENCES[2], "a"]
    lengths = [len(text.token_id) + 1 for text in encode(model, texts)]
    assert lengths[0] <= 32 < lengths[1]
    for text, ours in zip(texts, score(model, forward, texts), strict=True):
        assert_like_twin(model, forward, text, ours)


def test_a_model_that_padding_changes_gets_batches_of_equal_length(tiny: Tiny) -> None:
    model, forward = tiny("llama")

    class Bidirectional(torch.nn.Module):
        """Adds the mean of all embeddings to every position: every token sees the padding."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = forward.model
            self.config = self.inner.config

        def forward(self, input_ids: torch.Tensor, use_cache: bool = False) -> Any:
            output = self.inner(input_ids=input_ids, use_cache=use_cache)
            shift = self.inner.get_input_embeddings()(input_ids).mean(dim=(1, 2), keepdim=True)
            output.logits = output.logits * (1 + 10 * shift)
            return output

    disturbed = ForwardPass(Bidirectional(), model.vocab_size)
    assert disturbed.equal_lengths
    assert not forward.equal_lengths
    texts = [SENTENCES[0], SENTENCES[3], SENTENCES[0] + "!", "a"]
    for text, ours in zip(texts, score(model, disturbed, texts), strict=True):
        assert_like_twin(model, disturbed, text, ours)


class Noisy(torch.nn.Module):
    """A model whose logits change by .038 with the shape of the batch, like a 7 B model in bfloat16 on a GPU.

    With ``leak``, every position depends on the end of its sequence. With ``among_others``, all tokens of the
    batch change the logits, like the group sizes of experts.
    """

    def __init__(self, inner: Any, leak: float, *, among_others: bool = False) -> None:
        super().__init__()
        self.inner, self.config = inner, inner.config
        self._leak, self._among_others = leak, among_others

    def forward(self, input_ids: torch.Tensor, **options: Any) -> Any:
        output = self.inner(input_ids=input_ids, **options)
        seed = hash((*input_ids.shape, int(input_ids.sum()) if self._among_others else 0)) % 2**31
        noise = torch.randn(output.logits.shape, generator=torch.Generator().manual_seed(seed))
        seen = input_ids[:, -1:].unsqueeze(2).sign()
        output.logits = output.logits * (1 + 0.038 * noise + self._leak * seen).to(output.logits.dtype)
        return output


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rounding_between_batch_shapes_does_not_count_as_padding(
    tiny_folder: Callable[[str], Path], tmp_path: Path, dtype: str
) -> None:
    model = tokenized(tiny_folder("llama"), tmp_path, dtype=dtype)
    inner = forward_of(model).model
    noisy = ForwardPass(Noisy(inner, 0.0), model.vocab_size)
    assert (noisy.equal_lengths, noisy.packed, noisy.shared_prefix) == (False, True, True)
    assert ForwardPass(Noisy(inner, 0.02), model.vocab_size).equal_lengths, "less than the noise, and no noise"


def test_dependence_on_other_texts_counts_as_rounding(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    model = tokenized(tiny_folder("llama"), tmp_path, dtype="bfloat16")
    inner = forward_of(model).model
    assert not ForwardPass(Noisy(inner, 0.0, among_others=True), model.vocab_size).equal_lengths
    assert ForwardPass(Noisy(inner, 0.4, among_others=True), model.vocab_size).equal_lengths


def test_bfloat16_weights_are_reduced_in_float32(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    model = tokenized(tiny_folder("llama"), tmp_path, dtype="bfloat16")
    forward = forward_of(model)
    [ours] = score(model, forward, [SENTENCES[0]])
    [encoded] = encode(model, [SENTENCES[0]])
    twin = twin_of_logits(twin_logits(model, forward, encoded), encoded.token_id.tolist())
    # One rounding of bf16 logits, none of the log-softmax: far below the 0.1 of a bf16 log-softmax.
    assert np.abs(ours["logprob"] - twin["logprob"]).mean() < 0.02
    assert np.exp(ours["max_logprob"].astype(float)).max() <= 1.0


def test_scoring_does_not_change_the_model(tiny: Tiny) -> None:
    model, forward = tiny("gpt_neox")
    before = {name: parameter.clone() for name, parameter in forward.model.named_parameters()}
    first = score(model, forward, [SENTENCES[0]])[0]["logprob"]
    score(model, forward, list(SENTENCES))
    assert all(torch.equal(before[name], parameter) for name, parameter in forward.model.named_parameters())
    np.testing.assert_array_equal(first, score(model, forward, [SENTENCES[0]])[0]["logprob"])


def test_tiny_models_give_varied_scores(tiny: Tiny) -> None:
    for family in FAMILIES:
        model, forward = tiny(family)
        [row] = score(model, forward, [SENTENCES[0]])
        assert row["std"].max() > 0.05, family
        assert np.ptp(row["logprob"]) > 0.5, family
        assert re.fullmatch(r"[a-z0-9_]+", forward.model.config.model_type)
    assert AutoModelForCausalLM.from_config(config_of("llama", 383)).num_parameters() < 100_000
