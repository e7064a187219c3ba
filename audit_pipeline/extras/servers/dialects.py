"""The client of an endpoint, and the dialects of the servers that it can ask.

A dialect builds the request for the log-probabilities of a prompt, and parses the answer. ``DIALECTS`` lists them. In
every dialect, the first token has no log-probability: it is a start token, or is not scored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import Field

from audit_pipeline.extras.servers import dialect_interface as interface
from audit_pipeline.extras.servers.client import PATIENCE, Client, ServerAnswer, ServerRequest
from audit_pipeline.http.faults import RetryPolicy
from audit_pipeline.models.server_settings import DialectName, Endpoint
from audit_pipeline.models.usage_budget import Budget

K = TypeVar("K")

_OTHER_IDS = (
    "The answer contains other token ids than the request, so its log-probabilities do not belong to the text. Check "
    "model and dialect in the endpoint of the model's entry."
)


class EndpointClient(Client):
    """A client of the endpoint of a model."""

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        budget: Budget,
        *,
        notify: Callable[[str], None] = lambda message: None,
        patience: RetryPolicy = PATIENCE,
    ) -> None:
        entry_name = "the endpoint of config/models.yaml"
        super().__init__(
            f"{name} at {endpoint.url}", endpoint, budget, entry_name=entry_name, notify=notify, patience=patience
        )
        self.endpoint = endpoint

    def request_answers(
        self,
        prompts: Iterable[tuple[K, interface.Prompt]],
        detail: interface.AnswerDetail,
        *,
        patience: RetryPolicy | None = None,
        on_other_tokens: Callable[[K, interface.OtherTokensError], None] | None = None,
    ) -> Generator[list[tuple[K, interface.Answer]]]:
        """Yield the answers to prompts in the order in which they arrive, each with the key of its prompt.

        Args:
            prompts: Pairs of a key and a prompt.
            detail: Detail of the answers.
            patience: Policy of retries. None: the policy of the client.
            on_other_tokens: Function that is called for a string that the server splits into other tokens. None: such a
                string raises BadAnswerError.

        Raises:
            BadAnswerError: If an answer is unusable. The message names the text.
            AuditError: If :meth:`iterate_answers` raises it.
        """
        dialect = DIALECTS[self.endpoint.dialect]

        def read(keyed: tuple[K, interface.Prompt], answer: ServerAnswer) -> list[tuple[K, interface.Answer]]:
            key, prompt = keyed
            try:
                return [(key, dialect.read_answer(prompt, detail, answer.body))]
            except interface.BadAnswerError as error:
                if (
                    on_other_tokens is not None
                    and prompt.spelled is not None
                    and isinstance(error, interface.OtherTokensError)
                ):
                    on_other_tokens(key, error)
                    return []
                raise interface.BadAnswerError(
                    f"{self.server_label}: {error} The text has the sha256 {prompt.sha256}."
                ) from error

        requests = ((keyed, dialect.build_request(self.endpoint, keyed[1], detail)) for keyed in prompts)
        with closing(self.iterate_answers(requests, read, patience=patience)) as batches:
            for batch in batches:
                yield list(chain.from_iterable(batch))


# vLLM's completions route. The form is that of vLLM 0.32 and 0.33. The answer has each token id with its
# log-probability, its rank and the best tokens. A plugin in the server adds mean and standard deviation. The answer
# repeats the ids of the prompt, so that shifted positions are detected. A rank is the number of logits that are at
# least as large.
# If a request asks for this number of best tokens, the plugin returns mean and deviation in place of two of them.
WITH_MOMENTS = 22
# The plugin's two entries have ids that no token has.
_MEAN = -1
_STD = -2
_VllmKey = Annotated[int, Field(ge=_STD, le=interface.LARGEST_ID)]


@dataclass(frozen=True)
class _VllmEntry:
    logprob: interface.Logprob
    rank: interface.Rank | None = None


class _VllmChoice(interface.AnswerPart):
    prompt_logprobs: list[dict[_VllmKey, _VllmEntry] | None] | None = None
    prompt_token_ids: list[int] | None = None


def _build_vllm_request(endpoint: Endpoint, prompt: interface.Prompt, detail: interface.AnswerDetail) -> ServerRequest:
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


def _parse_vllm_answer(prompt: interface.Prompt, detail: interface.AnswerDetail, body: bytes) -> interface.Answer:
    """Return the statistics in an answer."""
    completion = interface.parse_answer(interface.Completion[_VllmChoice], body)
    [choice] = completion.choices
    entries = choice.prompt_logprobs or []
    interface.require_entry_per_token(len(entries), len(prompt.ids))
    if choice.prompt_token_ids is None or tuple(choice.prompt_token_ids) != prompt.ids:
        raise interface.BadAnswerError(_OTHER_IDS)
    first = len(entries) - prompt.scored
    positions = [
        _build_vllm_position(entry, token, detail)
        for entry, token in zip(entries[first:], prompt.ids[first:], strict=True)
    ]
    return interface.build_answer(positions, detail, completion.system_fingerprint)


def _build_vllm_position(
    entry: Mapping[int, _VllmEntry] | None, token: int, detail: interface.AnswerDetail
) -> interface.AnswerPosition:
    rank = entry[token].rank if entry is not None and token in entry else None
    if entry is None or rank is None:
        raise interface.BadAnswerError("The answer lacks the log-probability or the rank of a token.")
    if _MEAN in entry and not detail.moments:
        raise interface.BadAnswerError(
            f"The plugin corpus-audit-vllm in the server replaces {WITH_MOMENTS} best tokens by mean and standard "
            "deviation. Set moments: true in the entry of the model, or change top_logprobs."
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


def _extract_moments(entry: Mapping[int, _VllmEntry]) -> tuple[float, float]:
    if _MEAN not in entry or _STD not in entry:
        raise interface.BadAnswerError(
            "The answer contains no mean and standard deviation. The server runs without the plugin corpus-audit-vllm. "
            "Install the plugin in the server, or remove moments from the entry of the model."
        )
    return entry[_MEAN].logprob, entry[_STD].logprob


def _compute_moments(logprobs: Sequence[float]) -> tuple[float, float]:
    own = np.array([logprob for logprob in logprobs if logprob > -math.inf])
    # build_answer refuses larger values. The minimum avoids overflow before that.
    p = np.exp(np.minimum(own, 0.0))
    mean = float((p * own).sum())
    return mean, float(np.sqrt((p * (own - mean) ** 2).sum()))


# SGLang's own route, /generate. The answer has each token id with its log-probability and the best tokens, but no
# ranks. The dialect completions is for SGLang's OpenAI route.

_SglangToken = tuple[interface.Logprob, interface.TokenId, Any]
"""A log-probability, the id of its token, and the token's text."""


