"""The probe of an endpoint before the first text: checks that its answers have the expected meaning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated

import numpy as np
from pydantic import Field

from audit_pipeline.errors import ModelError, UnansweredError
from audit_pipeline.extras.servers import dialect_interface
from audit_pipeline.extras.servers.client import OversizedError, RefusedError, ServerRequest
from audit_pipeline.extras.servers.dialect_interface import Answer, AnswerDetail, AnswerPart, Prompt
from audit_pipeline.extras.servers.dialects import EndpointClient
from audit_pipeline.http.faults import NO_RETRY, RetryPolicy
from audit_pipeline.models.fingerprint import COUNTING, TEXTS, Probe, find_largest_deviation, is_different_model
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.token_statistics.tokens import cut_windows, encode, window_and_stride

# Minimum share of positions of the text COUNTING at which the next token is the most likely token.
_ENOUGH_AGREE = 0.5
# The log-probabilities of texts of different kinds are at least this far apart, in nats.
_LEAST_SPREAD = 1e-3
# A token with a larger log-probability is more likely than all others together.
_CERTAIN = float(np.log(0.5))
# The server and this process sum over the vocabulary in different orders.
_MOMENTS_TOLERANCE = 1e-3
# Maximum difference between log-probabilities in two answers to one request, in nats.
_LARGEST_NOISE = 0.5
_BAD_REQUEST = frozenset((400, 422))
# Statuses of servers that cannot read token ids. llama-cpp-python's server responds with 500.
_NO_IDS = frozenset((400, 422, 500))


@dataclass(frozen=True)
class ProbeResult:
    """The result of a probe.

    Attributes:
        seen: The endpoint's log-probabilities of the fixed texts ``TEXTS``, and the largest difference between two
            answers.
        takes_ids: Whether prompts are sent as token ids.
    """

    seen: Probe
    takes_ids: bool


def probe_endpoint(model: TokenizedModel, client: EndpointClient) -> ProbeResult:
    """Check the endpoint of a model with about twenty short requests.

    Raises:
        ModelError: If the endpoint's answers are unusable.
        TransientError: If the endpoint does not answer.
        BudgetError: If the budget is too small for the probe.
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
            f"{client.server_label}: Two answers to the same request differ by {noise:.2g} nats. The limit is "
            f"{_LARGEST_NOISE}. Either different models answer in turn, or the precision is too low to compare texts. "
            "Use a server that runs one model with a higher precision."
        )
    _require_moments(model, client, prompts)
    return ProbeResult(Probe(_extract_logprobs(first), noise, first[0].server), takes_ids)


class ModelCheck:
    """A check that the endpoint still has the model of the probe: it requests the answers to ``TEXTS`` again.

    Attributes:
        token_count: Number of tokens that a check uses.
    """

    def __init__(self, model: TokenizedModel, client: EndpointClient, probe_result: ProbeResult) -> None:
        self._client = client
        self._seen = probe_result.seen
        self._prompts = _build_prompts(model, TEXTS, as_string=not probe_result.takes_ids)
        self.token_count = sum(prompt.token_count for prompt in self._prompts)

    def require_same_model(self, *, with_retries: bool = True) -> None:
        """Require that the endpoint still runs the model that was probed.

        Args:
            with_retries: Whether to repeat a failed request.

        Raises:
            ModelError: If another model answers.
            AuditError: If :meth:`EndpointClient.iterate_answers` raises it.
        """
        patience = None if with_retries else NO_RETRY
        answers = _request_known_answers(self._client, self._prompts, AnswerDetail(0), patience)
        if is_different_model(self._seen.values, replace(self._seen, values=_extract_logprobs(answers))):
            raise ModelError(
                f"{self._client.server_label}: The model at the endpoint changed during the requests. Repeat the "
                "command."
            )


def _extract_logprobs(answers: Sequence[Answer]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(answer.values["logprob"].tolist()) for answer in answers)


def _require_spread(client: EndpointClient, answers: Sequence[Answer]) -> None:
    """Refuse a server if all tokens of different texts are equally likely, or all more likely than one half."""
    values = np.concatenate([answer.values["logprob"] for answer in answers])
    highest = values.max()
    lowest = values.min()
    is_even = highest - lowest < _LEAST_SPREAD
    if is_even or lowest > _CERTAIN:
        probability = (
            f"the same probability, {np.exp(highest):.3g}" if is_even else "a probability of more than one half"
        )
        raise ModelError(
            f"{client.server_label}: Each of the {len(values)} tokens of {len(answers)} different texts has "
            f"{probability}. No model computes such probabilities, so the server or a proxy made them up. Check url "
            "and model in the entry of the model."
        )


