"""OpenAI's completions route with `echo` and `logprobs`, and llama-cpp-python's form of it.

The best tokens are named by their text, which several may share: the largest log-probability is read from them and no
more. The prompt is sent as ids where the server takes them (probe.py finds out), else as the string that means them;
then the answer must say where each token begins, and these places must be ours. The first token has no
log-probability: it is a start token, or is not scored.

llama-cpp-python's server (0.3.36) takes strings alone, one a request. It puts the start token in front by itself and
drops it from the answer, together with the log-probability of the first token after it; without a start token in front
all log-probabilities are those of the next token's place, which the probe refuses. It drops the start token wherever a
text spells it. So a text is scored after the server's start token and from its second token on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from audit_pipeline.extras.servers.client import ServerRequest
from audit_pipeline.extras.servers.dialect_interface import (
    Answer,
    AnswerDetail,
    AnswerPart,
    AnswerPosition,
    BadAnswerError,
    Completion,
    Count,
    Logprob,
    OtherTokensError,
    Prompt,
    build_answer,
    build_request,
    nan_to_minus_inf,
    parse_answer,
    require_entry_per_token,
)
from audit_pipeline.models.server_settings import Endpoint


class _Logprobs(AnswerPart):
    token_logprobs: list[Logprob]
    top_logprobs: list[Mapping[str, Logprob] | None] | None = None
    text_offset: list[int] | None = None


class _Choice(AnswerPart):
    logprobs: _Logprobs | None = None


class _Usage(AnswerPart):
    prompt_tokens: Count
    completion_tokens: Count = 0


class _Completion(Completion[_Choice]):
    usage: _Usage | None = None


def build_echo_request(endpoint: Endpoint, prompt: Prompt, detail: AnswerDetail) -> ServerRequest:
    """Return a request for the log-probabilities of ``prompt``.

    One token is generated: some servers take 0 for "until the context is full".
    """
    body = {
        "model": endpoint.model,
        "prompt": [prompt.ids] if prompt.spelled is None else prompt.spelled.text,
        "echo": True,
        "logprobs": detail.best,
        "max_tokens": 1,
        "temperature": 0,
    }
    return build_request(endpoint, "completions", body, prompt, detail)


def parse_echo_answer(prompt: Prompt, detail: AnswerDetail, body: bytes) -> Answer:
    """Return the statistics in an answer, which may hold an entry for the generated token or not."""
    completion = parse_answer(_Completion, body)
    found, tokens = _require_logprobs(completion), len(prompt.ids)
    entries = len(found.token_logprobs)
    require_entry_per_token(entries - (entries == tokens + 1), tokens)
    if completion.usage is not None:
        require_entry_per_token(completion.usage.prompt_tokens, tokens)
    return _build_answer(prompt, detail, completion, found)


def parse_llama_cpp_answer(prompt: Prompt, detail: AnswerDetail, body: bytes) -> Answer:
    """Return the statistics in llama-cpp-python's answer, which counts all tokens and gives all but the first."""
    completion = parse_answer(_Completion, body)
    found, tokens = _require_logprobs(completion), len(prompt.ids)
    if completion.usage is None:
        raise BadAnswerError("its answer does not say how many tokens the prompt has")
    if completion.usage.prompt_tokens == tokens:
        raise BadAnswerError(
            "the server puts no start token in front, and is off by one then: start it with --kv_overrides "
            "tokenizer.ggml.add_bos_token=bool:true (and tokenizer.ggml.bos_token_id=int:N, where N is the start token)"
        )
    require_entry_per_token(completion.usage.prompt_tokens - 1, tokens)
    given = len(found.token_logprobs) - completion.usage.completion_tokens
    if 0 < given < tokens:
        raise OtherTokensError(
            f"its answer has {given} entries for {tokens} tokens: the server leaves its start token out, and a text "
            "that spells it cannot be scored"
        )
    require_entry_per_token(given, tokens)
    return _build_answer(prompt, detail, completion, found)


def _require_logprobs(completion: _Completion) -> _Logprobs:
    found = completion.choices[0].logprobs
    if found is None:
        raise BadAnswerError("its answer has no log-probabilities at all")
    return found


def _build_answer(prompt: Prompt, detail: AnswerDetail, completion: _Completion, logprobs: _Logprobs) -> Answer:
    tokens = len(prompt.ids)
    if prompt.spelled is not None:
        offsets = tuple((logprobs.text_offset or [])[:tokens])
        if offsets not in prompt.spelled.starts:
            raise OtherTokensError("it cuts the text into other tokens than the entry's tokenizer, or does not say")
    tops = logprobs.top_logprobs or [None] * tokens
    if len(tops) < tokens:
        require_entry_per_token(len(tops), tokens)
    scored = slice(tokens - prompt.scored, tokens)
    places = [
        _build_place(own, best or {}) for own, best in zip(logprobs.token_logprobs[scored], tops[scored], strict=True)
    ]
    answer = build_answer(places, detail, completion.system_fingerprint)
    # Tokens of one spelling are one entry: how many were given is unknown.
    return replace(answer, best_given=detail.best if any(tops[scored]) else 0)


def _build_place(own: float, best_logprobs: Mapping[str, float]) -> AnswerPosition:
    best = [max(map(nan_to_minus_inf, (own, *best_logprobs.values())))] if best_logprobs else []
    return AnswerPosition(own=own, best=best)
