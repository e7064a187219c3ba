"""A back end that gives only some statistics of a token."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

import pytest
from tiny_models import SENTENCES, Tiny

from audit_pipeline.detectors.registry import select_detectors
from audit_pipeline.errors import ModelError
from audit_pipeline.models.server_settings import Endpoint
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.session import Session
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import KINDS
from audit_pipeline.token_statistics.backend import WindowResult, Work
from audit_pipeline.token_statistics.cached_texts import read_statistics
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.run import compute

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = [*SENTENCES[:4], ""]


@dataclass
class Narrow:
    """A back end that passes only some statistics, one window at a time and in reverse order."""

    inner: ForwardPass
    model: TokenizedModel
    branch_tokens_run: int = 0
    described: str = "narrow"

    def run_work(self, work: Work) -> Generator[Sequence[WindowResult]]:
        assert all(map(self.model.has_statistic, work.wanted))
        for done in reversed([result for batch in self.inner.run_work(work) for result in batch]):
            assert done.values is not None
            yield [
                replace(done, values={name: own for name, own in done.values.items() if self.model.has_statistic(name)})
            ]


def at_endpoint(model: TokenizedModel, **endpoint: object) -> TokenizedModel:
    """Return the same model with an entry for an endpoint."""
    given = Endpoint.model_validate(
        {"url": "http://127.0.0.1:1/v1", "model": "tiny", "dialect": "completions", **endpoint}
    )
    entry = model.entry.model_copy(update={"backend": "openai", "endpoint": given})
    return replace(model, located=replace(model.located, entry=entry))


def test_available_statistics_are_cached_and_missing_ones_are_empty(tmp_path, tiny: Tiny) -> None:
    whole, forward = tiny("llama")
    model, paths = at_endpoint(whole, top_logprobs=0), DataPaths(tmp_path)
    summary = compute(model, TEXTS, paths, lambda: Narrow(forward, model))
    assert (summary.texts_computed, summary.texts_without_tokens) == (4, 1)
    rows = {row["text_sha256"]: row for row in read_statistics(model, TEXTS, paths).to_pylist()}
    compute(whole, TEXTS, DataPaths(tmp_path / "whole"), lambda: forward)
    expected = read_statistics(whole, TEXTS, DataPaths(tmp_path / "whole")).to_pylist()
    assert len(expected) == len(rows) == 5
    for row in expected:
        found = rows[row["text_sha256"]]
        for name in ("token_id", "char_start", "char_end"):
            assert found[name] == row[name]
        # Both run the same batches.
        assert found["logprob"] == row["logprob"]
        for name in ("mean", "std", "max_logprob", "argmax_id", "rank"):
            assert found[name] == []


def test_detectors_without_their_statistics_are_not_applicable(tmp_path, tiny: Tiny) -> None:
    whole, forward = tiny("llama")
    model = at_endpoint(whole)
    session = Session(model, select_detectors(), DataPaths(tmp_path))
    session.run(TEXTS, lambda _: Narrow(forward, model))
    scores = session.score([str(number) for number in range(5)], TEXTS).to_pylist()
    of_first = {row["detector"]: row for row in scores if row["example_id"] == "0"}
    for name in ("loss", "zlib", "min_k", "lowercase"):
        assert of_first[name]["status"] == "ok"
    reasons = {name: row["reason"] for name, row in of_first.items() if row["status"] == "not_applicable"}
    lacking = "the model's interface does not give: "
    assert reasons["min_k_plus_plus"] == f"{lacking}mean, std of each token"
    assert reasons["gap_k"] == f"{lacking}std of each token"
    assert reasons["infilling"] == f"{lacking}branches of each token"
    again = session.run(TEXTS, lambda _: pytest.fail("everything is in the cache"))
    assert again.tokens == 0


@pytest.mark.parametrize("kind", ["logits", "topk", "renyi", "temperatures"])
def test_an_unavailable_kind_is_refused_before_anything_runs(tmp_path, tiny: Tiny, kind) -> None:
    whole, _ = tiny("llama")
    model = at_endpoint(whole)
    assert not KINDS[kind].is_available_from(model.has_statistic)
    assert KINDS[kind].is_available_from(whole.has_statistic)
    with pytest.raises(ModelError, match=f"cannot provide these kinds of statistics: {kind}"):
        compute(model, TEXTS, DataPaths(tmp_path), lambda: pytest.fail("run"), kinds=("base", kind))
    assert not KINDS["branches"].is_available_from(model.has_statistic)
    with pytest.raises(ModelError, match="cannot provide these kinds of statistics: branches"):
        compute(model, TEXTS, DataPaths(tmp_path), lambda: pytest.fail("run"), branch_steps=1)


@pytest.mark.parametrize(
    ("dialect", "more", "gives"),
    [
        ("completions", {"top_logprobs": 0}, {"logprob"}),
        ("llama_cpp", {}, {"logprob", "max_logprob"}),
        ("sglang", {}, {"logprob", "max_logprob", "argmax_id", "topk"}),
        ("vllm", {"top_logprobs": 1}, {"logprob", "max_logprob", "argmax_id", "rank"}),
        ("vllm", {"top_logprobs": 0}, {"logprob", "rank"}),
    ],
)
def test_statistics_of_each_dialect(tiny: Tiny, dialect: str, more: dict[str, object], gives: set[str]) -> None:
    model = at_endpoint(tiny("llama")[0], dialect=dialect, **more)
    names = {"logprob", "mean", "std", "max_logprob", "argmax_id", "rank", "topk", "logits", "log_mass_40", "branches"}
    assert {name for name in names if model.has_statistic(name)} == gives
