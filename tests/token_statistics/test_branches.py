"""Branches: packed runs equal brute-force runs of the whole text in every architecture and layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from profiles import max_examples
from quick import slow_but
from tiny_models import SENTENCES, Tiny, forward_of, never, save_model, tokenized

from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics import calibration, counterfactual_branches
from audit_pipeline.token_statistics.backend import WindowBranches, WindowResult
from audit_pipeline.token_statistics.cached_texts import read_branches, read_statistics
from audit_pipeline.token_statistics.calibration import TOKEN_BUDGET
from audit_pipeline.token_statistics.counterfactual_branches import (
    Branches,
    Ints,
    assign_rows,
    build_layout,
    iterate_row_batches,
    list_branches,
)
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.run import compute
from audit_pipeline.token_statistics.tokens import EncodedText, Window, cut_windows, encode, window_and_stride

pytestmark = pytest.mark.usefixtures("one_thread")

PACKED = (
    "llama",
    "gpt_neox",
    "gpt2",
    "opt",
    "qwen2",
    "mistral",
    "gemma2",
    "gemma3",
    "granite",
    "cohere",
    "phi3",
    "bloom",
)
TEXTS = (f"{SENTENCES[1]} {SENTENCES[0]}", SENTENCES[3], SENTENCES[4])
# Two float32 paths to the same logits; DESIGN 8 allows 1e-4 between batches.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Prepared:
    """Texts that fit the model's context, with branches from the model."""

    encoded: list[EncodedText]
    windows: list[Window]
    argmax: list[np.ndarray]
    branches: list[WindowBranches]


def prepared(model: TokenizedModel, forward: ForwardPass, steps: int, texts: tuple[str, ...] = TEXTS) -> Prepared:
    encoded = encode(model, texts)
    windows = [
        window for number, text in enumerate(encoded) for window in cut_windows(number, text, *window_and_stride(model))
    ]
    found = forward.run_with_branches(encoded, windows, steps)
    return Prepared(
        encoded, windows, [window.values["argmax_id"] for window in found], [window.branches for window in found]
    )


@torch.inference_mode()
def twin(forward: ForwardPass, text: EncodedText, window: Window, argmax: np.ndarray, steps: int) -> WindowBranches:
    """Compute every branch by a run of the whole window with one replaced token, in float64 from the logits on."""
    start = [] if text.start_token_id is None else [text.start_token_id]
    sequence = [*start, *text.token_id[window.begin : window.end].tolist()]
    lengths, logprobs, scores = [], [], []
    for scored, position in enumerate(range(window.score_from, window.end)):
        place = position - window.begin + len(start)
        following = sequence[place + 1 : place + 1 + steps] if argmax[scored] != sequence[place] else []
        lengths.append(len(following))
        if following:
            changed = [*sequence[:place], int(argmax[scored]), *sequence[place + 1 :]]
            log_p = forward.model(input_ids=torch.tensor([changed])).logits[0].double().log_softmax(-1).numpy()
            for offset, token in enumerate(following):
                row = log_p[place + offset]
                p = np.exp(row)
                mean = float(p @ row)
                deviation = float(np.sqrt(p @ (row - mean) ** 2))
                logprobs.append(row[token])
                scores.append((row[token] - mean) / deviation)
    return WindowBranches(np.array(lengths), np.array(logprobs), np.array(scores))


def assert_same(found: WindowBranches, expected: WindowBranches, tolerance: float = TOLERANCE) -> None:
    assert found.lengths.tolist() == expected.lengths.tolist()
    np.testing.assert_allclose(found.logprob, expected.logprob, atol=tolerance, rtol=1e-5)
    np.testing.assert_allclose(found.z, expected.z, atol=tolerance, rtol=1e-5)


# State-space models keep no keys and values; GPT-Neo's local layers look back places in the cache, not positions.
ANEW = ("mamba", "gpt_neo")


