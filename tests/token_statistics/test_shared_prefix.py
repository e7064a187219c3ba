"""Texts after a shared prefix, whose keys and values are computed once, equal runs of prefix and text together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from quick import slow_but
from tiny_models import CONTEXT, SENTENCES, Tiny, forward_of, never, save_model, tokenized, twin_logits
from torch.utils._python_dispatch import TorchDispatchMode

from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics import shared_prefix
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.prefixed_texts import compute_prefixed, plan_prefixed, read_prefixed
from audit_pipeline.token_statistics.tokens import EncodedText, Prefix, Window, encode, encode_prefix, put_after

pytestmark = pytest.mark.usefixtures("one_thread")

# GPT-Neo looks back in the cache by places, BLOOM and Mamba have no attention that a prefix could be handed to.
SHARED = ("llama", "gpt_neox", "gemma2", "granite", "phi3", "gpt2", "opt", "qwen2", "mistral", "gemma3", "cohere")
ANEW = ("gpt_neo", "bloom", "mamba")
TEXTS = ["The", *(sentence[:40] for sentence in SENTENCES[1:4]), "a a a a a a", SENTENCES[2][:20]]
SHOTS = f"{SENTENCES[0]}{SENTENCES[1]}"[:66]


def logprobs(
    forward: ForwardPass, prefix: Prefix, encoded: Sequence[EncodedText], rows: Sequence[int]
) -> list[np.ndarray]:
    """Return the log-probabilities of the texts at ``rows``, which run as one batch."""
    texts = [put_after(prefix, text) for text in encoded]
    batch = [Window(row, 0, len(texts[row].token_id), 0, has_start_token=True) for row in rows]
    return [window.values["logprob"] for window in forward.begin(texts, batch, (), before=prefix.ids[:-1])()]


def twin(model: TokenizedModel, forward: ForwardPass, prefix: Prefix, text: EncodedText) -> np.ndarray:
    """Return the log-probabilities of a text's tokens from one float64 pass over prefix and text."""
    ids = [*prefix.ids, *text.token_id.tolist()]
    whole = replace(text, token_id=np.array(ids[1:], dtype=np.int32), start_token_id=ids[0], first_scored=0)
    logits = twin_logits(model, forward, whole)[-len(text.token_id) :]
    shifted = logits - logits.max(axis=1, keepdims=True)
    found = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return np.asarray(found[np.arange(len(text.token_id)), text.token_id])


