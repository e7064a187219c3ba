"""Trying an endpoint out before the first text: whether its answers mean what they are taken for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from pydantic import Field

from audit_pipeline.errors import ModelError, UnansweredError
from audit_pipeline.extras.servers.client import OversizedError, RefusedError, ServerRequest
from audit_pipeline.extras.servers.dialect_interface import (
    WHOLE,
    Answer,
    AnswerDetail,
    AnswerPart,
    BadAnswerError,
    Prompt,
    build_prompt,
    build_url,
    find_floor,
    parse_answer,
)
from audit_pipeline.extras.servers.prompt_client import EndpointClient
from audit_pipeline.http.retry import RetryPolicy
from audit_pipeline.models.endpoint_history import Probe, find_largest_deviation, is_different_model
from audit_pipeline.models.fingerprint import COUNTING, TEXTS
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.token_statistics.tokens import cut_windows, encode, window_and_stride

_ENOUGH_AGREE = 0.5
# So far apart, at least, are the least and the most likely token of texts of different kinds.
_LEAST_SPREAD = 1e-3
# More likely than all others together.
_CERTAIN = float(np.log(0.5))
# The server and this process add up a vocabulary in different orders.
_MOMENTS_TOLERANCE = 1e-3
_LARGEST_NOISE = 0.5
_ONCE = RetryPolicy(attempts=1, first_pause=0.0)
_BAD_REQUEST = frozenset((400, 422))
# What servers answer that cannot read ids: llama-cpp-python's falls over.
_NO_IDS = frozenset((400, 422, 500))


@dataclass(frozen=True)
class ProbeResult:
    """What trying an endpoint out has found.

    ``seen``: what its answers to ``TEXTS`` were. ``takes_ids``: whether prompts are sent as token ids.
    """

    seen: Probe
    takes_ids: bool


def probe_endpoint(model: TokenizedModel, client: EndpointClient) -> ProbeResult:
    """Try the endpoint of ``model`` out: some twenty short requests.

    Raises ModelError, in one line, where its answers cannot be used; TransientError where it does not answer;
    BudgetError where the budget does not even suffice for this.
    """
    _require_window_fits(model, client)
    takes_ids = _detect_id_support(model, client)
    _require_top_logprobs(model, client, takes_ids)
    _require_aligned(model, client, takes_ids)
    if not takes_ids:
        _require_same_special_tokens(model, client)
    prompts = _build_prompts(model, TEXTS, as_string=not takes_ids)
    first, second = (_request_known_answers(client, prompts, AnswerDetail(0)) for _ in range(2))
    _require_spread(client, first)
    _require_no_floor(client, first)
    noise = max(_measure_deviation(*pair) for pair in zip(first, second, strict=True))
    if noise > _LARGEST_NOISE:
        raise ModelError(
            f"{client.who}: two answers to one request are {noise:.2g} nats apart ({_LARGEST_NOISE} at most may be): "
            "several models answer in turn, or its precision is too low to compare texts by it"
        )
    _require_moments(model, client, prompts)
    return ProbeResult(Probe(_extract_logprobs(first), noise, first[0].server), takes_ids)


class ModelCheck:
    """Whether the model that was ``probed`` is still there, while it is run: its answers to ``TEXTS`` once more.

    ``cost``: the tokens that this takes.
    """

    def __init__(self, model: TokenizedModel, client: EndpointClient, probe_result: ProbeResult) -> None:
        self._client, self._seen = client, probe_result.seen
        self._prompts = _build_prompts(model, TEXTS, as_string=not probe_result.takes_ids)
        self.token_count = sum(prompt.token_count for prompt in self._prompts)

    def require_same_model(self, *, with_retries: bool = True) -> None:
        """Raise ModelError where another model answers; else as :meth:`EndpointClient.iterate_answers` does."""
        found = _request_known_answers(self._client, self._prompts, AnswerDetail(0), None if with_retries else _ONCE)
        if is_different_model(self._seen.values, replace(self._seen, values=_extract_logprobs(found))):
            raise ModelError(f"{self._client.who}: the model at the endpoint changed during the requests: run it again")


def _extract_logprobs(answers: Sequence[Answer]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(answer.values["logprob"].tolist()) for answer in answers)


def _require_spread(client: EndpointClient, answers: Sequence[Answer]) -> None:
    """Refuse a server that finds every token of different texts as likely as every other, or none of them unlikely."""
    values = np.concatenate([answer.values["logprob"] for answer in answers])
    highest, lowest = values.max(), values.min()
    is_even = highest - lowest < _LEAST_SPREAD
    if is_even or lowest > _CERTAIN:
        given = f"{np.exp(highest):.3g}" if is_even else "more than one half"
        raise ModelError(
            f"{client.who}: it gives each of the {len(values)} tokens of {len(answers)} different texts a "
            "probability of "
            f"{given}, which no model does: it makes its answers up, or something in between does"
        )


def _require_no_floor(client: EndpointClient, answers: Sequence[Answer]) -> None:
    """Refuse a server that gives its least likely tokens one probability."""
    floor = find_floor(np.concatenate([answer.values["logprob"] for answer in answers]))
    if floor is not None:
        raise ModelError(
            f"{client.who}: its log-probabilities end at {floor:.6g}: whatever is less likely gets that, and no text "
            "could be scored rightly. Set the server to give log-probabilities as they are"
        )


def _build_prompts(
    model: TokenizedModel, texts: Iterable[str], *, as_string: bool, max_tokens: int | None = None
) -> list[Prompt]:
    """Return the first window of each text, of at most ``max_tokens`` tokens."""
    window, stride = window_and_stride(model)
    size = window if max_tokens is None else min(window, max_tokens)
    return [
        build_prompt(model, text, cut_windows(0, text, size, min(stride, size - 1))[0], as_string=as_string)
        for text in encode(model, list(texts))
    ]


def _request_answers_in_order(
    client: EndpointClient, prompts: Sequence[Prompt], detail: AnswerDetail, patience: RetryPolicy | None = None
) -> list[Answer]:
    with closing(client.request_answers(enumerate(prompts), detail, patience=patience)) as found:
        by_number = dict(answer for answered in found for answer in answered)
    return [by_number[number] for number in range(len(prompts))]


def _request_known_answers(
    client: EndpointClient, prompts: Sequence[Prompt], detail: AnswerDetail, patience: RetryPolicy | None = None
) -> list[Answer]:
    """As :func:`_request_answers_in_order`; raises ModelError where a log-probability is not known."""
    answers = _request_answers_in_order(client, prompts, detail, patience)
    logprobs = np.concatenate([answer.values["logprob"] for answer in answers])
    if unknown := int(np.isnan(logprobs).sum()):
        raise ModelError(
            f"{client.who}: it gives no log-probability for {unknown} of the {len(logprobs)} tokens of plain texts "
            "(minus infinity, a number in its place such as -9999, or one above 0): it does not say how likely every "
            "token is, as is needed"
        )
    return answers


class _Listed(AnswerPart):
    id: str | None = None
    max_model_len: Annotated[int, Field(ge=2)] | None = None


class _Models(AnswerPart):
    data: list[_Listed]


def _require_window_fits(model: TokenizedModel, client: EndpointClient) -> None:
    """Refuse a window that the server has no room for, where the server says how much it has (vLLM, SGLang)."""
    try:
        listed = parse_answer(_Models, client.ask(ServerRequest(build_url(client.endpoint, "models"))))
    except (RefusedError, OversizedError, BadAnswerError):
        return
    rooms = [
        listed_model.max_model_len
        for listed_model in listed.data
        if listed_model.id == client.endpoint.model and listed_model.max_model_len
    ]
    # One token is generated.
    if rooms and (window := window_and_stride(model)[0]) > rooms[0] - 1:
        raise ModelError(
            f"{client.who}: the server takes {rooms[0] - 1} tokens at most with the one it generates, and the "
            f"entry's window is {window}: set window: {rooms[0] - 1} in config/models.yaml"
        )


def _detect_id_support(model: TokenizedModel, client: EndpointClient) -> bool:
    """Return whether prompts are sent as ids: by the dialect, or as an attempt shows where it may be either."""
    if client.endpoint.traits.takes_ids is not None:
        return client.endpoint.traits.takes_ids
    prompts = _build_prompts(model, TEXTS[:1], as_string=False)
    try:
        _request_answers_in_order(client, prompts, AnswerDetail(0), _ONCE)
    except (RefusedError, UnansweredError) as error:
        if error.status in _NO_IDS:
            return False
        if isinstance(error, RefusedError):
            raise
        # Too busy, or out of reach: with patience now.
        _request_answers_in_order(client, prompts, AnswerDetail(0))
    return True


def _require_top_logprobs(model: TokenizedModel, client: EndpointClient, takes_ids: bool) -> None:
    """Refuse a server that gives fewer of the best tokens than the entry says."""
    requested = client.endpoint.top_logprobs
    [prompt] = _build_prompts(model, [COUNTING], as_string=not takes_ids, max_tokens=8)
    advice = (
        f"the entry asks for {requested} best tokens a place: set top_logprobs in config/models.yaml to what it gives"
    )
    try:
        [answer] = _request_answers_in_order(client, [prompt], AnswerDetail(requested))
    except RefusedError as error:
        raise (ModelError(f"{error}; {advice}") if error.status in _BAD_REQUEST and requested else error) from error
    if answer.best_given < min(requested, model.vocab_size):
        raise ModelError(
            f"{client.who}: the server gives {answer.best_given} best tokens a place at most, and {advice}"
        )


def _require_aligned(model: TokenizedModel, client: EndpointClient, takes_ids: bool) -> None:
    """Refuse log-probabilities that are not those of their own tokens."""
    [prompt] = _build_prompts(model, [COUNTING], as_string=not takes_ids)
    [answer] = _request_known_answers(client, [prompt], AnswerDetail(min(1, client.endpoint.top_logprobs)))
    own = answer.values["logprob"]
    best = answer.values.get("max_logprob", np.full_like(own, _CERTAIN))
    # The beginning may be anything yet.
    known = slice(len(own) // 3, None)
    agree = int((own[known] >= best[known] - 1e-4).sum())
    if agree < _ENOUGH_AGREE * len(own[known]):
        raise ModelError(
            f"{client.who}: while counting to 40, the next number's token is the most likely at {agree} of "
            f"{len(own[known])} places only: the server gives log-probabilities of other places (llama-cpp-python does "
            "without a start token in front), or it has another model than the entry says"
        )


def _require_same_special_tokens(model: TokenizedModel, client: EndpointClient) -> None:
    """Refuse a server that cuts a text which spells a special token otherwise than the tokenizer here does."""
    spelled = [
        token
        for number in sorted(model.tokenizer.special_ids)
        if (token := model.tokenizer.find_token(number)) is not None and token != model.start_token
    ]
    if not spelled:
        return
    prompts = _build_prompts(model, [f"One {spelled[0]} two."], as_string=True)
    try:
        _request_answers_in_order(client, prompts, AnswerDetail(0))
    except ModelError as error:
        raise ModelError(
            f"{client.who}: the server reads a text that spells {spelled[0]} otherwise than the tokenizer here "
            f"({error})"
        ) from error


def _require_moments(model: TokenizedModel, client: EndpointClient, prompts: Sequence[Prompt]) -> None:
    """Refuse means and deviations that are not those of the whole vocabulary, which is asked for where it may be."""
    if not client.endpoint.moments:
        return
    # One place each: a whole distribution takes megabytes.
    few = [replace(prompt, ids=prompt.ids[:2], scored=1) for prompt in prompts]
    given = _request_answers_in_order(client, few, AnswerDetail(0, moments=True))
    try:
        whole = _request_answers_in_order(client, few, AnswerDetail(WHOLE, moments=True))
    except RefusedError as error:
        if error.status not in _BAD_REQUEST:
            raise
        client.notify(f"{client.who}: means and deviations cannot be checked: it gives no whole distributions")
        return
    off = max(_measure_deviation(*pair, name) for pair in zip(given, whole, strict=True) for name in ("mean", "std"))
    if off > _MOMENTS_TOLERANCE:
        raise ModelError(
            f"{client.who}: means and deviations are up to {off:.2g} away from those of the whole distribution: leave "
            "moments out of the entry in config/models.yaml, or update the plugin in the server"
        )


def _measure_deviation(answer: Answer, other: Answer, name: str = "logprob") -> float:
    return find_largest_deviation(answer.values[name].tolist(), other.values[name].tolist())
