"""The content of valid answers of each kind of server, and invalid answers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from copy import deepcopy
from functools import reduce
from operator import getitem
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from audit_pipeline.extras.servers.dialect_interface import (
    AnswerDetail,
    BadAnswerError,
    Prompt,
    PromptString,
    find_floor,
)
from audit_pipeline.extras.servers.dialects import DIALECTS
from audit_pipeline.models.server_settings import DIALECT_TRAITS, DialectName

PROMPT = Prompt("sha", (1, 5, 7), 2)
STRING = Prompt("sha", (1, 5, 7), 2, PromptString("a b", frozenset({(0, 3, 4)})))
OPENAI = {"token_logprobs": [None, -1.5, -0.25], "top_logprobs": [None, {"x": -0.5}, {"y": -0.25}]}
ANSWERS: Mapping[DialectName, dict[str, Any]] = {
    "vllm": {
        "choices": [
            {
                "prompt_logprobs": [
                    None,
                    {"5": {"logprob": -1.5, "rank": 2}, "9": {"logprob": -0.5, "rank": 1}},
                    {"7": {"logprob": -0.25, "rank": 1}},
                ],
                "prompt_token_ids": [1, 5, 7],
            }
        ]
    },
    "sglang": {
        "meta_info": {
            "input_token_logprobs": [[None, 1, None], [-1.5, 5, None], [-0.25, 7, None]],
            "input_top_logprobs": [None, [[-0.5, 9, None]], [[-0.25, 7, None]]],
        }
    },
    "completions": {"choices": [{"logprobs": OPENAI}], "usage": {"prompt_tokens": 3}},
    # One token more than was sent, which the server puts in front, and the generated one's entry.
    "llama_cpp": {
        "choices": [
            {
                "logprobs": {
                    "token_logprobs": [*OPENAI["token_logprobs"], -0.1],
                    "top_logprobs": [*OPENAI["top_logprobs"], {}],
                    "text_offset": [0, 3, 4, 5],
                }
            }
        ],
        "usage": {"prompt_tokens": 4, "completion_tokens": 1},
    },
}
ENTRIES, TRIPLES, LOGPROBS = ("choices", 0, "prompt_logprobs"), ("meta_info", "input_token_logprobs"), ("choices", 0)
OWN: Mapping[DialectName, tuple[Any, ...]] = {
    "vllm": (*ENTRIES, 1, "5", "logprob"),
    "sglang": (*TRIPLES, 1, 0),
    "completions": (*LOGPROBS, "logprobs", "token_logprobs", 1),
    "llama_cpp": (*LOGPROBS, "logprobs", "token_logprobs", 1),
}
"""Where each answer has the log-probability of the first scored token."""


def read(
    dialect: DialectName, place: tuple[Any, ...] = (), value: object = None, best: int = 1
) -> Mapping[str, npt.NDArray[Any]]:
    """Parse an answer with ``value`` at a position. ``...``: nothing at this position."""
    answer = deepcopy(ANSWERS[dialect])
    if place:
        holder = reduce(getitem, place[:-1], answer)
        if value is ...:
            del holder[place[-1]]
        else:
            holder[place[-1]] = value
    prompt = STRING if dialect == "llama_cpp" else PROMPT
    return DIALECTS[dialect].read_answer(prompt, AnswerDetail(best), json.dumps(answer).encode()).values


@pytest.mark.parametrize("dialect", ANSWERS)
def test_each_dialect_is_parsed(dialect: DialectName) -> None:
    values, traits = read(dialect), DIALECT_TRAITS[dialect]
    expected = {
        "logprob": [-1.5, -0.25],
        "max_logprob": [-0.5, -0.25],
        **({"argmax_id": [9, 7]} if traits.names_ids else {}),
        **({"rank": [1, 0]} if traits.gives_rank else {}),
    }
    assert {name: array.tolist() for name, array in values.items()} == expected


@pytest.mark.parametrize(
    "placeholder", [-9999, -9999.0, -100, -1000, -1e30, -3.4e38, -1e300, -math.inf, math.nan, None, 0.5]
)
@pytest.mark.parametrize("dialect", ANSWERS)
def test_placeholders_are_unknown(dialect: DialectName, placeholder: float | None) -> None:
    logprobs = read(dialect, OWN[dialect], placeholder, best=0)["logprob"]
    assert np.isnan(logprobs).tolist() == [True, False]


@pytest.mark.parametrize("low", [-98.0, -99.5, -100.25, -998.5])
@pytest.mark.parametrize("dialect", ANSWERS)
def test_low_log_probabilities_are_kept(dialect: DialectName, low: float) -> None:
    assert read(dialect, OWN[dialect], low, best=0)["logprob"].tolist() == [low, -0.25]


@pytest.mark.parametrize(
    ("dialect", "place", "value", "line"),
    [
        ("vllm", OWN["vllm"], "-1.5 or so", "expected form"),
        ("vllm", OWN["vllm"], False, "expected form .*valid number"),
        ("vllm", OWN["vllm"], -1e-9, "more likely than the best"),
        ("vllm", (*ENTRIES, 1, "9", "logprob"), 0.5, "impossible log-probabilities"),
        ("vllm", (*ENTRIES, 1, "9", "logprob"), 3e38, "impossible log-probabilities"),
        ("vllm", (*ENTRIES, 1, "5", "rank"), 0, r"expected form .*\.rank: .* greater than or equal to 1"),
        ("vllm", (*ENTRIES, 1, "5", "rank"), 2**31, "rank: Input should be less than or equal to 2147483647"),
        ("vllm", (*ENTRIES, 1, "5", "rank"), 10**400, "expected form .*less than or equal to"),
        ("vllm", (*ENTRIES, 1, "5", "rank"), 1.5, "expected form .*rank: .*valid integer"),
        ("vllm", (*ENTRIES, 1, "5", "rank"), True, "expected form .*rank: .*valid integer"),
        ("vllm", (*ENTRIES, 1, "5", "rank"), None, "lacks the log-probability or the rank"),
        ("vllm", (*ENTRIES, 1, "5"), ..., "lacks the log-probability or the rank"),
        ("vllm", (*ENTRIES, 1), None, "lacks the log-probability or the rank"),
        ("vllm", (*ENTRIES, 1, str(2**31)), {"logprob": -0.1, "rank": 1}, "expected form"),
        ("vllm", (*ENTRIES, 1, "-3"), {"logprob": -0.1, "rank": 1}, "expected form"),
        (
            "vllm",
            (*ENTRIES, 2),
            ...,
            "2 entries for 3 tokens. The server splits the text into other tokens, or shortens it",
        ),
        ("vllm", ENTRIES, [None] * 4, "4 entries for 3 tokens"),
        ("vllm", ENTRIES, None, "0 entries for 3 tokens. The server ignores"),
        ("vllm", ENTRIES, {"504": -1}, "expected form"),
        ("vllm", ("choices", 0, "prompt_token_ids"), [7, 5, 1], "other token ids than the request"),
        ("vllm", ("choices", 0, "prompt_token_ids"), None, "other token ids than the request"),
        ("sglang", (*TRIPLES, 1, 1), 2**31, r"input_token_logprobs\.1\.1: Input should be less than or equal to"),
        ("sglang", (*TRIPLES, 1, 1), 1.5, r"input_token_logprobs\.1\.1: Input should be a valid integer"),
        ("sglang", (*TRIPLES, 1, 1), 6, "other token ids than the request"),
        ("completions", (*LOGPROBS, "logprobs"), None, "contains no log-probabilities"),
        ("completions", (*OWN["completions"][:-1],), [-0.1], "1 entries for 3 tokens. The server ignores"),
        (
            "completions",
            (*OWN["completions"],),
            ...,
            "2 entries for 3 tokens. The server splits the text into other tokens",
        ),
        ("completions", ("usage", "prompt_tokens"), 2**31, "usage.prompt_tokens: Input should be less than or equal"),
        ("llama_cpp", ("usage", "prompt_tokens"), -1, "usage.prompt_tokens: Input should be greater than or equal"),
        ("llama_cpp", ("usage", "prompt_tokens"), "8", "usage.prompt_tokens: Input should be a valid integer"),
        (
            "llama_cpp",
            ("usage", "prompt_tokens"),
            3,
            "adds no start token. Without it, each log-probability belongs to the next position. Start the",
        ),
        ("llama_cpp", ("usage",), ..., "has no field usage.prompt_tokens"),
        ("llama_cpp", (*OWN["llama_cpp"],), ..., "The server removes start tokens, so a text that contains"),
        ("llama_cpp", (*OWN["llama_cpp"][:-1],), [-0.1], "0 entries for 3 tokens. The server ignores"),
        (
            "llama_cpp",
            (*LOGPROBS, "logprobs", "text_offset", 1),
            2,
            "into other tokens than the tokenizer of the entry",
        ),
    ],
)
def test_invalid_answers_are_refused_in_one_line(
    dialect: DialectName, place: tuple[Any, ...], value: object, line: str
) -> None:
    with pytest.raises(BadAnswerError, match=line) as refused:
        read(dialect, place, value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("logprobs", "floor"),
    [
        ([-3.0, -3.0, -3.0], -3.0),
        ([-3.0, -3.0, -1.0], None),
        ([-9.5, -9.5, -9.5, -9.25, -9.25, -1.0], None),
        ([-9.5, -9.5, -9.5, -9.25, -9.0, -1.0, -1.0, -1.0], None),
        ([-9.5, -9.5, -9.5, -9.25, -9.0, -8.0, -7.0, -6.0, -1.0, -1.0, -1.0], -9.5),
        # A memorised text, rounded.
        ([-0.01, -0.01, -0.01, 0.0], None),
        ([math.nan] * 3, None),
        ([], None),
    ],
)
def test_a_floor_is_a_frequent_least_value(logprobs: list[float], floor: float | None) -> None:
    assert find_floor(np.array(logprobs, dtype=np.float32)) == floor