class _SglangMeta(interface.AnswerPart):
    input_token_logprobs: list[_SglangToken] | None = None
    input_top_logprobs: list[list[_SglangToken] | None] | None = None


class _SglangAnswer(interface.AnswerPart):
    meta_info: _SglangMeta


def _build_sglang_request(
    endpoint: Endpoint, prompt: interface.Prompt, detail: interface.AnswerDetail
) -> ServerRequest:
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


def _parse_sglang_answer(prompt: interface.Prompt, detail: interface.AnswerDetail, body: bytes) -> interface.Answer:
    """Return the statistics in an answer."""
    meta = interface.parse_answer(_SglangAnswer, body).meta_info
    own = meta.input_token_logprobs or []
    interface.require_entry_per_token(len(own), len(prompt.ids))
    if tuple(token for _, token, _ in own) != prompt.ids:
        raise interface.BadAnswerError(_OTHER_IDS)
    tops = meta.input_top_logprobs or [None] * len(own)
    interface.require_entry_per_token(len(tops), len(prompt.ids))
    first = len(own) - prompt.scored
    positions = [
        _build_sglang_position(value, best or []) for (value, _, _), best in zip(own[first:], tops[first:], strict=True)
    ]
    return interface.build_answer(positions, detail)


def _build_sglang_position(own: float, best_tokens: list[_SglangToken]) -> interface.AnswerPosition:
    best = sorted(
        ((interface.nan_to_minus_inf(value), token) for value, token, _ in best_tokens), key=lambda entry: -entry[0]
    )
    best_logprobs = [value for value, _ in best]
    best_ids = [token for _, token in best]
    return interface.AnswerPosition(own=own, best=best_logprobs, best_ids=best_ids)


# OpenAI's completions route with `echo` and `logprobs`, and llama-cpp-python's form of it.
#
# Answers name the best tokens by their text, which several tokens can share. So only the largest log-probability is
# read from them. The prompt is sent as ids if the server accepts ids (probe.py tries), and otherwise as a string. The
# answer to a string must contain the position of each token, and these positions must be those of the local tokenizer.
#
# llama-cpp-python's server (0.3.36) accepts only strings, one per request. It adds a start token and removes it from
# the answer, together with the log-probability of the first token after it. Without a start token, each log-probability
# belongs to the next position. The probe refuses such a server. The server also removes start tokens that a text
# spells. So a text is scored after the server's start token, from the second token of the text.


class _EchoLogprobs(interface.AnswerPart):
    token_logprobs: list[interface.Logprob]
    top_logprobs: list[Mapping[str, interface.Logprob] | None] | None = None
    text_offset: list[int] | None = None


class _EchoChoice(interface.AnswerPart):
    logprobs: _EchoLogprobs | None = None


class _EchoUsage(interface.AnswerPart):
    prompt_tokens: interface.Count
    completion_tokens: interface.Count = 0


class _EchoCompletion(interface.Completion[_EchoChoice]):
    usage: _EchoUsage | None = None