def _require_no_floor(client: EndpointClient, answers: Sequence[Answer]) -> None:
    """Refuse a server that replaces small log-probabilities by one value."""
    floor = dialect_interface.find_floor(np.concatenate([answer.values["logprob"] for answer in answers]))
    if floor is not None:
        raise ModelError(
            f"{client.server_label}: The server replaces log-probabilities below {floor:.6g} by this value, so no "
            "text could be scored correctly. Configure the server to return unchanged log-probabilities."
        )


def _build_prompts(
    model: TokenizedModel, texts: Iterable[str], *, as_string: bool, max_tokens: int | None = None
) -> list[Prompt]:
    """Return prompts for the first window of each text, with at most ``max_tokens`` tokens each."""
    window, stride = window_and_stride(model)
    size = window if max_tokens is None else min(window, max_tokens)
    return [
        dialect_interface.build_prompt(
            model, text, cut_windows(0, text, size, min(stride, size - 1))[0], as_string=as_string
        )
        for text in encode(model, list(texts))
    ]


def _request_answers_in_order(
    client: EndpointClient, prompts: Sequence[Prompt], detail: AnswerDetail, patience: RetryPolicy | None = None
) -> list[Answer]:
    with closing(client.request_answers(enumerate(prompts), detail, patience=patience)) as batches:
        by_number = dict(chain.from_iterable(batches))
    return [by_number[number] for number in range(len(prompts))]


def _request_known_answers(
    client: EndpointClient, prompts: Sequence[Prompt], detail: AnswerDetail, patience: RetryPolicy | None = None
) -> list[Answer]:
    """Return answers in the order of the prompts, and raise ModelError if a log-probability is unknown."""
    answers = _request_answers_in_order(client, prompts, detail, patience)
    logprobs = np.concatenate([answer.values["logprob"] for answer in answers])
    n_unknown = int(np.isnan(logprobs).sum())
    if n_unknown:
        raise ModelError(
            f"{client.server_label}: The server returns no log-probability for {n_unknown} of the {len(logprobs)} "
            "tokens of plain texts, but minus infinity, a placeholder such as -9999, or a value above 0. An audit "
            "requires the log-probability of each token."
        )
    return answers


class _Listed(AnswerPart):
    id: str | None = None
    max_model_len: Annotated[int, Field(ge=2)] | None = None


class _Models(AnswerPart):
    data: list[_Listed]


def _require_window_fits(model: TokenizedModel, client: EndpointClient) -> None:
    """Refuse a window that exceeds the context length, if the server returns its context length (vLLM, SGLang)."""
    try:
        listed = dialect_interface.parse_answer(
            _Models, client.send_request(ServerRequest(dialect_interface.build_url(client.endpoint, "models")))
        )
    except (RefusedError, OversizedError, dialect_interface.BadAnswerError):
        return
    window = window_and_stride(model)[0]
    for listed_model in listed.data:
        if listed_model.id != client.endpoint.model or not listed_model.max_model_len:
            continue
        # The server generates one token.
        max_window = listed_model.max_model_len - 1
        if window > max_window:
            raise ModelError(
                f"{client.server_label}: The server accepts prompts of at most {max_window} tokens, and the entry's "
                f"window is {window}. Set window: {max_window} in config/models.yaml."
            )
        return


def _detect_id_support(model: TokenizedModel, client: EndpointClient) -> bool:
    """Return whether prompts are sent as ids. If the dialect allows both, a request with ids decides."""
    if client.endpoint.traits.takes_ids is not None:
        return client.endpoint.traits.takes_ids
    prompts = _build_prompts(model, TEXTS[:1], as_string=False)
    try:
        _request_answers_in_order(client, prompts, AnswerDetail(0), NO_RETRY)
    except (RefusedError, UnansweredError) as error:
        if error.status in _NO_IDS:
            return False
        if isinstance(error, RefusedError):
            raise
        # The server is busy or unreachable, so the request is repeated with retries.
        _request_answers_in_order(client, prompts, AnswerDetail(0))
    return True


