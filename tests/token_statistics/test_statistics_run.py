"""Filling the cache: the texts that run, resuming, kinds, budgets and unusual texts."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from tiny_models import SENTENCES, Tiny, never, tokenized, twin_logits, twin_statistics

from audit_pipeline.errors import BudgetError
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import KINDS, TOKEN_STATISTICS, Kind, text_sha256
from audit_pipeline.token_statistics import cached_texts
from audit_pipeline.token_statistics.backend import WindowResult
from audit_pipeline.token_statistics.cache import PartCache
from audit_pipeline.token_statistics.cached_texts import plan, read_statistics
from audit_pipeline.token_statistics.calibration import TOKEN_BUDGET
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.run import Progress, compute
from audit_pipeline.token_statistics.tokens import EncodedText, Window, encode

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = [f"{SENTENCES[i % len(SENTENCES)]} {i}" for i in range(24)]


class Counting(ForwardPass):
    """A forward pass that records the texts that it ran, and can fail on request."""

    def __init__(self, inner: ForwardPass, fail: Callable[[int], BaseException | None] = lambda calls: None) -> None:
        self.__dict__.update(inner.__dict__)
        self.texts: list[str] = []
        self.calls = 0
        self.largest_batch = 0
        self._fail = fail

    def begin(
        self, encoded: Sequence[EncodedText], batch: Sequence[Window], wanted: Collection[str] = (), **before: Any
    ) -> Callable[[], list[WindowResult]]:
        self.calls += 1
        if (error := self._fail(self.calls)) is not None:
            raise error
        self.largest_batch = max(self.largest_batch, len(batch))
        self.texts += [encoded[window.text].text_sha256 for window in batch]
        return super().begin(encoded, batch, wanted, **before)


@pytest.fixture
def paths(tmp_path: Path) -> DataPaths:
    return DataPaths(tmp_path)


@pytest.fixture
def llama(tiny: Tiny) -> tuple[TokenizedModel, Counting]:
    model, forward = tiny("llama")
    return model, Counting(forward)


def rows_of(
    model: TokenizedModel, texts: Sequence[str], paths: DataPaths, kind: Kind = "base"
) -> dict[str, dict[str, Any]]:
    """Return the cached rows by text, with lists as arrays."""
    by_sha = {row["text_sha256"]: row for row in read_statistics(model, texts, paths, kind).to_pylist()}
    return {
        text: {k: np.asarray(v) if isinstance(v, list) else v for k, v in by_sha[text_sha256(text)].items()}
        for text in texts
        if text_sha256(text) in by_sha
    }


def part_files(paths: DataPaths, model: TokenizedModel, kind: str = "base") -> list[Path]:
    return sorted(paths.token_statistics(kind, model.identity.model_fingerprint).glob("part-*.parquet"))


def test_cached_rows_match_the_declared_table(llama: tuple[TokenizedModel, Counting], paths: DataPaths) -> None:
    model, forward = llama
    compute(model, TEXTS, paths, lambda: forward)
    table = read_statistics(model, TEXTS, paths)
    assert table.schema.equals(TOKEN_STATISTICS.schema)
    assert table.num_rows == len(TEXTS)
    for text, row in rows_of(model, TEXTS, paths).items():
        [encoded] = encode(model, [text])
        np.testing.assert_array_equal(row["token_id"], encoded.token_id)
        np.testing.assert_array_equal(row["char_start"], encoded.char_start)
        np.testing.assert_array_equal(row["char_end"], encoded.char_end)
        twin = twin_statistics(model, forward, text)
        for name in ("logprob", "mean", "std", "max_logprob"):
            np.testing.assert_allclose(row[name], twin[name], atol=1e-4)
        assert {len(row[name]) for name in TOKEN_STATISTICS.names[2:]} == {len(encoded.token_id)}


def test_cached_equals_fresh_and_order_does_not_matter(llama: tuple[TokenizedModel, Counting], tmp_path: Path) -> None:
    model, forward = llama
    shuffled = random.Random(0).sample(TEXTS, len(TEXTS))
    compute(model, TEXTS, DataPaths(tmp_path / "one"), lambda: forward)
    with patch.dict(TOKEN_BUDGET, cpu=70):
        compute(model, shuffled, DataPaths(tmp_path / "two"), lambda: forward)
    for text in TEXTS:
        compute(model, [text], DataPaths(tmp_path / "three"), lambda: forward)
    one, two, three = (rows_of(model, TEXTS, DataPaths(tmp_path / name)) for name in ("one", "two", "three"))
    for text in TEXTS:
        assert one[text]["key"] == two[text]["key"] == three[text]["key"]
        for other in (two, three):
            np.testing.assert_array_equal(one[text]["token_id"], other[text]["token_id"])
            assert np.abs(one[text]["logprob"] - other[text]["logprob"]).max() < 1e-4


def test_the_plan_matches_the_run(llama: tuple[TokenizedModel, Counting], paths: DataPaths) -> None:
    model, forward = llama
    compute(model, TEXTS[:5], paths, lambda: forward)
    texts = [*TEXTS, "", TEXTS[0], " ".join(SENTENCES)]
    kinds: tuple[Kind, ...] = ("base", "logits")
    planned = plan(model, texts, paths, kinds)
    assert (planned.texts, planned.texts_to_run, planned.cached_texts) == (27, 26, 0)
    alone = plan(model, texts, paths)
    assert (alone.cached_texts, alone.texts_to_run) == (5, 21)
    progress: list[Progress] = []
    summary = compute(model, texts, paths, lambda: forward, kinds=kinds, on_progress=progress.append)
    assert (summary.passes, summary.tokens_computed) == (planned.passes, planned.tokens_to_run)
    assert summary.texts_computed + summary.texts_without_tokens == planned.texts_to_run
    assert summary.texts_without_tokens == 1
    written = sum(len(row["logits"]) for row in read_statistics(model, texts, paths, "logits").to_pylist())
    assert planned.bytes_to_write["logits"] == written
    assert progress[-1].tokens_done == progress[-1].tokens_total == planned.tokens_to_run
    assert progress[-1].texts_done == progress[-1].texts_total == 25
    assert summary.tokens_per_second == pytest.approx(summary.tokens_computed / summary.seconds)
    assert plan(model, texts, paths, kinds).texts_to_run == 0


def test_empty_short_and_unusual_texts(
    tiny_folder: Callable[[str], Path], llama: tuple[TokenizedModel, Counting], tmp_path: Path
) -> None:
    _, forward = llama
    odd = ["", "a", "!", "🙂🙂🙂", " ", "!!!!", "<script>alert(1)</script>", "\0", "\u200b"]
    always = tokenized(tiny_folder("llama"), tmp_path)
    summary = compute(always, odd, DataPaths(tmp_path), lambda: forward)
    assert (summary.texts_computed, summary.texts_without_tokens) == (8, 1)
    rows = rows_of(always, odd, DataPaths(tmp_path))
    assert set(rows) == set(odd)
    assert len(rows[""]["logprob"]) == 0
    assert len(rows["a"]["logprob"]) == 1
    assert rows["!!!!"]["token_id"].tolist() == [0, 0, 0, 0]
    for text in odd[1:]:
        np.testing.assert_allclose(rows[text]["logprob"], twin_statistics(always, forward, text)["logprob"], atol=1e-4)

    plain = tokenized(tiny_folder("llama"), tmp_path, start_token_policy="tokenizer")
    summary = compute(plain, odd, DataPaths(tmp_path), lambda: forward)
    assert summary.texts_without_tokens == 5
    rows = rows_of(plain, odd, DataPaths(tmp_path))
    assert [len(rows[text]["logprob"]) for text in ("", "a", "!", " ", "!!!!")] == [0, 0, 0, 0, 3]
    assert compute(plain, odd, DataPaths(tmp_path), never).texts_from_cache == len(odd)
    assert len(read_statistics(always, odd, DataPaths(tmp_path))) == len(odd)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt_neox"])
@pytest.mark.parametrize(("window", "stride"), [(16, 4), (33, 30), (3, 1)])
def test_long_texts_equal_their_windows_alone(
    tiny_folder: Callable[[str], Path], tiny: Tiny, paths: DataPaths, family: str, window: int, stride: int
) -> None:
    _, forward = tiny(family)
    for policy in ("always", "tokenizer"):
        model = tokenized(tiny_folder(family), paths.root, window=window, stride=stride, start_token_policy=policy)
        texts = [" ".join(SENTENCES[:2]), SENTENCES[0]]
        with patch.dict(TOKEN_BUDGET, cpu=150):
            compute(model, texts, paths, lambda: forward)
        for text, row in rows_of(model, texts, paths).items():
            twin = twin_statistics(model, forward, text)
            np.testing.assert_array_equal(row["token_id"], twin["token_id"])
            for name in ("logprob", "mean", "std", "max_logprob"):
                np.testing.assert_allclose(row[name], twin[name], atol=1e-4)


# --- kinds -----------------------------------------------------------------------------------------------------------


def test_kinds_requested_later_do_not_change_earlier_rows(
    llama: tuple[TokenizedModel, Counting], paths: DataPaths
) -> None:
    model, forward = llama
    texts = [*TEXTS[:4], " ".join(SENTENCES)]
    compute(model, texts, paths, lambda: forward)
    before = {path: (path.stat().st_ino, path.read_bytes()) for path in part_files(paths, model)}
    summary = compute(model, texts, paths, lambda: forward, kinds=("base", "topk", "logits"))
    assert summary.texts_computed == 5
    assert {path: (path.stat().st_ino, path.read_bytes()) for path in part_files(paths, model)} == before
    compute(model, texts, paths, never, kinds=("topk", "base"))

    for text, row in rows_of(model, texts, paths, "topk").items():
        [encoded] = encode(model, [text])
        logits = twin_logits(model, forward, encoded)
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        ids, values = row["token_id"].reshape(-1, row["k"]), row["logprob"].reshape(-1, row["k"])
        assert row["k"] == 20
        assert len(ids) == len(encoded.token_id)
        assert (np.diff(values, axis=1) <= 0).all()
        np.testing.assert_allclose(values, -np.sort(-log_p, axis=1)[:, :20], atol=1e-4)
        np.testing.assert_allclose(values, np.take_along_axis(log_p, ids.astype(np.int64), 1), atol=1e-4)
    for text, row in rows_of(model, texts, paths, "logits").items():
        [encoded] = encode(model, [text])
        logits = np.frombuffer(row["logits"], "<f2").reshape(-1, row["vocab_size"])
        np.testing.assert_allclose(logits, twin_logits(model, forward, encoded), rtol=1e-3, atol=2e-3)


def test_a_new_kind_version_recomputes_that_kind_only(
    llama: tuple[TokenizedModel, Counting], paths: DataPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, forward = llama
    compute(model, TEXTS[:3], paths, lambda: forward, kinds=("base", "topk"))
    base = part_files(paths, model)
    monkeypatch.setitem(KINDS, "topk", replace(KINDS["topk"], version=KINDS["topk"].version + 1))
    assert compute(model, TEXTS[:3], paths, never).texts_from_cache == 3
    assert compute(model, TEXTS[:3], paths, lambda: forward, kinds=("base", "topk")).texts_computed == 3
    assert part_files(paths, model) == base
    rows = sum(pq.read_table(part).num_rows for part in part_files(paths, model, "topk"))
    assert rows == 6, "the rows of the earlier version are kept"
    assert read_statistics(model, TEXTS[:3], paths, "topk").num_rows == 3


def test_the_logits_budget_is_checked_before_anything_runs(
    llama: tuple[TokenizedModel, Counting], paths: DataPaths
) -> None:
    model, forward = llama
    needed = plan(model, TEXTS, paths, ("logits",)).bytes_to_write["logits"]
    with pytest.raises(BudgetError, match="budget"):
        compute(model, [*TEXTS, ""], paths, never, kinds=("base", "logits"), logits_budget=needed - 1)
    assert part_files(paths, model) == part_files(paths, model, "logits") == []
    compute(model, TEXTS, paths, lambda: forward, kinds=("base", "logits"), logits_budget=needed)
    compute(model, TEXTS, paths, never, kinds=("base", "logits"), logits_budget=0)


# --- what can go wrong -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("the device is gone")], ids=["Ctrl-C", "error"])
def test_rows_computed_before_an_interruption_are_kept(tiny: Tiny, paths: DataPaths, error: BaseException) -> None:
    model, inner = tiny("llama")
    broken = Counting(inner, lambda calls: error if calls == 4 else None)
    with pytest.raises(type(error)), patch.dict(TOKEN_BUDGET, cpu=100):
        compute(model, TEXTS, paths, lambda: broken)
    done = set(broken.texts)
    assert 0 < len(done) < len(TEXTS)
    whole = Counting(inner)
    summary = compute(model, TEXTS, paths, lambda: whole)
    assert summary.texts_from_cache == len(done)
    assert not done & set(whole.texts)


def test_a_batch_that_exceeds_memory_is_halved(tiny: Tiny, paths: DataPaths) -> None:
    model, inner = tiny("llama")

    class Small(Counting):
        def begin(self, encoded: Any, batch: Any, wanted: Any, **before: Any) -> Callable[[], list[WindowResult]]:
            if len(batch) > 2:
                raise torch.OutOfMemoryError
            return super().begin(encoded, batch, wanted, **before)

    small = Small(inner)
    assert compute(model, TEXTS, paths, lambda: small).texts_computed == len(TEXTS)
    assert small.largest_batch == 2
    assert sorted(small.texts) == sorted(text_sha256(text) for text in TEXTS)
    np.testing.assert_allclose(
        rows_of(model, TEXTS, paths)[TEXTS[5]]["logprob"],
        twin_statistics(model, inner, TEXTS[5])["logprob"],
        atol=1e-4,
    )
    hopeless = Counting(inner, lambda calls: torch.OutOfMemoryError("out of memory"))
    with pytest.raises(torch.OutOfMemoryError):
        compute(model, ["one more"], paths, lambda: hopeless)


def test_the_texts_of_a_damaged_part_run_again(
    llama: tuple[TokenizedModel, Counting], paths: DataPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, forward = llama
    monkeypatch.setattr(cached_texts, "PartCache", partial(PartCache, flush_seconds=0.0))
    with patch.dict(TOKEN_BUDGET, cpu=1):
        compute(model, TEXTS[:6], paths, lambda: forward)
    broken = part_files(paths, model)[2]
    lost = pq.read_table(broken).column("text_sha256").to_pylist()
    broken.write_bytes(broken.read_bytes()[:-100])
    aside = str(broken.with_suffix(".unreadable"))
    forward.texts.clear()

    named = compute(model, TEXTS[:6], paths, lambda: forward).unreadable_parts
    assert named == (aside,)
    assert forward.texts == lost
    assert read_statistics(model, TEXTS[:6], paths).num_rows == 6
    assert compute(model, TEXTS[:6], paths, never).unreadable_parts == ()