def _build_echo_request(endpoint: Endpoint, prompt: interface.Prompt, detail: interface.AnswerDetail) -> ServerRequest:
    """Return a request for the log-probabilities of a prompt.

    The server generates one token, because some servers generate until the context is full for a limit of 0.
    """
    body = {
        "model": endpoint.model,
        "prompt": [prompt.ids] if prompt.spelled is None else prompt.spelled.text,
        "echo": True,
        "logprobs": detail.best,
        "max_tokens": 1,
        "temperature": 0,
    }
    return interface.build_request(endpoint, "completions", body, prompt, detail)


def _parse_echo_answer(prompt: interface.Prompt, detail: interface.AnswerDetail, body: bytes) -> interface.Answer:
    """Return the statistics in an answer, which can have an entry for the generated token."""
    completion = interface.parse_answer(_EchoCompletion, body)
    logprobs = _require_logprobs(completion)
    tokens = len(prompt.ids)
    entries = len(logprobs.token_logprobs)
    interface.require_entry_per_token(entries - (entries == tokens + 1), tokens)
    if completion.usage is not None:
        interface.require_entry_per_token(completion.usage.prompt_tokens, tokens)
    return _build_echo_answer(prompt, detail, completion, logprobs)


def _parse_llama_cpp_answer(prompt: interface.Prompt, detail: interface.AnswerDetail, body: bytes) -> interface.Answer:
    """Return the statistics in llama-cpp-python's answer, which counts all tokens but lacks the start token."""
    completion = interface.parse_answer(_EchoCompletion, body)
    logprobs = _require_logprobs(completion)
    tokens = len(prompt.ids)
    if completion.usage is None:
        raise interface.BadAnswerError(
            "The answer has no field usage.prompt_tokens, so the tokens that the server has read are unknown."
        )
    if completion.usage.prompt_tokens == tokens:
        raise interface.BadAnswerError(
            "The server adds no start token. Without it, each log-probability belongs to the next position. Start the "
            "server with --kv_overrides tokenizer.ggml.add_bos_token=bool:true and "
            "tokenizer.ggml.bos_token_id=int:N. N is the id of the start token."
        )
    interface.require_entry_per_token(completion.usage.prompt_tokens - 1, tokens)
    given = len(logprobs.token_logprobs) - completion.usage.completion_tokens
    if 0 < given < tokens:
        raise interface.OtherTokensError(
            f"The answer has {given} entries for {tokens} tokens. The server removes start tokens, so a text that "
            "contains a start token cannot be scored."
        )
    interface.require_entry_per_token(given, tokens)
    return _build_echo_answer(prompt, detail, completion, logprobs)


def _require_logprobs(completion: _EchoCompletion) -> _EchoLogprobs:
    logprobs = completion.choices[0].logprobs
    if logprobs is None:
        raise interface.BadAnswerError(
            "The answer contains no log-probabilities. Check that the server returns logprobs with echo "
            "(llama-cpp-python: start the server with --logits_all true)."
        )
    return logprobs


def _build_echo_answer(
    prompt: interface.Prompt, detail: interface.AnswerDetail, completion: _EchoCompletion, logprobs: _EchoLogprobs
) -> interface.Answer:
    tokens = len(prompt.ids)
    if prompt.spelled is not None:
        offsets = tuple((logprobs.text_offset or [])[:tokens])
        if offsets not in prompt.spelled.starts:
            raise interface.OtherTokensError(
                "The server splits the text into other tokens than the tokenizer of the entry, or does not return "
                "their positions."
            )
    tops = logprobs.top_logprobs or [None] * tokens
    if len(tops) < tokens:
        interface.require_entry_per_token(len(tops), tokens)
    scored = slice(tokens - prompt.scored, tokens)
    positions = [
        _build_echo_position(own, best or {})
        for own, best in zip(logprobs.token_logprobs[scored], tops[scored], strict=True)
    ]
    answer = interface.build_answer(positions, detail, completion.system_fingerprint)
    # Tokens with the same text share an entry, so the number of best tokens is unknown.
    best_given = detail.best if any(tops[scored]) else 0
    return replace(answer, best_given=best_given)


def _build_echo_position(own: float, best_logprobs: Mapping[str, float]) -> interface.AnswerPosition:
    best = [max(map(interface.nan_to_minus_inf, (own, *best_logprobs.values())))] if best_logprobs else []
    return interface.AnswerPosition(own=own, best=best)


DIALECTS: Mapping[DialectName, interface.ServerDialect] = {
    "vllm": interface.ServerDialect(_build_vllm_request, _parse_vllm_answer),
    "sglang": interface.ServerDialect(_build_sglang_request, _parse_sglang_answer),
    "llama_cpp": interface.ServerDialect(_build_echo_request, _parse_llama_cpp_answer),
    "completions": interface.ServerDialect(_build_echo_request, _parse_echo_answer),
}