@pytest.mark.parametrize("family", slow_but({"llama", "gemma3", "bloom"}, [*SHARED, *ANEW]))
def test_every_architecture_gives_the_results_of_prefix_and_text_together(family: str, tiny: Tiny) -> None:
    model, forward = tiny(family)
    assert forward.shared_prefix is (family in SHARED)
    prefix, encoded = encode_prefix(model, SHOTS), encode(model, TEXTS)
    # Longer than the windows of the sliding layers: what is out of their sight stays so.
    assert len(prefix.ids) > 2 * 8
    assert len(prefix.ids) + max(len(text.token_id) for text in encoded) <= CONTEXT
    together = logprobs(forward, prefix, encoded, range(len(TEXTS))) if not forward.equal_lengths else None
    for row, text in enumerate(encoded):
        expected = twin(model, forward, prefix, text)
        assert len(expected) == len(text.token_id)
        np.testing.assert_allclose(logprobs(forward, prefix, encoded, [row])[0], expected, atol=1e-4)
        if together is not None:
            np.testing.assert_allclose(together[row], expected, atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3", "gpt2"])
def test_attention_in_pieces_does_not_change_results(family: str, tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    model, forward = tiny(family)
    prefix, encoded = encode_prefix(model, SENTENCES[0][:20]), encode(model, [SENTENCES[5], "The", SENTENCES[2]])
    whole = logprobs(forward, prefix, encoded, range(3))
    largest = 0

    class MeasureTensors(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, tuple) else (result,):
                if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                    largest = max(largest, tensor.numel())
            return result

    attention = shared_prefix._attention

    def measure_attention(*args: Any, **kwargs: Any) -> Any:
        with MeasureTensors():
            return attention(*args, **kwargs)

    monkeypatch.setattr(shared_prefix, "_attention", measure_attention)
    # The queries and values themselves: 4 heads of 8 numbers per token, the start token included.
    fewest = 32 * (1 + len(encoded[0].token_id))
    for most in (1, 300, fewest):
        monkeypatch.setattr(shared_prefix, "_MAX_PAIRS", {"cpu": most})
        largest = 0
        [piecewise] = logprobs(forward, prefix, encoded, [0])
        assert 0 < largest <= fewest
        np.testing.assert_allclose(piecewise, whole[0], atol=1e-4)
        for row, other in zip(whole, logprobs(forward, prefix, encoded, range(3)), strict=True):
            np.testing.assert_allclose(other, row, atol=1e-4)


def test_the_prefix_runs_once(tiny: Tiny) -> None:
    model, forward = tiny("llama")
    prefix, encoded = encode_prefix(model, f"{SENTENCES[3]} once"), encode(model, TEXTS)
    alone = []
    for row in range(3):
        before = forward.tokens_run
        logprobs(forward, prefix, encoded, [row])
        alone.append(forward.tokens_run - before)
    assert alone[0] >= len(prefix.ids) - 1 + len(encoded[0].token_id)
    assert alone[1] < len(prefix.ids)


def test_the_load_check_detects_a_model_that_changes_attention(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """Such a model runs prefix and text together and gives the same results."""
    model = tokenized(tiny_folder("llama"), tmp_path)
    forward = forward_of(model)

    def in_front(module: torch.nn.Module, args: object, kwargs: dict[str, object]) -> tuple[object, dict[str, object]]:
        cache = kwargs.get("past_key_values")
        if cache is not None and cache.get_seq_length():  # type: ignore[attr-defined]
            kwargs["hidden_states"] = 2 * kwargs["hidden_states"]  # type: ignore[operator]
        return args, kwargs

    layers = forward.model.get_decoder().layers  # type: ignore[operator,union-attr]
    layers[0].self_attn.register_forward_pre_hook(in_front, with_kwargs=True)
    checked = ForwardPass(forward.model, model.vocab_size)
    assert not checked.shared_prefix
    prefix, encoded = encode_prefix(model, SHOTS), encode(model, TEXTS)
    np.testing.assert_allclose(
        logprobs(checked, prefix, encoded, [0])[0], twin(model, forward, prefix, encoded[0]), atol=1e-4
    )


def test_the_prefix_is_freed_at_the_end_and_before_a_batch_is_halved(tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    kept: list[bool] = []

    class Small(ForwardPass):
        """Has no memory for more than two texts."""

        def __init__(self) -> None:
            self.__dict__.update(forward.__dict__)

        def begin(self, encoded: Any, batch: Any, wanted: Any = (), *, before: Any = ()) -> Any:
            kept.append(self._last_prefix is not None)
            found = super().begin(encoded, batch, wanted, before=before)
            if len(batch) > 2:
                raise torch.OutOfMemoryError
            return found

    prefix, small = encode_prefix(model, SHOTS), Small()
    small.forget_prefix()
    done = compute_prefixed(model, TEXTS, prefix, DataPaths(tmp_path), lambda: small)
    assert done.texts_computed == len(TEXTS)
    assert kept[:2] == [False, False]
    assert small._last_prefix is None

    def stopped(progress: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compute_prefixed(model, ["one more"], prefix, DataPaths(tmp_path), lambda: forward, stopped)
    assert forward._last_prefix is None


def test_cached_rows_equal_fresh_rows_and_a_stopped_run_resumes(tiny: Tiny, tmp_path: Path) -> None:

    def as_lists(table: pa.Table) -> dict[str, list[float]]:
        return dict(zip(table.column("text_sha256").to_pylist(), table.column("logprob").to_pylist(), strict=True))

    model, forward = tiny("llama")
    prefix, other = encode_prefix(model, SHOTS), encode_prefix(model, SENTENCES[4])
    fresh, grown = DataPaths(tmp_path / "fresh"), DataPaths(tmp_path / "grown")
    compute_prefixed(model, TEXTS, prefix, fresh, lambda: forward)
    assert plan_prefixed(model, TEXTS, prefix, grown).texts_to_run == len(TEXTS)
    # Rows of a killed run, and rows after another prefix.
    compute_prefixed(model, TEXTS[:2], prefix, grown, lambda: forward)
    compute_prefixed(model, TEXTS, other, grown, lambda: forward)
    assert plan_prefixed(model, TEXTS, prefix, grown).texts_to_run == len(TEXTS) - 2
    done = compute_prefixed(model, TEXTS[::-1], prefix, grown, lambda: forward)
    assert (done.texts_from_cache, done.texts_computed) == (2, len(TEXTS) - 2)

    assert compute_prefixed(model, TEXTS, prefix, grown, never).texts_computed == 0
    one, two = (as_lists(read_prefixed(model, TEXTS, prefix, place)) for place in (fresh, grown))
    assert one.keys() == two.keys()
    assert len(one) == len(TEXTS)
    for sha256, values in one.items():
        np.testing.assert_allclose(values, two[sha256], atol=1e-4)
    behind_other = as_lists(read_prefixed(model, TEXTS, other, grown))
    assert all(behind_other[sha256] != values for sha256, values in two.items())
    assert set(read_prefixed(model, TEXTS, other, grown).column("prefix_sha256").to_pylist()) == {other.sha256}


def test_a_text_that_does_not_fit_after_the_prefix_has_no_row(
    tiny: Tiny, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    model, forward = tiny("llama")
    prefix, where = encode_prefix(model, SENTENCES[0]), DataPaths(tmp_path)
    lengths = [len(prefix.ids) + len(text.token_id) for text in encode(model, TEXTS)]
    narrow = tokenized(tiny_folder("llama"), tmp_path, window=max(lengths) - 1)
    assert narrow.identity.model_fingerprint == model.identity.model_fingerprint
    compute_prefixed(model, TEXTS, prefix, where, lambda: forward)
    assert len(read_prefixed(model, TEXTS, prefix, where)) == len(TEXTS)
    assert len(read_prefixed(narrow, TEXTS, prefix, where)) == 0
    compute_prefixed(narrow, TEXTS, prefix, where, lambda: forward)
    assert (
        len(read_prefixed(narrow, TEXTS, prefix, where))
        == sum(length < max(lengths) for length in lengths)
        < len(TEXTS)
    )


@pytest.mark.parametrize("policy", ["always", "tokenizer"])
@pytest.mark.parametrize("adds_bos", [False, True])
def test_the_prefix_has_one_start_token_and_the_text_none(policy: str, adds_bos: bool, tmp_path: Path) -> None:
    model = tokenized(save_model(tmp_path / "model", adds_bos=adds_bos), tmp_path, start_token_policy=policy)
    prefix, [text] = encode_prefix(model, SENTENCES[0]), encode(model, [SENTENCES[1]])
    [own] = encode(model, [SENTENCES[0]])
    starts = [] if own.start_token_id is None else [own.start_token_id]
    assert bool(starts) is (policy == "always" or adds_bos)
    assert list(prefix.ids) == [*starts, *own.token_id.tolist()]
    after = put_after(prefix, text)
    assert after.n_scored == len(text.token_id)
    assert after.start_token_id == prefix.ids[-1]
