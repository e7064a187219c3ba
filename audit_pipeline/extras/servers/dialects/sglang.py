"""SGLang's own route, /generate: the answer has each token id with its log-probability and the best tokens.

The dialect completions is for SGLang's OpenAI route.

The first token has no log-probability: it is a start token, or is not scored. Answers have no ranks.
"""

from __future__ import annotations

from typing import Any

from audit_pipeline.extras.servers.client import ServerRequest
from audit_pipeline.extras.servers.dialect_interface import (
    Answer,
    AnswerDetail,
    AnswerPart,
    AnswerPosition,
    BadAnswerError,
    Logprob,
    Prompt,
    TokenId,
    build_answer,
    build_request,
    nan_to_minus_inf,
    parse_answer,
    require_entry_per_token,
)
from audit_pipeline.models.config import Endpoint

_Triple = tuple[Logprob, TokenId, Any]
"""A log-probability, the id of its token, and the token's text."""


class _Meta(AnswerPart):
    input_token_logprobs: list[_Triple] | None = None
    input_top_logprobs: list[list[_Triple] | None] | None = None


class _Generated(AnswerPart):
    meta_info: _Meta


def build_sglang_request(endpoint: Endpoint, prompt: Prompt, detail: AnswerDetail) -> ServerRequest:
    """Return a request for the log-probabilities of a prompt. The server has one model, so the request names none."""
    body = {
        "input_ids": prompt.ids,
        "sampling_params": {"max_new_tokens": 1, "temperature": 0},
        "return_logprob": True,
        # Without it, the answer has only the log-probabilities of generated tokens.
        "logprob_start_len": 0,
        "top_logprobs_num": detail.best,
    }
    return build_request(endpoint, "generate", body, prompt, detail, root=True)


def parse_sglang_answer(prompt: Prompt, detail: AnswerDetail, body: bytes) -> Answer:
    """Return the statistics in an answer."""
    meta = parse_answer(_Generated, body).meta_info
    own = meta.input_token_logprobs or []
    require_entry_per_token(len(own), len(prompt.ids))
    if tuple(token for _, token, _ in own) != prompt.ids:
        raise BadAnswerError("its answer has other token ids than the request")
    tops = meta.input_top_logprobs or [None] * len(own)
    require_entry_per_token(len(tops), len(prompt.ids))
    first = len(own) - prompt.scored
    places = [_build_place(value, best or []) for (value, _, _), best in zip(own[first:], tops[first:], strict=True)]
    return build_answer(places, detail)


def _build_place(own: float, best_tokens: list[_Triple]) -> AnswerPosition:
    best = sorted(((nan_to_minus_inf(value), token) for value, token, _ in best_tokens), key=lambda entry: -entry[0])
    best_logprobs = [value for value, _ in best]
    best_ids = [token for _, token in best]
    return AnswerPosition(own=own, best=best_logprobs, best_ids=best_ids)
