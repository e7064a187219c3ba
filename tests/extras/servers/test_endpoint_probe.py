"""The probe: its results, and the servers that it refuses before any text is sent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bad_server import fault
from fake_endpoint import FakeEndpoint, Json
from tiny_models import tokenized, twin_statistics

from audit_pipeline.errors import ModelError, TransientError
from audit_pipeline.extras.servers.probe import ProbeResult
from audit_pipeline.models.fingerprint import TEXTS

Probing = Callable[..., ProbeResult]


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "completions", "llama_cpp"])
def test_the_probe_returns_the_log_probabilities_of_the_model(
    dialect: str, server: FakeEndpoint, probe: Probing, kept: Path
) -> None:
    found = probe(dialect)
    assert found.seen.noise == 0.0
    assert found.takes_ids == (dialect != "llama_cpp")
    assert found.seen.server == ("vllm-0.32.0-0" if dialect == "vllm" else None)
    local = tokenized(server.model.located.folder, kept, start_token="<s>", window=100)
    for text, values in zip(TEXTS, found.seen.values, strict=True):
        expected = twin_statistics(local, server.forward, text)["logprob"][dialect == "llama_cpp" :]
        np.testing.assert_allclose(values, expected[: len(values)], atol=1e-4)


def noisy_by(deviation: float) -> Callable[[Json, Json], Json]:
    """Return a function that changes the answer to the second of two equal requests."""
    seen: dict[str, int] = {}

    def noisy(answer: Json, body: Json) -> Json:
        ids = str(body["prompt"])
        seen[ids] = seen.get(ids, 0) + 1
        place = answer["choices"][0]["prompt_logprobs"][5]
        own = str(body["prompt"][0][5])
        place[own]["logprob"] -= deviation * (seen[ids] == 2)
        return answer

    return noisy


def test_noise_is_the_largest_deviation_between_equal_requests(server: FakeEndpoint, probe: Probing) -> None:
    server.bend = noisy_by(0.25)
    assert probe(top_logprobs=0).seen.noise == pytest.approx(0.25, abs=1e-4)


def replace_own(answer: Json, body: Json, value: Callable[[int], float]) -> Json:
    """Replace the log-probability of the token at each position (vLLM's form)."""
    for number, place in enumerate(answer["choices"][0]["prompt_logprobs"]):
        own, *others = (place or {0: {}}).values()
        own.update(logprob=value(number), rank=1)
        for other in others:
            other.update(logprob=-9999.0)
    return answer


def fewer(answer: Json, body: Json) -> Json:
    """Remove all best tokens except three."""
    for place in answer["choices"][0]["prompt_logprobs"][1:]:
        for name in [name for name in list(place)[1:] if place[name]["rank"] > 3]:
            del place[name]
    return answer


def wrong_moments(answer: Json, body: Json) -> Json:
    for place in answer["choices"][0]["prompt_logprobs"][1:]:
        if "-2" in place:
            place["-2"]["logprob"] += 0.01
    return answer


@pytest.mark.parametrize(
    ("behaviour", "entry", "line"),
    [
        (
            {"bend": partial(replace_own, value=lambda number: 0.0)},
            {},
            r"the \d+ tokens of 5 different texts has the same probability, 1\. No",
        ),
        (
            {"bend": partial(replace_own, value=lambda number: -0.01 * (number % 9))},
            {},
            "a probability of more than one half. No",
        ),
        (
            {"bend": partial(replace_own, value=lambda number: -9999.0)},
            {},
            r"no log-probability for \d+ of the \d+ tokens of plain texts",
        ),
        (
            {"bend": noisy_by(11.9)},
            {"top_logprobs": 0},
            r"answers to the same request differ by 12 nats. The limit is 0.5",
        ),
        (
            {"bend": fewer},
            {},
            "returns at most 3 best tokens per position. The entry requests 20 best tokens per position",
        ),
        ({"off_by": 1}, {"dialect": "completions"}, r"the most likely token at only \d of \d\d positions"),
        ({"best": 22}, {"moments": True}, "runs without the plugin corpus-audit-vllm"),
        (
            {"plugin": True, "best": 22},
            {"top_logprobs": 22},
            "Set moments: true in the entry of the model, or change top_logprobs",
        ),
        (
            {"plugin": True, "best": -1, "bend": wrong_moments},
            {"moments": True},
            "differ by up to 0.01 from those of the whole distribution",
        ),
        ({}, {"model": "huge"}, "The model `huge` does not exist"),
    ],
)
def test_a_server_that_cannot_be_used_is_refused_in_one_line(
    behaviour: dict[str, Any], entry: dict[str, Any], line: str, server: FakeEndpoint, probe: Probing
) -> None:
    for name, value in behaviour.items():
        setattr(server, name, value)
    with pytest.raises(ModelError, match=line) as refused:
        probe(**entry)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("dialect", ["vllm", "completions"])
def test_the_largest_number_of_best_tokens_is_reported(dialect: str, server: FakeEndpoint, probe: Probing) -> None:
    server.best = 7
    with pytest.raises(
        ModelError, match=r"answered 400 .*7.* The entry requests 20 best tokens per position. Set top_log"
    ):
        probe(dialect)
    probe(dialect, top_logprobs=7)


def test_a_window_longer_than_the_context_is_refused(server: FakeEndpoint, probe: Probing) -> None:
    server.room = 100
    with pytest.raises(ModelError, match=r"accepts prompts of at most 99 tokens, .* window is 100. Set window: 99"):
        probe()
    probe(entry={"window": 99})
    assert max(len(body["prompt"][0]) for body in server.bodies()) == 99


def test_a_busy_or_stopped_server_is_reported(server: FakeEndpoint, probe: Probing) -> None:
    server.next = [fault(503)] * 9
    with pytest.raises(TransientError, match=r"the server answered 503 .*\(after 3 attempts\). Try again later"):
        probe("completions")
    server.stop()
    with pytest.raises(TransientError, match="the server cannot be reached"):
        probe("completions")