@pytest.mark.parametrize("family", slow_but({"llama", "gemma3", "gpt_neo"}, [*PACKED, *ANEW]))
def test_branches_equal_a_brute_force_run(tiny: Tiny, family: str) -> None:
    model, forward = tiny(family)
    assert forward.packed is (family in PACKED)
    of = prepared(model, forward, steps=4)
    assert sum(len(branches.z) for branches in of.branches) > 100
    for window, argmax, found in zip(of.windows, of.argmax, of.branches, strict=True):
        assert_same(found, twin(forward, of.encoded[window.text], window, argmax, 4))


@pytest.mark.parametrize(("row_tokens", "budget"), [(1, 64), (7, 1), (7, 1 << 14), (1000, 64)])
def test_row_and_batch_sizes_do_not_change_branches(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, row_tokens: int, budget: int
) -> None:
    model, forward = tiny("gemma3")
    expected = prepared(model, forward, steps=5)
    monkeypatch.setitem(calibration.BRANCH_ROW_TOKENS, "cpu", row_tokens)
    monkeypatch.setitem(calibration.BRANCH_TOKENS, "cpu", budget)
    found = forward.run_branches(expected.encoded, expected.windows, expected.argmax, 5)
    for window, other in zip(found, expected.branches, strict=True):
        assert_same(window.branches, other)


