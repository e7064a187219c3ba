"""Log-probabilities that a server does not say: placeholders for minus infinity and floors, of texts and of probes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.session import Session
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import text_sha256
from audit_pipeline.token_statistics.run import compute
from audit_pipeline.token_statistics.tokens import encode

Ready = Callable[..., EndpointBackend]
Change = Callable[[int, float], Any]
DIALECTS = ("vllm", "sglang", "completions", "llama_cpp")


def change_own(answer: Json, change: Change) -> Json:
    """The answer with another log-probability of each of the prompt's own tokens, by its place."""
    if "meta_info" in answer:
        for place, triple in enumerate(answer["meta_info"]["input_token_logprobs"][1:], 1):
            triple[0] = change(place, triple[0])
        return answer
    choice = answer["choices"][0]
    if choice["logprobs"] is None:
        for place, (entries, token) in enumerate(
            zip(choice["prompt_logprobs"], choice["prompt_token_ids"], strict=True)
        ):
            if entries is not None:
                entries[str(token)]["logprob"] = change(place, entries[str(token)]["logprob"])
        return answer
    given_ = choice["logprobs"]["token_logprobs"]
    choice["logprobs"]["token_logprobs"] = [
        value if value is None else change(place, value) for place, value in enumerate(given_)
    ]
    return answer


def changing_texts_alone(server: FakeEndpoint, model: TokenizedModel, change: Change) -> Callable[[Json, Json], Json]:
    """A server that answers to the probe's texts as it should."""
    probes = [tuple(text.token_id) for text in encode(model, PROBE_TEXTS)]

    def bend(answer: Json, body: Json) -> Json:
        prompt = body.get("input_ids") or body["prompt"]
        ids = prompt if "input_ids" in body else prompt[0]
        is_probe = prompt in PROBE_TEXTS if isinstance(prompt, str) else tuple(ids[1:]) in probes
        return answer if is_probe else change_own(answer, change)

    return bend


def score(
    opened: EndpointBackend, server: FakeEndpoint, data: Path, texts: Sequence[str], change: Change
) -> list[dict[str, Any]]:
    """The scores of the texts, which alone are changed."""
    model = opened.model
    server.bend = changing_texts_alone(server, model, change)
    compute(model, texts, DataPaths(data), lambda: opened)
    names = [str(number) for number in range(len(texts))]
    session = Session(model, registry.select(["loss"]), DataPaths(data))
    found: list[dict[str, Any]] = session.score(names, texts).to_pylist()
    return found


@pytest.mark.parametrize(("placeholder", "dialect"), list(zip((-9999, None) * 2, DIALECTS, strict=True)))
def test_a_text_with_a_placeholder_is_not_scored(
    placeholder: float | None, dialect: str, server: FakeEndpoint, ready: Ready, tmp_path: Path
) -> None:
    messages: list[str] = []
    opened = ready(dialect, notify=messages.append, top_logprobs=0)
    [row] = score(opened, server, tmp_path, SENTENCES[:1], lambda place, value: placeholder if place == 5 else value)
    assert (row["score"], row["status"], row["reason"]) == (None, "failed", UNKNOWN_LOGPROB)
    assert f"{text_sha256(SENTENCES[0])} is not scored. The log-probabilities of 1 of " in messages[-1]
    asked = len(server.requests)
    compute(opened.model, SENTENCES[:1], DataPaths(tmp_path), lambda: pytest.fail("it is asked for again"))
    assert len(server.requests) == asked


@pytest.mark.parametrize(("floor", "dialect"), [(-3.0, "vllm"), (-7.0, "llama_cpp")])
def test_a_floor_is_found_by_the_probe(
    floor: float, dialect: str, server: FakeEndpoint, probe: Callable[..., object]
) -> None:
    server.bend = lambda answer, body: change_own(answer, lambda _, value: max(value, floor))
    with pytest.raises(ModelError, match=f"replaces log-probabilities below {floor:.6g} by this value"):
        probe(dialect, top_logprobs=0)


def test_a_text_at_a_floor_is_not_scored(server: FakeEndpoint, ready: Ready, tmp_path: Path) -> None:
    messages: list[str] = []
    opened = ready(notify=messages.append, top_logprobs=0)
    rows = score(opened, server, tmp_path, SENTENCES[:2], lambda _, value: max(value, -6.0))
    assert [(row["score"], row["reason"]) for row in rows] == [(None, UNKNOWN_LOGPROB)] * 2
    assert sum("replaces log-probabilities below -6" in line for line in messages) == 2


def test_a_window_that_is_not_known_is_left_out_of_an_extraction(
    server: FakeEndpoint, ready: Ready, tmp_path: Path
) -> None:
    opened, paths = ready("completions", top_logprobs=0), DataPaths(tmp_path)
    windows = encode_windows_at(opened.model, " ".join(SENTENCES), (0, 30, 60), WindowLengths(8, 12))
    is_changed = iter((False, True, False))
    server.bend = lambda answer, body: (
        change_own(answer, lambda place, value: -9999.0 if place == 15 else value)
        if next(is_changed, False)
        else answer
    )
    run_windows(opened.model, windows, paths, lambda: opened)
    rows = read_windows(opened.model, windows, paths)
    assert (len(windows), len(rows)) == (3, 2)
    assert np.isfinite(rows["logprob"].combine_chunks().flatten().to_numpy()).all()


@given(st.lists(st.floats(-30, 0, width=32), max_size=60, unique=True), st.randoms())
def test_values_that_do_not_tie_have_no_floor_and_order_is_nothing(values: list[float], order: Any) -> None:
    assert find_floor(np.array(values, dtype=np.float32)) is None
    tied = [*values, *[-31.0] * 3]
    order.shuffle(tied)
    assert find_floor(np.array(tied, dtype=np.float32)) == -31.0