def _require_top_logprobs(model: TokenizedModel, client: EndpointClient, takes_ids: bool) -> None:
    """Refuse a server that returns fewer best tokens than the entry requests."""
    requested = client.endpoint.top_logprobs
    [prompt] = _build_prompts(model, [COUNTING], as_string=not takes_ids, max_tokens=8)
    advice = (
        f"The entry requests {requested} best tokens per position. Set top_logprobs in config/models.yaml to the "
        "number that the server returns."
    )
    try:
        [answer] = _request_answers_in_order(client, [prompt], AnswerDetail(requested))
    except RefusedError as error:
        if error.status in _BAD_REQUEST and requested:
            raise ModelError(f"{error} {advice}") from error
        raise
    if answer.best_given < min(requested, model.vocab_size):
        raise ModelError(
            f"{client.server_label}: The server returns at most {answer.best_given} best tokens per position. {advice}"
        )


def _require_aligned(model: TokenizedModel, client: EndpointClient, takes_ids: bool) -> None:
    """Refuse a server that returns the log-probabilities of shifted positions."""
    [prompt] = _build_prompts(model, [COUNTING], as_string=not takes_ids)
    [answer] = _request_known_answers(client, [prompt], AnswerDetail(min(1, client.endpoint.top_logprobs)))
    own = answer.values["logprob"]
    best = answer.values.get("max_logprob", np.full_like(own, _CERTAIN))
    # A model cannot predict the first numbers, because it does not know yet that the text counts.
    known = slice(len(own) // 3, None)
    agree = int((own[known] >= best[known] - 1e-4).sum())
    if agree < _ENOUGH_AGREE * len(own[known]):
        raise ModelError(
            f"{client.server_label}: In a text that counts to 40, the next number is the most likely token at only "
            f"{agree} of {len(own[known])} positions. The server returns log-probabilities of other positions (as "
            "llama-cpp-python without a start token), or it runs another model than the entry names. Check url, model "
            "and dialect in config/models.yaml."
        )


def _require_same_special_tokens(model: TokenizedModel, client: EndpointClient) -> None:
    """Refuse a server that splits a text with a spelled special token differently from the local tokenizer."""
    special_tokens = [model.tokenizer.find_token(number) for number in sorted(model.tokenizer.special_ids)]
    spelled = [token for token in special_tokens if token is not None and token != model.start_token]
    if not spelled:
        return
    prompts = _build_prompts(model, [f"One {spelled[0]} two."], as_string=True)
    try:
        _request_answers_in_order(client, prompts, AnswerDetail(0))
    except ModelError as error:
        raise ModelError(
            f"{client.server_label}: The server splits a text that contains {spelled[0]} into other tokens than the "
            f"local tokenizer. {error}"
        ) from error


def _require_moments(model: TokenizedModel, client: EndpointClient, prompts: Sequence[Prompt]) -> None:
    """Refuse means and deviations that differ from those of the whole distribution, if the server can return it."""
    if not client.endpoint.moments:
        return
    # One token of each prompt is scored, because a whole distribution takes megabytes.
    few = [replace(prompt, ids=prompt.ids[:2], scored=1) for prompt in prompts]
    given = _request_answers_in_order(client, few, AnswerDetail(0, moments=True))
    try:
        whole = _request_answers_in_order(client, few, AnswerDetail(dialect_interface.WHOLE, moments=True))
    except RefusedError as error:
        if error.status not in _BAD_REQUEST:
            raise
        client.notify(
            f"{client.server_label}: Means and standard deviations cannot be checked, because the server does not "
            "return the probabilities of the whole vocabulary."
        )
        return
    off = max(_measure_deviation(*pair, name) for pair in zip(given, whole, strict=True) for name in ("mean", "std"))
    if off > _MOMENTS_TOLERANCE:
        raise ModelError(
            f"{client.server_label}: Means and standard deviations differ by up to {off:.2g} from those of the whole "
            "distribution. Remove moments from the entry in config/models.yaml, or update the plugin in the server."
        )


def _measure_deviation(answer: Answer, other: Answer, name: str = "logprob") -> float:
    return find_largest_deviation(answer.values[name].tolist(), other.values[name].tolist())