def test_cached_argmax_tokens_are_used_unchanged(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another pass may decide a near-tie differently. A branch would then be at a position without an expected one."""
    model, forward = tiny("llama")
    paths, texts = DataPaths(tmp_path), list(TEXTS)
    compute(model, texts, paths, lambda: forward)
    begin = ForwardPass.begin_batch

    def other_modes(*given: object, **options: object) -> Callable[[], list[WindowResult]]:
        found = begin(*given, **options)()  # type: ignore[arg-type]
        others = [
            replace(window, values={**window.values, "argmax_id": window.values["argmax_id"] * 0 + 7})
            for window in found
        ]
        return lambda: others

    monkeypatch.setattr(ForwardPass, "begin_batch", other_modes)
    compute(model, texts, paths, lambda: forward, kinds=("base", "topk"), branch_steps=2)
    own = {row["text_sha256"]: row for row in read_statistics(model, texts, paths).to_pylist()}
    for row in read_branches(model, texts, paths, 2).to_pylist():
        text = own[row["text_sha256"]]
        differs = np.array(text["argmax_id"]) != np.array(text["token_id"])
        differs[-1] = False
        assert (np.diff(row["offsets"]) > 0).tolist() == differs.tolist()


def test_a_batch_of_branches_that_exceeds_memory_is_halved(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    model, forward = tiny("llama")
    expected = prepared(model, forward, steps=3)
    monkeypatch.setitem(calibration.BRANCH_ROW_TOKENS, "cpu", 8)
    lay_out_all, refused = counterfactual_branches.build_layout, []

    def lay_out_few(branches: Branches, rows: Ints, chosen: Ints, device: torch.device) -> object:
        if len(set(rows[chosen].tolist())) > 2:
            refused.append(len(chosen))
            raise torch.OutOfMemoryError
        return lay_out_all(branches, rows, chosen, device)

    monkeypatch.setattr(counterfactual_branches, "build_layout", lay_out_few)
    found = forward.run_branches(expected.encoded, expected.windows, expected.argmax, 3)
    assert refused
    for window, other in zip(found, expected.branches, strict=True):
        assert_same(window.branches, other)
    monkeypatch.setattr(
        counterfactual_branches, "build_layout", lambda *given: (_ for _ in ()).throw(torch.OutOfMemoryError)
    )
    with pytest.raises(torch.OutOfMemoryError):
        forward.run_branches(expected.encoded, expected.windows, expected.argmax, 3)


def test_branches_run_separately_if_the_load_check_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tokenized(save_model(tmp_path / "gpt2", "gpt2"), tmp_path)
    packed = prepared(model, forward_of(model), steps=3)

    def blind(*given: object, **options: object) -> dict[str, object]:
        # As a model that does not look at a mask of its caller's.
        return {**inputs_of(*given, **options), "attention_mask": None}  # type: ignore[arg-type]

    inputs_of = counterfactual_branches.build_branch_inputs
    monkeypatch.setattr(counterfactual_branches, "build_branch_inputs", blind)
    forward = forward_of(model)
    assert not forward.packed
    for branches, other in zip(prepared(model, forward, steps=3).branches, packed.branches, strict=True):
        assert_same(branches, other)


def test_longrope_branches_equal_runs_of_the_whole_window(tmp_path: Path) -> None:
    rope = {
        "rope_type": "longrope",
        "short_factor": [1.0] * 4,
        "long_factor": [3.0] * 4,
        "original_max_position_embeddings": 20,
        "rope_theta": 10000.0,
    }
    folder = save_model(tmp_path / "phi3", "phi3", rope_parameters=rope, original_max_position_embeddings=20)
    model = tokenized(folder, tmp_path)
    forward = forward_of(model)
    assert not forward.packed
    assert forward.length_step == 20
    of = prepared(model, forward, steps=3)
    assert any(window.length > 20 for window in of.windows)
    for window, argmax, found in zip(of.windows, of.argmax, of.branches, strict=True):
        assert_same(found, twin(forward, of.encoded[window.text], window, argmax, 3))


def test_a_branch_by_hand() -> None:
    # Tokens 10 11 12 13 14, a start token (1) in front, all scored; the modes differ from the text at 0, 2 and 4.
    ids = np.array([[1, 10, 11, 12, 13, 14, 0]])
    found = list_branches([Window(0, 0, 5, 0, True)], ids, [np.array([20, 11, 22, 13, 24], dtype=np.int32)], 3)
    assert found.scored.tolist() == [0, 2], "the last token has nothing behind it"
    assert found.start.tolist() == [1, 3]
    assert found.length.tolist() == [3, 2]
    assert found.offsets.tolist() == [0, 3, 5]
    assert found.tokens.tolist() == [20, 11, 12, 22, 13]
    assert found.targets.tolist() == [11, 12, 13, 13, 14]


@given(
    lengths=st.lists(st.lists(st.integers(1, 9), max_size=30), min_size=1, max_size=5),
    row_tokens=st.integers(1, 20),
    budget=st.integers(1, 60),
)
def test_every_branch_token_is_in_exactly_one_batch(lengths: list[list[int]], row_tokens: int, budget: int) -> None:
    counts = np.array([n for own in lengths for n in own], dtype=np.int64)
    window = np.array([number for number, own in enumerate(lengths) for _ in own], dtype=np.int64)
    place = np.array([at for own in lengths for at, _ in enumerate(own)], dtype=np.int64)
    ids = np.arange(len(lengths) * 60).reshape(len(lengths), 60)
    branches = Branches(ids, window, place, place + 1, counts, -1 - np.arange(len(counts)))
    rows = assign_rows(branches, row_tokens)
    assert sorted(set(rows.tolist())) == list(range(len(set(rows.tolist()))))
    seen: list[int] = []
    for chosen in iterate_row_batches(branches, rows, budget):
        layout = build_layout(branches, rows, chosen, torch.device("cpu"))
        seen.extend(layout.which.tolist())
        height, width = layout.ids.shape
        assert height * width <= budget or height == 1
        assert width < row_tokens + 9, "a row has at most row_tokens tokens before its last branch"
        assert layout.ids.flatten()[layout.used].tolist() == branches.tokens[layout.which].tolist()
        for row in range(height):
            held = layout.branch[row][layout.branch[row] >= 0]
            whose = {int(branches.window[chosen[which]]) for which in held.tolist()}
            assert whose == {int(layout.windows[row])}
        owner = branches.owner[layout.which]
        expected = branches.start[owner] + branches.step[layout.which]
        assert layout.positions.flatten()[layout.used].tolist() == expected.tolist()
        assert layout.prefix == max(branches.start[chosen])
    assert sorted(seen) == list(range(int(branches.offsets[-1])))


def branches_by_text(model: TokenizedModel, texts: list[str], paths: DataPaths, steps: int) -> dict[str, dict]:  # type: ignore[type-arg]
    return {row["text_sha256"]: row for row in read_branches(model, texts, paths, steps).to_pylist()}


def test_shorter_branches_come_from_longer_ones_in_the_cache(tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    texts, paths = [*TEXTS, "", "!"], DataPaths(tmp_path)
    first = compute(model, texts, paths, lambda: forward, branch_steps=3)
    assert (first.texts_computed, first.texts_branched) == (4, 4)
    assert first.branch_tokens > 0

    for steps in (1, 2, 3):
        again = compute(model, texts, paths, never, branch_steps=steps)
        assert (again.texts_from_cache, again.texts_computed, again.texts_branched) == (len(texts), 0, 0)
    before = read_statistics(model, texts, paths).sort_by("key")
    more = compute(model, texts, paths, lambda: forward, branch_steps=6)
    assert (more.texts_computed, more.texts_branched) == (0, 4)
    assert read_statistics(model, texts, paths).sort_by("key").equals(before), "no text's own statistics ran again"

    short, long = (branches_by_text(model, texts, paths, steps) for steps in (3, 6))
    assert {row["m"] for row in short.values()} == {3}, "the shortest that are long enough"
    assert {row["m"] for row in long.values()} == {6}
    assert len(short) == len(long) == len(texts)
    for sha256, row in short.items():
        other = long[sha256]
        for begin, end, far in zip(row["offsets"], row["offsets"][1:], other["offsets"], strict=False):
            np.testing.assert_allclose(row["z"][begin:end], other["z"][far : far + end - begin], atol=TOLERANCE)


@max_examples(15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(range(6)), budget=st.integers(1, 200), steps=st.integers(1, 8))
def test_order_and_batches_do_not_change_branches(
    tiny: Tiny, tmp_path_factory: pytest.TempPathFactory, order: list[int], budget: int, steps: int
) -> None:
    model, forward = tiny("gpt_neox")
    texts = [*TEXTS, "a", "a a a a a a a a", "海港在早晨很安静。"]
    found = []
    for ordered, tokens in ((texts, TOKEN_BUDGET["cpu"]), ([texts[place] for place in order], budget)):
        paths = DataPaths(tmp_path_factory.mktemp("branches"))
        with patch.dict(TOKEN_BUDGET, cpu=tokens):
            compute(model, ordered, paths, lambda: forward, branch_steps=steps)
        found.append(branches_by_text(model, texts, paths, steps))
    for sha256, row in found[0].items():
        assert row["offsets"] == found[1][sha256]["offsets"]
        np.testing.assert_allclose(row["z"], found[1][sha256]["z"], atol=TOLERANCE)


def test_a_text_longer_than_the_context_has_branches_up_to_the_end_of_each_window(tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    text = " ".join(SENTENCES)
    [encoded] = encode(model, [text])
    windows = cut_windows(0, encoded, *window_and_stride(model))
    assert len(windows) > 2
    paths = DataPaths(tmp_path)
    compute(model, [text], paths, lambda: forward, branch_steps=4)
    [row] = read_branches(model, [text], paths, 4).to_pylist()
    [own] = read_statistics(model, [text], paths).to_pylist()
    expected = [
        twin(forward, encoded, window, np.array(own["argmax_id"])[window.score_from : window.end], 4)
        for window in windows
    ]
    assert np.diff(row["offsets"]).tolist() == np.concatenate([window.lengths for window in expected]).tolist()
    np.testing.assert_allclose(row["z"], np.concatenate([window.z for window in expected]), atol=TOLERANCE)
