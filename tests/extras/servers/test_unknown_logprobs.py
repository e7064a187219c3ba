"""Unknown log-probabilities: placeholders for minus infinity, and floors. test_dialects.py tests all dialects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_endpoint import FakeEndpoint, Json
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import SENTENCES

from audit_pipeline.detectors import registry
from audit_pipeline.detectors.detector import UNKNOWN_LOGPROB
from audit_pipeline.errors import ModelError
from audit_pipeline.extras.extraction import WindowLengths
from audit_pipeline.extras.extraction.window_probabilities import encode_windows_at, read_windows, run_windows
from audit_pipeline.extras.servers.backend import EndpointBackend
from audit_pipeline.extras.servers.dialect_interface import find_floor
from audit_pipeline.models.fingerprint import TEXTS as PROBE_TEXTS
from audit_pipeline.scoring.session import Session
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import text_sha256
from audit_pipeline.token_statistics.run import compute
from audit_pipeline.token_statistics.tokens import encode

Ready = Callable[..., EndpointBackend]
Change = Callable[[int, float], Any]


def change_own(answer: Json, change: Change) -> Json:
    """Change the log-probability of each of the prompt's own tokens, by its position."""
    [choice] = answer["choices"]
    entries = zip(choice["prompt_logprobs"], choice["prompt_token_ids"], strict=True)
    for position, (entry, token) in enumerate(entries):
        if entry is not None:
            entry[str(token)]["logprob"] = change(position, entry[str(token)]["logprob"])
    return answer


def score_changed(opened: EndpointBackend, server: FakeEndpoint, data: Path, texts: int, change: Change) -> list[Json]:
    """Score texts whose log-probabilities are changed. The texts of the probe are not changed."""
    probes = [tuple(text.token_id) for text in encode(opened.model, PROBE_TEXTS)]
    server.bend = lambda answer, body: answer if tuple(body["prompt"][0][1:]) in probes else change_own(answer, change)
    compute(opened.model, SENTENCES[:texts], DataPaths(data), lambda: opened)
    session = Session(opened.model, registry.select_detectors(["loss"]), DataPaths(data))
    found: list[Json] = session.score(list(map(str, range(texts))), SENTENCES[:texts]).to_pylist()
    return found


def test_a_text_with_a_placeholder_is_not_scored(server: FakeEndpoint, ready: Ready, tmp_path: Path) -> None:
    messages: list[str] = []
    opened = ready(notify=messages.append, top_logprobs=0)
    [row] = score_changed(opened, server, tmp_path, 1, lambda position, value: -9999 if position == 5 else value)
    assert (row["score"], row["status"], row["reason"]) == (None, "failed", UNKNOWN_LOGPROB)
    assert f"{text_sha256(SENTENCES[0])} is not scored. The log-probabilities of 1 of " in messages[-1]
    asked = len(server.requests)
    compute(opened.model, SENTENCES[:1], DataPaths(tmp_path), lambda: pytest.fail("it is asked for again"))
    assert len(server.requests) == asked


def test_the_probe_refuses_a_server_with_a_floor(server: FakeEndpoint, probe: Callable[..., object]) -> None:
    server.bend = lambda answer, body: change_own(answer, lambda _, value: max(value, -3.0))
    with pytest.raises(ModelError, match="replaces log-probabilities below -3 by this value"):
        probe(top_logprobs=0)


def test_a_text_at_a_floor_is_not_scored(server: FakeEndpoint, ready: Ready, tmp_path: Path) -> None:
    messages: list[str] = []
    opened = ready(notify=messages.append, top_logprobs=0)
    rows = score_changed(opened, server, tmp_path, 2, lambda _, value: max(value, -6.0))
    assert [(row["score"], row["reason"]) for row in rows] == [(None, UNKNOWN_LOGPROB)] * 2
    assert sum("replaces log-probabilities below -6" in line for line in messages) == 2


def test_a_window_with_an_unknown_value_is_skipped(server: FakeEndpoint, ready: Ready, tmp_path: Path) -> None:
    opened, paths = ready(top_logprobs=0), DataPaths(tmp_path)
    windows = encode_windows_at(opened.model, " ".join(SENTENCES), (0, 30, 60), WindowLengths(8, 12))
    is_changed = iter((False, True, False))
    server.bend = lambda answer, body: (
        change_own(answer, lambda position, value: -9999.0 if position == 15 else value)
        if next(is_changed, False)
        else answer
    )
    run_windows(opened.model, windows, paths, lambda: opened)
    rows = read_windows(opened.model, windows, paths)
    assert (len(windows), len(rows)) == (3, 2)
    assert np.isfinite(rows["logprob"].combine_chunks().flatten().to_numpy()).all()


@given(st.lists(st.floats(-30, 0, width=32), max_size=60, unique=True), st.randoms())
def test_distinct_values_have_no_floor_in_any_order(values: list[float], order: Any) -> None:
    assert find_floor(np.array(values, dtype=np.float32)) is None
    tied = [*values, *[-31.0] * 3]
    order.shuffle(tied)
    assert find_floor(np.array(tied, dtype=np.float32)) == -31.0
