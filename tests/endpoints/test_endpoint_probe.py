"""The probe: what it finds, and the servers that it refuses in one line, before anything is scored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bad_server import fault
from fake_endpoint import FakeEndpoint, Json
from tiny_models import tokenized, twin_statistics

from audit_pipeline.endpoints.endpoint_client import EndpointClient
from audit_pipeline.endpoints.probe import probe_endpoint
from audit_pipeline.errors import ModelError, TransientError
from audit_pipeline.models.probe_texts import TEXTS
from audit_pipeline.models.tokenized_model import TokenizedModel

Entry = Callable[..., TokenizedModel]
Asking = Callable[..., EndpointClient]
DIALECTS = ("vllm", "sglang", "completions", "llama_cpp")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_found(dialect: str, server: FakeEndpoint, behind: Entry, asking: Asking, kept: Path) -> None:
    model = behind(dialect)
    found = probe_endpoint(model, asking(model))
    assert found.seen.noise == 0.0
    assert found.takes_ids == (dialect != "llama_cpp")
    assert found.seen.server == ("vllm-0.32.0-0" if dialect == "vllm" else None)
    local = tokenized(server.model.located.folder, kept, start_token="<s>", window=100)
    for text, values in zip(TEXTS, found.seen.values, strict=True):
        expected = twin_statistics(local, server.forward, text)["logprob"][dialect == "llama_cpp" :]
        np.testing.assert_allclose(values, expected[: len(values)], atol=1e-4)


def noisy_by(deviation: float) -> Callable[[Json, Json], Json]:
    """The second of two equal requests gets another answer."""
    seen: dict[str, int] = {}

    def noisy(answer: Json, body: Json) -> Json:
        ids = str(body["prompt"])
        seen[ids] = seen.get(ids, 0) + 1
        place = answer["choices"][0]["prompt_logprobs"][5]
        own = str(body["prompt"][0][5])
        place[own]["logprob"] -= deviation * (seen[ids] == 2)
        return answer

    return noisy


@pytest.mark.parametrize("deviation", [0.05, 0.25])
def test_noise_is_the_largest_deviation_between_equal_requests(
    deviation: float, server: FakeEndpoint, behind: Entry, asking: Asking
) -> None:
    server.bend = noisy_by(deviation)
    model = behind(top_logprobs=0)
    assert probe_endpoint(model, asking(model)).seen.noise == pytest.approx(deviation, abs=1e-4)


def test_models_that_answer_in_turn_are_refused(server: FakeEndpoint, behind: Entry, asking: Asking) -> None:
    server.bend = noisy_by(11.9)
    model = behind(top_logprobs=0)
    with pytest.raises(ModelError, match=r"two answers to one request are 12 nats apart \(0.5 at most"):
        probe_endpoint(model, asking(model))


def evenly(value: Callable[[int], float]) -> Callable[[Json, Json], Json]:
    """A server (vLLM's form) that gives the token at each place of a prompt the log-probability ``value`` of it."""

    def bend(answer: Json, body: Json) -> Json:
        for number, place in enumerate(answer["choices"][0]["prompt_logprobs"]):
            own, *others = (place or {0: {}}).values()
            own.update(logprob=value(number), rank=1)
            for other in others:
                other.update(logprob=-9999.0)
        return answer

    return bend


def fewer(answer: Json, body: Json) -> Json:
    """Three of the best tokens at most, whatever is asked for."""
    for place in answer["choices"][0]["prompt_logprobs"][1:]:
        for name in [name for name in list(place)[1:] if place[name]["rank"] > 3]:
            del place[name]
    return answer


@pytest.mark.parametrize(
    ("lie", "line"),
    [
        (
            evenly(lambda number: 0.0),
            r"each of the \d+ tokens of 5 different texts a probability of 1, which",
        ),
        (evenly(lambda number: -0.01 * (number % 9)), "a probability of more than one half, which"),
        (evenly(lambda number: -9999.0), r"no log-probability for \d+ of the \d+ tokens of plain texts"),
        (fewer, "gives 3 best tokens a place at most, and the entry asks for 20 best tokens a place: set top_"),
    ],
)
def test_a_server_that_lies_is_refused(
    lie: Callable[[Json, Json], Json], line: str, server: FakeEndpoint, behind: Entry, asking: Asking
) -> None:
    server.bend = lie
    model = behind()
    with pytest.raises(ModelError, match=line) as refused:
        probe_endpoint(model, asking(model))
    assert "\n" not in str(refused.value)


def test_log_probabilities_of_the_next_place_are_refused(server: FakeEndpoint, behind: Entry, asking: Asking) -> None:
    model = behind("completions")
    server.off_by = 1
    with pytest.raises(ModelError, match=r"the best one at \d of \d\d places only"):
        probe_endpoint(model, asking(model))


@pytest.mark.parametrize("dialect", ["vllm", "completions"])
def test_the_largest_number_of_best_tokens_is_told(
    dialect: str, server: FakeEndpoint, behind: Entry, asking: Asking
) -> None:
    server.best = 7
    model = behind(dialect)
    with pytest.raises(
        ModelError, match=r"answered 400 .*7.*; the entry asks for 20 best tokens a place: set top_logprobs"
    ):
        probe_endpoint(model, asking(model))
    model = behind(dialect, top_logprobs=7)
    probe_endpoint(model, asking(model))


def test_a_window_that_the_server_has_no_room_for(server: FakeEndpoint, behind: Entry, asking: Asking) -> None:
    server.room = 100
    model = behind()
    with pytest.raises(ModelError, match=r"takes 99 tokens at most .* window is 100: set window: 99"):
        probe_endpoint(model, asking(model))
    model = behind(entry={"window": 99})
    probe_endpoint(model, asking(model))
    assert max(len(body["prompt"][0]) for body in server.bodies()) == 99


def test_moments_need_the_plugin(server: FakeEndpoint, behind: Entry, asking: Asking) -> None:
    server.best = 22
    model = behind(moments=True)
    with pytest.raises(ModelError, match="runs without the plugin corpus-audit-vllm"):
        probe_endpoint(model, asking(model))


def test_the_plugin_answers_to_22_best_tokens_with_moments(server: FakeEndpoint, behind: Entry, asking: Asking) -> None:
    server.plugin, server.best = True, 22
    model = behind(top_logprobs=22)
    with pytest.raises(ModelError, match="set moments: true in the entry, or another top_logprobs"):
        probe_endpoint(model, asking(model))


def test_moments_that_are_not_those_of_the_whole_vocabulary(
    server: FakeEndpoint, behind: Entry, asking: Asking
) -> None:
    server.plugin, server.best = True, -1

    def wrong(answer: Json, body: Json) -> Json:
        for place in answer["choices"][0]["prompt_logprobs"][1:]:
            if "-2" in place:
                place["-2"]["logprob"] += 0.01
        return answer

    server.bend = wrong
    model = behind(moments=True)
    with pytest.raises(ModelError, match=r"up to 0.01 away from those of the whole distribution"):
        probe_endpoint(model, asking(model))


def test_a_server_that_is_away_or_busy(server: FakeEndpoint, behind: Entry, asking: Asking) -> None:
    model = behind("completions")
    server.next = [fault(503)] * 9
    with pytest.raises(TransientError, match=r"the server answered 503 .*\(after 3 attempts\); try again later"):
        probe_endpoint(model, asking(model))
    server.stop()
    with pytest.raises(TransientError, match="it cannot be reached"):
        probe_endpoint(model, asking(model))


def test_a_model_that_the_server_does_not_have(behind: Entry, asking: Asking) -> None:
    model = behind(**{"model": "huge"})
    with pytest.raises(ModelError, match="The model `huge` does not exist"):
        probe_endpoint(model, asking(model))
