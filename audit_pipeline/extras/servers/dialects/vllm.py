"""vLLM's completions route: the answer has each token id with its log-probability, its rank and the best tokens.

The form is that of vLLM 0.32 and 0.33. A plugin in the server adds mean and standard deviation. The answer repeats the
ids of the prompt, so that shifted positions are detected. A rank is the number of logits that are at least as large.
The first token has no entry: it is a start token, or is not scored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from audit_pipeline.extras.servers import dialect_interface as interface
from audit_pipeline.extras.servers.client import ServerRequest
from audit_pipeline.models.server_settings import Endpoint

# If a request asks for this number of best tokens, the plugin returns mean and deviation in place of two of them.
WITH_MOMENTS = 22
# The plugin's two entries have ids that no token has.
_MEAN = -1
_STD = -2
_Key = Annotated[int, Field(ge=_STD, le=interface.LARGEST_ID)]


@dataclass(frozen=True)
class _Entry:
    logprob: interface.Logprob
    rank: interface.Rank | None = None


class _Choice(interface.AnswerPart):
    prompt_logprobs: list[dict[_Key, _Entry] | None] | None = None
    prompt_token_ids: list[int] | None = None


def build_vllm_request(endpoint: Endpoint, prompt: interface.Prompt, detail: interface.AnswerDetail) -> ServerRequest:
    """Return a request for the log-probabilities of a prompt. vLLM generates at least one token."""
    body = {
        "model": endpoint.model,
        "prompt": [prompt.ids],
        "prompt_logprobs": WITH_MOMENTS if detail.moments and detail.best != interface.WHOLE else detail.best,
        "max_tokens": 1,
        "temperature": 0,
        "return_token_ids": True,
    }
    return interface.build_request(endpoint, "completions", body, prompt, detail)


def parse_vllm_answer(prompt: interface.Prompt, detail: interface.AnswerDetail, body: bytes) -> interface.Answer:
    """Return the statistics in an answer."""
    completion = interface.parse_answer(interface.Completion[_Choice], body)
    [choice] = completion.choices
    entries = choice.prompt_logprobs or []
    interface.require_entry_per_token(len(entries), len(prompt.ids))
    if choice.prompt_token_ids is None or tuple(choice.prompt_token_ids) != prompt.ids:
        raise interface.BadAnswerError("its answer has other token ids than the request")
    first = len(entries) - prompt.scored
    places = [
        _build_place(entry, token, detail) for entry, token in zip(entries[first:], prompt.ids[first:], strict=True)
    ]
    return interface.build_answer(places, detail, completion.system_fingerprint)


def _build_place(
    entry: Mapping[int, _Entry] | None, token: int, detail: interface.AnswerDetail
) -> interface.AnswerPosition:
    rank = entry[token].rank if entry is not None and token in entry else None
    if entry is None or rank is None:
        raise interface.BadAnswerError("its answer lacks a token's own log-probability or rank")
    if _MEAN in entry and not detail.moments:
        raise interface.BadAnswerError(
            f"the plugin corpus-audit-vllm in the server replaces {WITH_MOMENTS} best tokens by mean and "
            "deviation: set moments: true in the entry, or change top_logprobs"
        )
    tokens = {token: token_entry for token, token_entry in entry.items() if token >= 0}
    is_whole = detail.best == interface.WHOLE
    n_best = WITH_MOMENTS - 2 if detail.moments else detail.best
    # An answer always contains the token of the prompt. If this token is not one of the best, it is an additional
    # entry.
    if not is_whole and len(tokens) > n_best:
        del tokens[token]
    ordered = sorted(tokens.items(), key=lambda item: (-interface.nan_to_minus_inf(item[1].logprob), item[1].rank or 0))
    best = [interface.nan_to_minus_inf(token_entry.logprob) for _, token_entry in ordered]
    best_ids = [token for token, _ in ordered]
    moments = None
    if detail.moments:
        moments = _compute_moments(best) if is_whole else _extract_moments(entry)
    return interface.AnswerPosition(
        own=entry[token].logprob, best=best, best_ids=best_ids, rank=rank - 1, moments=moments
    )


def _extract_moments(entry: Mapping[int, _Entry]) -> tuple[float, float]:
    if _MEAN not in entry or _STD not in entry:
        raise interface.BadAnswerError(
            "its answer has no mean and deviation: the server runs without the plugin corpus-audit-vllm "
            "(remove moments from the entry, or install the plugin there)"
        )
    return entry[_MEAN].logprob, entry[_STD].logprob


def _compute_moments(logprobs: Sequence[float]) -> tuple[float, float]:
    own = np.array([logprob for logprob in logprobs if logprob > -math.inf])
    # build_answer refuses larger values. The minimum avoids overflow before that.
    p = np.exp(np.minimum(own, 0.0))
    mean = float((p * own).sum())
    return mean, float(np.sqrt((p * (own - mean) ** 2).sum()))
