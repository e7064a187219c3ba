"""Runs that end early: checked rows are stored, and the next run requests the rest."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from bad_server import Answer, fault, slow, truncated
from fake_endpoint import FakeEndpoint, Json
from tiny_models import SENTENCES

from audit_pipeline.errors import BudgetError, ModelError, TransientError
from audit_pipeline.extras.servers import backend
from audit_pipeline.extras.servers.backend import EndpointBackend
from audit_pipeline.models.fingerprint import TEXTS as PROBE_TEXTS
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.models.usage_budget import Budget, Limits
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.cached_texts import read_statistics
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.run import compute
from audit_pipeline.token_statistics.tokens import encode

Ready = Callable[..., EndpointBackend]
Loaded = tuple[TokenizedModel, ForwardPass]
TEXTS = tuple(f"{number}: {sentence}" for number in range(3) for sentence in SENTENCES)


def asked_for(server: FakeEndpoint) -> list[Json]:
    """Return the requests of texts, without the checks of the model."""
    checks = {tuple(one.token_id) for one in encode(server.model, PROBE_TEXTS)}
    return [body for body in server.bodies() if tuple(body["prompt"][0][1:]) not in checks]


def texts_with_rows(model: TokenizedModel, data: Path) -> int:
    return read_statistics(model, TEXTS, DataPaths(data)).num_rows


@pytest.fixture
def often_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the model of the server after a few texts."""
    monkeypatch.setattr(backend, "_SECONDS", 0.0)
    monkeypatch.setattr(backend, "_TIMES_CHECK", 0.5)


@pytest.mark.parametrize(
    ("ending", "error"),
    [
        ([fault(400)], ModelError),
        ([fault(503)] * 3, TransientError),
        ([truncated(b"{}" * 100)] * 3, TransientError),
        ([Answer(b"<html>Service busy</html>")], ModelError),
    ],
)
def test_a_failed_run_is_continued(
    ending: list[Answer],
    error: type[Exception],
    server: FakeEndpoint,
    ready: Ready,
    tmp_path: Path,
) -> None:
    opened = ready(concurrency=1)
    ended: list[bool] = []

    def some_first(answer: Json, body: Json) -> Json:
        if len(asked_for(server)) == 7 and not ended:
            ended.append(True)
            server.next = list(ending)
        return answer

    server.bend = some_first
    with pytest.raises(error):
        compute(opened.model, TEXTS, DataPaths(tmp_path), lambda: opened)
    assert texts_with_rows(opened.model, tmp_path) == 7
    asked = len(asked_for(server))
    summary = compute(opened.model, TEXTS, DataPaths(tmp_path), lambda: opened)
    assert (summary.texts_from_cache, summary.texts_computed) == (7, len(TEXTS) - 7)
    assert len(asked_for(server)) - asked == len(TEXTS) - 7


def test_an_interrupt_keeps_checked_rows(
    server: FakeEndpoint, ready: Ready, tmp_path: Path, often_checked: None
) -> None:
    opened = ready(concurrency=3)

    def interrupting(answer: Json, body: Json) -> Json:
        if len(asked_for(server)) == 8:
            os.kill(os.getpid(), signal.SIGINT)
            server.next = [slow(b"")] * 8
        return answer

    server.bend = interrupting
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        compute(opened.model, TEXTS, DataPaths(tmp_path), lambda: opened)
    kept = texts_with_rows(opened.model, tmp_path)
    assert 4 <= kept <= 8
    # The remaining threads belong to the server.
    assert threading.active_count() <= before + 4
    server.next = []
    summary = compute(opened.model, TEXTS, DataPaths(tmp_path), lambda: opened)
    assert (summary.texts_from_cache, summary.texts_computed) == (kept, len(TEXTS) - kept)


def test_a_used_up_budget_ends_a_run_and_the_next_run_continues(
    server: FakeEndpoint, ready: Ready, tmp_path: Path
) -> None:
    cost, check = (sum(len(one.token_id) + 2 for one in encode(server.model, texts)) for texts in (TEXTS, PROBE_TEXTS))
    most = cost // 3 + check
    runs, rows = 0, 0
    while rows < len(TEXTS):
        budget, before = Budget(Limits(most)), len(server.bodies())
        opened = ready(budget=budget, concurrency=4)
        runs += 1
        try:
            compute(opened.model, TEXTS, DataPaths(tmp_path), lambda opened=opened: opened)
        except BudgetError:
            assert texts_with_rows(opened.model, tmp_path) > rows
        rows = texts_with_rows(opened.model, tmp_path)
        # All paid answers are stored, because the budget of the check is reserved.
        assert len(asked_for(server)) == rows
        sent = sum(len(body["prompt"][0]) + 1 for body in server.bodies()[before:])
        assert sent == budget.tokens <= most
    assert runs in (3, 4, 5)


def test_no_row_belongs_to_a_model_that_replaced_the_first(
    server: FakeEndpoint, ready: Ready, tmp_path: Path, often_checked: None
) -> None:
    opened = ready(concurrency=3)

    def another_from_the_eighth_on(answer: Json, body: Json) -> Json:
        if len(asked_for(server)) >= 8:
            [choice] = answer["choices"]
            for entry, token in zip(choice["prompt_logprobs"][1:], choice["prompt_token_ids"][1:], strict=True):
                entry[str(token)]["logprob"] -= 0.2
        return answer

    def rows(data: Path) -> dict[str, object]:
        found = read_statistics(opened.model, TEXTS, DataPaths(data)).to_pylist()
        return {row["text_sha256"]: row["logprob"] for row in found}

    server.bend = another_from_the_eighth_on
    with pytest.raises(ModelError, match="The model at the endpoint changed during the requests"):
        compute(opened.model, TEXTS, DataPaths(tmp_path), lambda: opened)
    kept = rows(tmp_path)
    assert 3 <= len(kept) <= 7
    assert len(asked_for(server)) < len(TEXTS), "the run ends at the first check that fails"
    server.bend = lambda answer, body: answer
    compute(opened.model, TEXTS, DataPaths(tmp_path / "anew"), lambda: opened)
    assert kept.items() <= rows(tmp_path / "anew").items()


def test_an_invalid_answer_gives_no_row(server: FakeEndpoint, ready: Ready, tmp_path: Path) -> None:
    opened = ready()
    server.bend = lambda answer, body: {"choices": [{**answer["choices"][0], "prompt_token_ids": None}]}
    with pytest.raises(ModelError, match=r"other token ids than the request.*sha256 [0-9a-f]{64}") as error:
        compute(opened.model, TEXTS[:2], DataPaths(tmp_path), lambda: opened)
    assert "\n" not in str(error.value)
    assert texts_with_rows(opened.model, tmp_path) == 0
