"""OpenAI's completions route with `echo` and `logprobs`, and llama-cpp-python's form of it.

Answers name the best tokens by their text, which several tokens can share. So only the largest log-probability is read
from them. The prompt is sent as ids if the server accepts ids (probe.py tries), and otherwise as a string. The answer
to a string must contain the position of each token, and these positions must be those of the local tokenizer. The first
token has no log-probability: it is a start token, or is not scored.

llama-cpp-python's server (0.3.36) accepts only strings, one per request. It adds a start token and removes it from the
answer, together with the log-probability of the first token after it. Without a start token, each log-probability is
that of the next position. The probe refuses such a server. The server also removes start tokens that a text spells. So
a text is scored after the server's start token, from the second token of the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from audit_pipeline.extras.servers import dialect_interface as interface
from audit_pipeline.extras.servers.client import ServerRequest
from audit_pipeline.models.server_settings import Endpoint


class _Logprobs(interface.AnswerPart):
    token_logprobs: list[interface.Logprob]
    top_logprobs: list[Mapping[str, interface.Logprob] | None] | None = None
    text_offset: list[int] | None = None


class _Choice(interface.AnswerPart):
    logprobs: _Logprobs | None = None


class _Usage(interface.AnswerPart):
    prompt_tokens: interface.Count
    completion_tokens: interface.Count = 0


class _Completion(interface.Completion[_Choice]):
    usage: _Usage | None = None


def build_echo_request(endpoint: Endpoint, prompt: interface.Prompt, detail: interface.AnswerDetail) -> ServerRequest:
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


def parse_echo_answer(prompt: interface.Prompt, detail: interface.AnswerDetail, body: bytes) -> interface.Answer:
    """Return the statistics in an answer, which can have an entry for the generated token."""
    completion = interface.parse_answer(_Completion, body)
    logprobs = _require_logprobs(completion)
    tokens = len(prompt.ids)
    entries = len(logprobs.token_logprobs)
    interface.require_entry_per_token(entries - (entries == tokens + 1), tokens)
    if completion.usage is not None:
        interface.require_entry_per_token(completion.usage.prompt_tokens, tokens)
    return _build_answer(prompt, detail, completion, logprobs)


def parse_llama_cpp_answer(prompt: interface.Prompt, detail: interface.AnswerDetail, body: bytes) -> interface.Answer:
    """Return the statistics in llama-cpp-python's answer, which counts all tokens but lacks the start token."""
    completion = interface.parse_answer(_Completion, body)
    logprobs = _require_logprobs(completion)
    tokens = len(prompt.ids)
    if completion.usage is None:
        raise interface.BadAnswerError("its answer has no usage.prompt_tokens")
    if completion.usage.prompt_tokens == tokens:
        raise interface.BadAnswerError(
            "the server adds no start token, and its log-probabilities are off by one without it: start it with "
            "--kv_overrides tokenizer.ggml.add_bos_token=bool:true (and "
            "tokenizer.ggml.bos_token_id=int:N, where N is the start token)"
        )
    interface.require_entry_per_token(completion.usage.prompt_tokens - 1, tokens)
    given = len(logprobs.token_logprobs) - completion.usage.completion_tokens
    if 0 < given < tokens:
        raise interface.OtherTokensError(
            f"its answer has {given} entries for {tokens} tokens: the server removes start tokens, and a text "
            "that spells one cannot be scored"
        )
    interface.require_entry_per_token(given, tokens)
    return _build_answer(prompt, detail, completion, logprobs)


def _require_logprobs(completion: _Completion) -> _Logprobs:
    logprobs = completion.choices[0].logprobs
    if logprobs is None:
        raise interface.BadAnswerError("its answer has no log-probabilities at all")
    return logprobs


def _build_answer(
    prompt: interface.Prompt, detail: interface.AnswerDetail, completion: _Completion, logprobs: _Logprobs
) -> interface.Answer:
    tokens = len(prompt.ids)
    if prompt.spelled is not None:
        offsets = tuple((logprobs.text_offset or [])[:tokens])
        if offsets not in prompt.spelled.starts:
            raise interface.OtherTokensError(
                "it splits the text into other tokens than the entry's tokenizer, or does not return their positions"
            )
    tops = logprobs.top_logprobs or [None] * tokens
    if len(tops) < tokens:
        interface.require_entry_per_token(len(tops), tokens)
    scored = slice(tokens - prompt.scored, tokens)
    places = [
        _build_place(own, best or {}) for own, best in zip(logprobs.token_logprobs[scored], tops[scored], strict=True)
    ]
    answer = interface.build_answer(places, detail, completion.system_fingerprint)
    # Tokens with the same text share an entry, so the number of best tokens is unknown.
    best_given = detail.best if any(tops[scored]) else 0
    return replace(answer, best_given=best_given)


def _build_place(own: float, best_logprobs: Mapping[str, float]) -> interface.AnswerPosition:
    best = [max(map(interface.nan_to_minus_inf, (own, *best_logprobs.values())))] if best_logprobs else []
    return interface.AnswerPosition(own=own, best=best)
