"""The probe: what it finds, and the servers that it refuses in one line, before anything is scored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def ignored_echo(answer: Json, body: Json) -> Json:
    choice = answer["choices"][0]
    logprobs = {name: values[-1:] for name, values in (choice["logprobs"] or {}).items()}
    return {**answer, "choices": [{**choice, "prompt_logprobs": None, "logprobs": logprobs or None}]}


def no_logprobs(answer: Json, body: Json) -> Json:
    return {**answer, "choices": [{**answer["choices"][0], "prompt_logprobs": None, "logprobs": None}]}


def shortened(answer: Json, body: Json) -> Json:
    """The server has left out the beginning of a long prompt, and says nothing."""
    choice = answer["choices"][0]
    for holder in (choice, choice["logprobs"] or {}):
        for name, values in holder.items():
            if isinstance(values, list):
                holder[name] = values[3:]
    return {**answer, "usage": {**answer["usage"], "prompt_tokens": answer["usage"]["prompt_tokens"] - 3}}


def certain(answer: Json, body: Json) -> Json:
    """Every token of every prompt, and with it whatever else, has a probability of 1."""
    if "meta_info" in answer:
        meta = answer["meta_info"]
        own = [[None if value is None else 0.0, *rest] for value, *rest in meta["input_token_logprobs"]]
        return {"meta_info": {**meta, "input_token_logprobs": own, **sure_of(own, meta)}}
    choice = answer["choices"][0]
    for place in filter(None, choice.get("prompt_logprobs") or ()):
        own, *others = place.values()
        own.update(logprob=0.0, rank=1)
        for other in others:
            other.update(logprob=-99.0)
    if choice["logprobs"] is not None:
        given = choice["logprobs"]["token_logprobs"]
        choice["logprobs"]["token_logprobs"] = [None if value is None else 0.0 for value in given]
        for best in filter(None, choice["logprobs"]["top_logprobs"]):
            best.update(dict.fromkeys(best, -99.0))
    return answer


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


def sure_of(own: list[Any], meta: Json) -> Json:
    """The best tokens that go with tokens that are certain."""
    if "input_top_logprobs" not in meta:
        return {}
    best = [
        None if places is None else [token, *([-99.0, number, None] for _, number, _ in places[1:])]
        for token, places in zip(own, meta["input_top_logprobs"], strict=True)
    ]
    return {"input_top_logprobs": best}


def numbers_of(value: object) -> Callable[[Json, Json], Json]:
    """A server that writes ``value`` for ranks, ids and counts."""

    def bend(answer: Json, body: Json) -> Json:
        if "meta_info" in answer:
            for triple in answer["meta_info"]["input_token_logprobs"]:
                triple[1] = value
            return answer
        choice = answer["choices"][0]
        for place in filter(None, choice.get("prompt_logprobs") or ()):
            for entry in place.values():
                entry["rank"] = value
        if choice["logprobs"] is not None:
            answer["usage"] = {"prompt_tokens": value, "completion_tokens": value}
        return answer

    return bend


def fewer(answer: Json, body: Json) -> Json:
    """Three of the best tokens at most, whatever is asked for."""
    for place in answer["choices"][0]["prompt_logprobs"][1:]:
        for name in [name for name in list(place)[1:] if place[name]["rank"] > 3]:
            del place[name]
    return answer


@pytest.mark.parametrize(
    ("dialect", "lie", "line"),
    [
        ("vllm", ignored_echo, "its answer has 0 entries for 8 tokens: it ignores"),
        ("completions", ignored_echo, "its answer has 1 entries for 51 tokens: it ignores"),
        ("llama_cpp", ignored_echo, "its answer has 0 entries for 8 tokens: it ignores"),
        ("completions", no_logprobs, "no log-probabilities at all"),
        ("vllm", shortened, "cuts the text otherwise, or shortens it"),
        ("completions", shortened, "cuts the text otherwise, or shortens it"),
        ("vllm", certain, r"each of the \d+ tokens of 5 different texts a probability of 1, which no model does"),
        ("sglang", certain, r"each of the \d+ tokens of 5 different texts a probability of 1, which no model does"),
        ("completions", certain, r"each of the \d+ tokens of 5 different texts a probability of 1, which"),
        ("llama_cpp", certain, r"each of the \d+ tokens of 5 different texts a probability of 1, which no model does"),
        (
            "vllm",
            evenly(lambda number: -9999.0),
            r"no log-probability for \d+ of the \d+ tokens of plain texts",
        ),
        (
            "vllm",
            evenly(lambda number: -0.01 * (number % 9)),
            "a probability of more than one half, which",
        ),
        ("vllm", numbers_of(2**31), r"prompt_logprobs\.1\..*: Input should be less than or equal to 2147483647"),
        ("sglang", numbers_of(2**31), r"input_token_logprobs\.0\.1: Input should be less than or equal to 2147483647"),
        ("completions", numbers_of(2**31), "usage.prompt_tokens: Input should be less than or equal"),
        ("llama_cpp", numbers_of(2**31), "usage.prompt_tokens: Input should be less than or equal"),
        ("llama_cpp", numbers_of(-1), "usage.prompt_tokens: Input should be greater than or equal to 0"),
        ("vllm", numbers_of(True), "rank: Input should be a valid integer"),
        ("sglang", numbers_of(1.5), r"input_token_logprobs\.0\.1: Input should be a valid integer"),
        ("llama_cpp", numbers_of("8"), "usage.prompt_tokens: Input should be a valid integer"),
        ("vllm", fewer, "gives 3 best tokens a place at most, and the entry asks for 20 best tokens a place: set top_"),
    ],
)
def test_a_server_that_lies_is_refused(
    dialect: str,
    lie: Callable[[Json, Json], Json],
    line: str,
    server: FakeEndpoint,
    behind: Entry,
    asking: Asking,
) -> None:
    server.bend = lie
    model = behind(dialect)
    with pytest.raises(ModelError, match=line) as refused:
        probe_endpoint(model, asking(model))
    assert "\n" not in str(refused.value)


def test_llama_cpp_without_a_start_token_is_off_by_one(server: FakeEndpoint, behind: Entry, asking: Asking) -> None:
    model = behind("llama_cpp")
    server.bos = None
    with pytest.raises(ModelError, match="no start token in front, and is off by one then: start it with --kv_over"):
        probe_endpoint(model, asking(model))


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
