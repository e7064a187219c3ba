"""SGLang's own route, /generate: the answer has each token id with its log-probability and the best tokens.

The dialect completions is for SGLang's OpenAI route.

The first token has no log-probability: it is a start token, or is not scored. Answers have no ranks.
"""

from __future__ import annotations

from typing import Any

from audit_pipeline.extras.servers import dialect_interface as interface
from audit_pipeline.extras.servers.client import ServerRequest
from audit_pipeline.models.server_settings import Endpoint

_Triple = tuple[interface.Logprob, interface.TokenId, Any]
"""A log-probability, the id of its token, and the token's text."""


class _Meta(interface.AnswerPart):
    input_token_logprobs: list[_Triple] | None = None
    input_top_logprobs: list[list[_Triple] | None] | None = None


class _Generated(interface.AnswerPart):
    meta_info: _Meta


def build_sglang_request(endpoint: Endpoint, prompt: interface.Prompt, detail: interface.AnswerDetail) -> ServerRequest:
    """Return a request for the log-probabilities of a prompt. The server has one model, so the request names none."""
    body = {
        "input_ids": prompt.ids,
        "sampling_params": {"max_new_tokens": 1, "temperature": 0},
        "return_logprob": True,
        # Without it, the answer has only the log-probabilities of generated tokens.
        "logprob_start_len": 0,
        "top_logprobs_num": detail.best,
    }
    return interface.build_request(endpoint, "generate", body, prompt, detail, root=True)


def parse_sglang_answer(prompt: interface.Prompt, detail: interface.AnswerDetail, body: bytes) -> interface.Answer:
    """Return the statistics in an answer."""
    meta = interface.parse_answer(_Generated, body).meta_info
    own = meta.input_token_logprobs or []
    interface.require_entry_per_token(len(own), len(prompt.ids))
    if tuple(token for _, token, _ in own) != prompt.ids:
        raise interface.BadAnswerError("its answer has other token ids than the request")
    tops = meta.input_top_logprobs or [None] * len(own)
    interface.require_entry_per_token(len(tops), len(prompt.ids))
    first = len(own) - prompt.scored
    places = [_build_place(value, best or []) for (value, _, _), best in zip(own[first:], tops[first:], strict=True)]
    return interface.build_answer(places, detail)


def _build_place(own: float, best_tokens: list[_Triple]) -> interface.AnswerPosition:
    best = sorted(
        ((interface.nan_to_minus_inf(value), token) for value, token, _ in best_tokens), key=lambda entry: -entry[0]
    )
    best_logprobs = [value for value, _ in best]
    best_ids = [token for _, token in best]
    return interface.AnswerPosition(own=own, best=best_logprobs, best_ids=best_ids)
